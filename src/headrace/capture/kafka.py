"""Kafka topics: read from the offsets that the last committed epoch left, which no consumer group is asked for.

A position is the next offset of each partition. Topics that match a pattern and partitions that are added are found
while the source is read, and are read from their beginning. Offsets are committed to a group of the source's name too,
but only for people and their tools to see: where the source goes on is what the ledger says. With them stand the ids
that the brokers gave the topics: offsets mean nothing in a topic that was deleted and made anew.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from headrace.capture.columns.records import Records
from headrace.capture.connector import Arrival, Connector, Description, Lag, Position
from headrace.capture.kafka_refusals import Refusals
from headrace.capture.kafka_settings import PROGRAMS, given_settings, kafka_library
from headrace.capture.name_patterns import name_pattern
from headrace.capture.record import Record, moment_of
from headrace.errors import LogTruncated, SourceError, SourceUnavailable

_log = logging.getLogger("headrace.kafka")
_LOOK_SECONDS = 5.0
_ANSWER_SECONDS = 10.0
# The ids of topics are waited for no longer: brokers that do not tell them are not asked again.
ID_SECONDS = 3.0
_NAMES = {"earliest", "latest"}
_MOST_AT_ONCE = 1_000_000
# The part of a position that has the ids of topics by name; the name of a partition has a colon.
TOPIC_IDS = "topic_ids"
# How long more records of a backlog are waited for.
_GATHER_SECONDS = 0.3

OPTIONS: Mapping[str, str] = {
    "start": "Where to begin: 'earliest' (the default), 'latest', 'offset:N', or a time such as '2026-01-31 12:00:00'.",
    "signal_topic": "The topic of signals (signal.kafka.topic) of the Debezium connector, for SNAPSHOT SOURCE.",
    "signal_key": "Its topic.prefix, if that is not what stands before the first dot of the topic.",
    "transactions": "Whether transactions are taken whole or not at all (TRUE), or the topic that has their ends.",
    "kafka.*": "Any setting of librdkafka, such as 'kafka.security.protocol' or 'kafka.sasl.password'.",
}


class KafkaReading:
    """The partitions of some topics, read by one consumer."""

    def __init__(self, description: Description, position: Position) -> None:
        self._kafka = kafka_library()
        self._description = description
        self._servers, self._topics = split_location(description.location)
        self._ends = transaction_topic(description)
        self._start = str(description.options.get("start", "earliest"))
        self._next = _offsets(position)
        self._ids: dict[str, str] = dict(position.get(TOPIC_IDS, {}))
        self._tells_ids = True
        self._begun = bool(self._next)
        self._begins_late = not self._begun and self._start != "earliest"
        self._assigned: set[tuple[str, int]] = set()
        self._looked_at = 0.0
        # When the last record of each partition was written that was read.
        self._read_at: dict[tuple[str, int], datetime] = {}
        asked = {**given_settings(description.options), "bootstrap.servers": self._servers}
        self._refusals = Refusals(self._kafka, self._servers, description.name, asked)
        # Asked for the ids of topics, which a consumer does not tell.
        self._admin: Any = importlib.import_module("confluent_kafka.admin").AdminClient(asked, logger=LINES)
        self._consumer: Any = self._kafka.Consumer(
            {
                **asked,
                "group.id": f"headrace-{description.name}",
                "enable.auto.commit": False,
                # A position that the log no longer has is for people to decide about, never to be skipped over.
                "auto.offset.reset": "error",
                "enable.partition.eof": False,
                "fetch.wait.max.ms": 50,
                # Whole transactions of a producer, or nothing of them.
                "isolation.level": "read_committed",
                "error_cb": self._refusals.hear,
            },
            logger=LINES,
        )
        try:
            self._assign()
        except BaseException:
            self._consumer.close()
            raise

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        """The next records of all partitions, each partition's in its order."""
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._assign()
        arrivals: list[Arrival] = []
        for message in self._consumed(most, seconds):
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            _, millis = message.timestamp()
            at = moment_of(millis)
            headers = tuple((name, value) for name, value in message.headers() or ())
            record = Record(message.value(), message.key(), headers, topic, partition, offset, at)
            self._next[topic, partition] = offset + 1
            if at is not None:
                self._read_at[topic, partition] = at
            arrivals.append(Arrival(record, {_key(topic, partition): offset + 1, **self._told_ids}))
        return arrivals

    def poll_records(self, most: int, large: int, seconds: float) -> Records:
        """The same without an object for each; where they are many, more of them are waited for a little."""
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._assign()
        messages = self._consumed(most, seconds)
        many = len(messages) >= large or (messages and len(messages) + self._waiting(messages) >= large)
        if many and len(messages) < most:
            messages += self._consumed(most - len(messages), _GATHER_SECONDS, together=True)
        parts = [
            (one.value(), one.key(), one.topic(), one.partition(), one.offset(), one.timestamp()[1]) for one in messages
        ]
        values, keys, topics, partitions, offsets, timestamps = zip(*parts, strict=True) if parts else ((),) * 6
        advanced: dict[str, Any] = dict(self._told_ids)
        lasts = {
            (topic, partition): index for index, (topic, partition) in enumerate(zip(topics, partitions, strict=True))
        }
        for (topic, partition), index in lasts.items():
            self._next[topic, partition] = advanced[_key(topic, partition)] = offsets[index] + 1
            if (at := moment_of(timestamps[index])) is not None:
                self._read_at[topic, partition] = at
        return Records(values, keys, topics, partitions, offsets, timestamps, advanced)

    def _waiting(self, messages: list[Any]) -> int:
        """How many records the partitions have after these, as far as the broker has told by now."""
        reached = {**self._next, **{(one.topic(), one.partition()): one.offset() + 1 for one in messages}}
        highs = {
            one: self._consumer.get_watermark_offsets(self._kafka.TopicPartition(*one), cached=True)[1]
            for one in self._assigned
        }
        return sum(max(0, high - reached.get(one, high)) for one, high in highs.items())

    def _consumed(self, most: int, seconds: float, *, together: bool = False) -> list[Any]:
        """The messages that come within so many seconds: as soon as there are some, or all of that time."""
        # The library waits until it has as many as it is asked for, so that the first is asked for alone.
        messages = self._consumer.consume(min(most, _MOST_AT_ONCE) if together else 1, seconds)
        if messages and most > 1 and not together:
            messages += self._consumer.consume(min(most - 1, _MOST_AT_ONCE), 0)
        for message in messages:
            error = message.error()
            if error is not None:
                self._refuse(error, message)
        self._refusals.raise_heard()
        return [message for message in messages if message.error() is None]

    def confirm(self, position: Position) -> None:
        """Let the group of the source's name show how far it is."""
        offsets = [
            self._kafka.TopicPartition(*partition, offset)
            for partition, offset in _offsets(position).items()
            if partition in self._assigned
        ]
        if offsets:
            # Nothing depends on it, so nobody waits for it, and a failure is none.
            with suppress(self._kafka.KafkaException):
                self._consumer.commit(offsets=offsets, asynchronous=True)

    def lag(self) -> Lag:
        """How many records the partitions have after the next one, as far as the broker has told by now."""
        behind = 0
        since: list[datetime] = []
        for topic, partition in self._assigned:
            _, high = self._consumer.get_watermark_offsets(self._kafka.TopicPartition(topic, partition), cached=True)
            left = 0 if high < 0 else max(0, high - self._next.get((topic, partition), high))
            behind += left
            if left and (topic, partition) in self._read_at:
                # What comes next was written after that.
                since.append(self._read_at[topic, partition])
        note = None if self._assigned else f"there is no topic {self._description.location.rpartition('/')[2]} yet"
        return Lag(behind, min(since, default=None), note)

    def begins_at(self) -> Position:
        """The offsets that 'latest', an offset or a time came to: asked once more, they would be others."""
        return self.position if self._begins_late else {}

    @property
    def position(self) -> Position:
        """Where each partition is read on."""
        return {**{_key(*partition): offset for partition, offset in self._next.items()}, **self._told_ids}

    @property
    def _told_ids(self) -> Position:
        return {TOPIC_IDS: self._ids} if self._ids else {}

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _assign(self) -> None:
        """Read every partition that there is, those of new topics and those that were added too."""
        with self._answering():
            found = self._partitions()
            self._refuse_made_anew({topic for topic, _ in found})
            new = found - self._assigned
            self._next.update(self._begin(sorted(one for one in new if one not in self._next)))
        if new:
            self._assigned |= new
            # All anew: to be assigned a part only would lose the others.
            self._consumer.assign([self._kafka.TopicPartition(*one, self._next[one]) for one in sorted(self._assigned)])
        # What is found from now on came later.
        self._begun = True
        self._looked_at = time.monotonic()

    @contextmanager
    def _answering(self) -> Generator[None]:
        """Inside, brokers are asked, which may not answer just now."""
        try:
            yield
        except self._kafka.KafkaException as error:
            # Calls back whoever waits for it to be said why.
            with suppress(self._kafka.KafkaException):
                self._consumer.poll(0)
            self._refusals.raise_heard()
            raise SourceUnavailable(
                f"Kafka at {self._servers} does not answer",
                detail=f"{error.args[0]}.",
                hint="it is tried again; see that the brokers are up and the address is right",
            ) from error

    def _partitions(self) -> set[tuple[str, int]]:
        listed = self._consumer.list_topics(timeout=_ANSWER_SECONDS).topics
        matching = [name for name in listed if self._topics.fullmatch(name) or name == self._ends]
        names = [name for name in matching if not name.startswith("__")]
        return {(name, partition) for name in names for partition in listed[name].partitions}

    def _refuse_made_anew(self, topics: set[str]) -> None:
        """Learn the ids of topics, and refuse one that has another id than when it was read."""
        if not topics or not self._tells_ids:
            return
        asked = self._admin.describe_topics(self._kafka.TopicCollection(sorted(topics)), request_timeout=ID_SECONDS)
        ids: dict[str, str] = {}
        try:
            for topic, future in asked.items():
                if (told := future.result(ID_SECONDS + 1).topic_id) is not None:
                    ids[topic] = str(told)
        except (self._kafka.KafkaException, TimeoutError) as error:
            # One that is gone again shows when it is read; older brokers give no ids, and some let nobody ask.
            self._tells_ids = isinstance(error, self._kafka.KafkaException) and error.args[0].code() in (
                self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
                self._kafka.KafkaError._TRANSPORT,
            )
        for topic, told in ids.items():
            if self._ids.get(topic, told) != told:
                raise LogTruncated(
                    f"topic {topic} was deleted and made anew",
                    detail="It is another topic of the same name by now: the offsets up to which it was read mean "
                    "nothing in it.",
                    hint=f"RESUME SOURCE {self._description.name} WITH SNAPSHOT goes on from the oldest record that is "
                    "there; have its connector take a snapshot if that is not all",
                )
        if ids != self._ids:
            self._ids = {**self._ids, **ids}

    def _begin(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Where partitions begin that were not read before; those that came later begin at their first record."""
        start = "earliest" if self._begun else self._start
        offset = int(start[7:]) if start.startswith("offset:") else None
        if offset is None and start not in _NAMES:
            return self._at_time(partitions, _moment(start))
        found: dict[tuple[str, int], int] = {}
        for topic, partition in partitions:
            low, high = self._consumer.get_watermark_offsets(
                self._kafka.TopicPartition(topic, partition), timeout=_ANSWER_SECONDS
            )
            # A partition that has not come to an offset yet has not lost it.
            found[topic, partition] = low if start == "earliest" else high if offset is None else min(offset, high)
        return found

    def _at_time(self, partitions: Sequence[tuple[str, int]], moment: datetime) -> dict[tuple[str, int], int]:
        millis = int(moment.timestamp() * 1000)
        asked = [self._kafka.TopicPartition(*one, millis) for one in partitions]
        told = self._consumer.offsets_for_times(asked, timeout=_ANSWER_SECONDS) if asked else []
        found = {(one.topic, one.partition): one.offset for one in told}
        ends = [one for one, offset in found.items() if offset < 0]
        for topic, partition in ends:
            # Nothing is as young as that: what comes from now on is.
            _, found[topic, partition] = self._consumer.get_watermark_offsets(
                self._kafka.TopicPartition(topic, partition), timeout=_ANSWER_SECONDS
            )
        return found

    def _refuse(self, error: Any, message: Any) -> None:
        codes = self._kafka.KafkaError
        if error.code() == codes._PARTITION_EOF:
            return
        if error.code() in (codes.OFFSET_OUT_OF_RANGE, codes._AUTO_OFFSET_RESET):
            where = self._kafka.TopicPartition(message.topic(), message.partition())
            with self._answering():
                low, high = self._consumer.get_watermark_offsets(where, timeout=_ANSWER_SECONDS)
            wanted = self._next.get((message.topic(), message.partition()))
            raise LogTruncated(
                f"the log of {message.topic()} no longer has what comes next",
                detail=f"Partition {message.partition()} is to be read from {wanted} on, and has {low} to {high}: "
                "the rest was removed before it was read.",
                hint=f"have its connector take a snapshot, then RESUME SOURCE {self._description.name} WITH SNAPSHOT, "
                "which goes on from the oldest record that is there",
            )
        if error.fatal():
            raise SourceError(f"Kafka ended the consumer: {error.str()}")
        raise SourceUnavailable(f"Kafka at {self._servers} reports: {error.str()}", hint="it is tried again")


def split_location(location: str) -> tuple[str, re.Pattern[str]]:
    """The brokers and the topics of 'host:9092,other:9092/topic', in which a * stands for any letters."""
    servers, slash, topic = location.removeprefix("kafka://").partition("/")
    if not slash or not servers.strip() or not topic.strip():
        raise SourceError(
            f"{location!r} names no topic of a broker", hint="write 'host:9092/topic', or 'host:9092/prefix.*'"
        )
    return servers, re.compile(name_pattern(topic))


def _again(description: Description) -> Position:
    """The oldest records that there are."""
    reading = KafkaReading(replace(description, options={**description.options, "start": "earliest"}), {})
    try:
        return reading.position
    finally:
        reading.close()


def _snapshot(description: Description, tables: Sequence[str], asked: str) -> Position:
    """Have the connector of Debezium behind the topics bring all rows of tables: it hears of it by a topic too."""
    topic, options = str(description.options.get("signal_topic", "")), description.options
    if not topic or not tables:
        missing = "which tables" if topic else "where its connector hears signals"
        raise SourceError(
            f"source {description.name} does not say {missing}",
            detail="Debezium's connector hears them on its signal.kafka.topic, with signal.enabled.channels = kafka.",
            hint="write SNAPSHOT SOURCE s TABLE 'public.orders'"
            if topic
            else f"ALTER SOURCE {description.name} SET (signal_topic = '...')",
        )
    servers, _ = split_location(description.location)
    prefix = description.location.rpartition("/")[2].partition(".")[0]
    data = {"type": "INCREMENTAL", "data-collections": list(tables)}
    producer = kafka_library().Producer({**given_settings(options), "bootstrap.servers": servers}, logger=LINES)
    key = str(options.get("signal_key", prefix))
    producer.produce(topic, json.dumps({"id": asked, "type": "execute-snapshot", "data": data}), key)
    if producer.flush(_ANSWER_SECONDS):
        raise SourceUnavailable(f"Kafka at {servers} does not take the signal", hint="try again when it answers")
    return {}


class _Lines:
    """What the library says beside its errors, which come to us as such: for who looks for it, and not on stderr."""

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Take one line."""
        _log.debug(message, *arguments)


LINES = _Lines()


def transaction_topic(description: Description) -> str:
    """The topic in which Debezium tells the ends of transactions, if they are asked for: that of the first topic's
    prefix, where none is named."""
    wanted = description.options.get("transactions", False)
    if not wanted:
        return ""
    topic = description.location.removeprefix("kafka://").partition("/")[2]
    return wanted if isinstance(wanted, str) else f"{topic.partition('.')[0]}.transaction"


def _reads_topic(description: Description, topic: str) -> bool:
    return split_location(description.location)[1].fullmatch(topic) is not None


def _check(description: Description) -> None:
    split_location(description.location)
    for name in PROGRAMS.intersection(given_settings(description.options)):
        raise SourceError(
            f"option kafka.{name} cannot be given",
            detail="By it the process that owns the home would load code or run a command, which no statement may ask.",
            hint="leave it out",
        )
    if "*" in transaction_topic(description):
        raise SourceError(
            "the topic of the ends of transactions cannot be told from a pattern",
            hint="name it: transactions = 'prefix.transaction'",
        )
    start = str(description.options.get("start", "earliest"))
    if start.startswith("offset:"):
        if not start[7:].isdigit():
            raise SourceError(f"start cannot be {start!r}", hint="write start = 'offset:1000'")
    elif start not in _NAMES:
        _moment(start)
    kafka_library()


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SourceError(
            f"start cannot be {text!r}",
            hint="write 'earliest', 'latest', 'offset:1000' or a time such as '2026-01-31 12:00:00'",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _key(topic: str, partition: int) -> str:
    return f"{topic}:{partition}"


def _offsets(position: Position) -> dict[tuple[str, int], int]:
    return {_partition(key): int(offset) for key, offset in position.items() if key != TOPIC_IDS}


def _partition(key: str) -> tuple[str, int]:
    topic, _, partition = key.rpartition(":")
    return topic, int(partition)


KAFKA = Connector(
    "KAFKA",
    OPTIONS,
    KafkaReading,
    _check,
    brings_many=True,
    has_format=True,
    ordered=True,
    again=_again,
    snapshot=_snapshot,
    reads_topic=_reads_topic,
)
