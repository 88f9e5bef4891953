"""Topics of Kafka as the sink of a feed: a message for each event, keyed so that those of a row stay in order."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from headrace.capture.kafka_settings import PROGRAMS, given_settings, kafka_library
from headrace.errors import FeedError
from headrace.feeds.kafka_delivery import KafkaDelivery
from headrace.feeds.kafka_sending import Sending
from headrace.feeds.kafka_topic import Topic, find_progress_topic, find_topic, split_target
from headrace.feeds.kafka_transactions import KafkaTransactions
from headrace.feeds.sink import Delivery, SinkUnavailable, Target

_SILENT = logging.Logger("headrace.feeds.kafka.settings", logging.CRITICAL + 1)
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_POLICIES = ("delete", "compact", "compact,delete")
# Settings of librdkafka that the feed sets itself, by the promise that rests on them.
_OURS: Mapping[str, frozenset[str]] = {
    "where events go": frozenset(
        {
            *("bootstrap.servers", "metadata.broker.list"),
            # Brokers in the client's own memory: nothing ever leaves the process.
            *("test.mock.num.brokers", "test.mock.broker.rtt"),
        }
    ),
    "the order of the events of a key": frozenset(
        {
            *("partitioner", "queuing.strategy"),
            *("max.in.flight", "max.in.flight.requests.per.connection", "retries", "message.send.max.retries"),
        }
    ),
    "that every event arrives": frozenset(
        {
            *("acks", "request.required.acks", "delivery.report.only.error"),
            *("message.timeout.ms", "delivery.timeout.ms"),
        }
    ),
    "that no event is written twice": frozenset(
        {
            *("enable.idempotence", "enable.gapless.guarantee", "transactional.id", "isolation.level"),
            *("api.version.request", "broker.version.fallback"),
        }
    ),
    "the option compression": frozenset({"compression.type", "compression.codec"}),
}
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


class KafkaSink:
    """One topic a feed; at least once, or exactly once by transactions."""

    keyword = "KAFKA"
    options: Mapping[str, str] = {
        "exactly_once": "Whether every event is in the topic once for readers of committed messages: by transactions.",
        "compression": "'none', 'gzip', 'snappy', 'lz4' (the default) or 'zstd'.",
        "create_topic": "Whether the topic is created if it is not there.",
        "partitions": "How many partitions it is then given; else as many as the broker gives.",
        "replication": "How many copies it is then given, and the topic of progress; else as many as the broker gives.",
        "cleanup_policy": "'delete', 'compact' or 'compact,delete' for the topic that is created.",
        "tombstones": "Whether a DELETE is followed by a message without a value; so by default if that is compacted.",
        "progress_topic": "Where transactions keep how far the feed is; by default the topic's name with '.progress'.",
        "kafka.*": "Any setting of librdkafka, such as 'kafka.security.protocol' or 'kafka.sasl.password'.",
    }
    secrets: frozenset[str] = frozenset()

    def check(self, target: Target) -> None:
        """Refuse options that no broker could take."""
        _, topic = split_target(target.location)
        options = target.options
        _refuse_settings(given_settings(options))
        _one_of(options, "compression", _COMPRESSIONS)
        _one_of(options, "cleanup_policy", _POLICIES)
        for name in ("exactly_once", "create_topic", "tombstones"):
            if not isinstance(options.get(name, False), bool):
                raise FeedError(f"{name} cannot be {options[name]!r}", hint=f"write {name} = true or {name} = false")
        for name in ("partitions", "replication"):
            number = options.get(name, 1)
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= 10_000:
                raise FeedError(f"{name} cannot be {number!r}", hint=f"write a number, as in {name} = 3")
        for name in ("partitions", "cleanup_policy"):
            if name in options and not options.get("create_topic"):
                raise FeedError(
                    f"{name} is for a topic that the feed creates", hint=f"leave {name} out, or add create_topic = true"
                )
        if "progress_topic" in options:
            if split_target(f"broker/{options['progress_topic']}")[1] == topic:
                raise FeedError("progress_topic cannot be the topic of the events", hint="leave it out")
            if not options.get("exactly_once"):
                raise FeedError("progress_topic is for transactions", hint="leave it out, or add exactly_once = true")

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Nothing is asked before the sink is opened."""

    def open(self, target: Target) -> Delivery:
        """Find or create the topic; with exactly_once, also take over from whoever delivered before."""
        try:
            topic = find_topic(target)
            compacted = topic.compacted or "compact" in str(target.options.get("cleanup_policy", ""))
            tombstones = bool(target.options.get("tombstones", compacted))
            if not target.options.get("exactly_once"):
                return KafkaDelivery(target, topic, tombstones)
            find_progress_topic(target, progress_topic(target))
            return KafkaTransactions(target, topic, progress_topic(target), tombstones)
        except kafka_library().KafkaException as error:
            raise SinkUnavailable(f"Kafka's client cannot be used as it is set: {error.args[0].str()}") from error

    def forget(self, target: Target) -> None:
        """Take the feed's record out of the topic of progress; compaction removes the rest."""
        if not target.options.get("exactly_once"):
            return
        sending = Sending(target, Topic(progress_topic(target), 1, 1_000_000, compacted=True))
        try:
            sending.send_record(progress_topic(target), target.feed_id.encode(), None)
            sending.wait()
        finally:
            sending.close()


KAFKA = KafkaSink()


def progress_topic(target: Target) -> str:
    """The topic in which transactions of a feed keep how far it is."""
    return str(target.options.get("progress_topic") or f"{split_target(target.location)[1]}.progress")


def _refuse_settings(given: Mapping[str, str]) -> None:
    """Refuse settings that run programs, that a promise rests on, or that the client does not take."""
    for name in sorted(given):
        # The client takes a setting of topics with this before its name, too.
        plain = name.removeprefix("topic.")
        if plain in PROGRAMS:
            raise FeedError(
                f"option kafka.{name} cannot be given",
                detail="By it the process that owns the home would load code or run a command, which no statement may.",
                hint="leave it out",
            )
        for promise, settings in _OURS.items():
            if plain in settings:
                raise FeedError(
                    f"option kafka.{name} cannot be given",
                    detail=f"The feed sets it itself: {promise} rests on it.",
                    hint="leave it out",
                )
    protocol = given.get("security.protocol", _PROTOCOLS[0]).lower()
    if protocol not in _PROTOCOLS:
        raise FeedError(
            f"option kafka.security.protocol cannot be {protocol!r}", hint=f"write one of {', '.join(_PROTOCOLS)}"
        )
    library = kafka_library()
    try:
        # A client without brokers asks nobody for anything; with this protocol it reads no files either.
        library.Producer({**given, "security.protocol": _PROTOCOLS[0]}, logger=_SILENT)
    except library.KafkaException as error:
        raise _not_taken(error.args[0].str()) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise _not_taken(str(error)) from None


def _not_taken(reason: str) -> FeedError:
    return FeedError(
        "Kafka's client does not take the settings of the feed",
        detail=f"{reason.strip()}.",
        hint="look the name up in librdkafka's CONFIGURATION.md, and write it behind kafka.",
    )


def _one_of(options: Mapping[str, Any], name: str, values: tuple[str, ...]) -> None:
    if name in options and options[name] not in values:
        raise FeedError(f"{name} cannot be {options[name]!r}", hint=f"write one of {', '.join(map(repr, values))}")
