"""How far a feed is, kept by Kafka itself: a record of a compacted topic, written in the transaction of the events."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.capture.kafka_settings import kafka_library
from headrace.feeds.batch import Mark
from headrace.feeds.kafka_topic import ANSWER_SECONDS, client_settings, log
from headrace.feeds.sink import SinkUnavailable, Target

# Others that write to the same topic and were killed hold what comes after them for as long as their transactions.
_READ_SECONDS = 90.0
_LAST = 200


@dataclass(frozen=True)
class Progress:
    """What the transactions of a feed have told.

    All up to `mark` is told or given up; of the events after it, those up to the number `told` but for the `missing`
    ones, which the broker refused or which wait for such a one.
    """

    fence: int
    # The transaction that wrote it.
    transaction: str
    mark: Mark | None = None
    told: int = 0
    missing: frozenset[int] = field(default_factory=frozenset[int])

    def has_told(self, sequence: int) -> bool:
        """Whether an event that comes again was told already. One that was parked is replayed from before the mark."""
        since = 0 if self.mark is None else self.mark.sequence
        return since < sequence <= self.told and sequence not in self.missing

    def after(
        self, transaction: str, mark: Mark, sequences: Sequence[int], told: Collection[int], left: Collection[int]
    ) -> Progress:
        """The progress once a batch is told, but for some events of it.

        A number between those of a batch is one that waits, too.
        """
        last = max(self.told, max(sequences, default=0))
        marked = mark if self.mark is None else max(mark, self.mark)
        given = set(sequences)
        between = {number for number in range(self.told + 1, last + 1) if number not in given} if self.told else set()
        missing = (self.missing | between | set(left)).difference(told)
        return Progress(
            self.fence, transaction, marked, last, frozenset(number for number in missing if number > marked.sequence)
        )

    def to_bytes(self, feed: str) -> bytes:
        """As it stands in a record."""
        mark = None if self.mark is None else [self.mark.epoch, self.mark.stored_event, self.mark.sequence]
        content = {"feed": feed, "fence": self.fence, "transaction": self.transaction, "mark": mark}
        return json.dumps({**content, "told": self.told, "missing": _stretches(self.missing)}).encode()


def read_progress(target: Target, topic: str) -> Progress | None:
    """The last committed record of a feed; none if it has none. All that may still be committed is waited for."""
    kafka = kafka_library()
    where = kafka.TopicPartition(topic, 0)
    settings = {
        **client_settings(target),
        "group.id": f"headrace-progress-{target.feed_id}",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
    }
    consumer = kafka.Consumer(settings, logger=log)
    try:
        end = _end(target, where)
        low, _ = consumer.get_watermark_offsets(where, timeout=ANSWER_SECONDS)
        last = _LAST
        while True:
            # Most feeds have a record among the last; only a feed that was quiet for long has its further back.
            start = max(low, end - last)
            found = _last_record(kafka, consumer, kafka.TopicPartition(topic, 0, start), end, target.feed_id.encode())
            if found is not None or start <= low:
                return None if found is None else _progress(found)
            last *= 16
    except kafka.KafkaException as error:
        raise SinkUnavailable(f"progress cannot be read from topic {topic}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _last_record(kafka: Any, consumer: Any, start: Any, end: int, key: bytes) -> bytes | None:
    """The value of the last record of a key; an empty one if that took it away."""
    if start.offset >= end:
        return None
    consumer.assign([start])
    found: bytes | None = None
    until = time.monotonic() + _READ_SECONDS
    while time.monotonic() < until:
        for message in consumer.consume(1_000, 0.1):
            error = message.error()
            if error is None:
                if message.key() == key:
                    found = message.value() or b""
                if message.offset() + 1 >= end:
                    return found
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                if message.offset() >= end:
                    return found
            else:
                raise kafka.KafkaException(error)
    raise SinkUnavailable(f"topic {start.topic} has a transaction of another feed that does not end")


def _end(target: Target, where: Any) -> int:
    """The offset after all that was written, committed or not: what another feed has not ended yet comes before it."""
    kafka, admin = kafka_library(), importlib.import_module("confluent_kafka.admin")
    # Held until it has answered.
    client = admin.AdminClient(client_settings(target), logger=log)
    asked = client.list_offsets(
        {where: admin.OffsetSpec.latest()},
        isolation_level=kafka.IsolationLevel.READ_UNCOMMITTED,
        request_timeout=ANSWER_SECONDS,
    )
    try:
        return asked[where].result(ANSWER_SECONDS).offset
    except TimeoutError as error:
        raise SinkUnavailable(f"progress cannot be read from topic {where.topic}: no answer") from error


def _progress(content: bytes) -> Progress | None:
    if not content:
        return None
    found = json.loads(content)
    mark = None if found["mark"] is None else Mark.stored(*found["mark"])
    return Progress(found["fence"], found["transaction"], mark, found["told"], frozenset(_numbers(found["missing"])))


def _stretches(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def _numbers(stored: Sequence[int | Sequence[int]]) -> Iterator[int]:
    """Yield the numbers of a record; one of an earlier release has them one by one."""
    for one in stored:
        first, last = (one, one) if isinstance(one, int) else one
        yield from range(first, last + 1)
