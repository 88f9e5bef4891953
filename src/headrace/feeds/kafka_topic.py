"""The topic that a feed writes to: where it is, that it is there, and what it takes."""

from __future__ import annotations

import importlib
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.capture.kafka_settings import given_settings, kafka_library
from headrace.errors import FeedError
from headrace.feeds.sink import SinkUnavailable, Target

log = logging.getLogger("headrace.feeds.kafka")

ANSWER_SECONDS = 10.0
# What a broker takes that was not told anything else.
_MOST_BYTES = 1_048_588
# librdkafka's own bound.
_MOST_OF_ALL = 1_000_000_000
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True)
class Topic:
    """A topic that is there."""

    name: str
    partitions: int
    # The size of a message, before it is compressed.
    most_bytes: int
    compacted: bool
    # Whether the settings of the topic could be read: a client may write to a topic without that right.
    is_known: bool = True

    @property
    def needs_keys(self) -> bool:
        """Return whether the broker may refuse a message without a key."""
        return self.compacted or not self.is_known


def split_target(location: str) -> tuple[str, str]:
    """The brokers and the topic of 'host:9092,other:9092/topic'."""
    # Nothing of it is told: it may be what a reference refers to, which may be any file.
    servers, slash, topic = location.removeprefix("kafka://").partition("/")
    if not slash or not servers.strip() or not topic.strip():
        raise FeedError("the location names no topic of a broker", hint="write 'host:9092/topic'")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise FeedError(
            "what stands behind the first / of the location cannot be a topic",
            detail="Topics have letters, digits, dots, underlines and dashes, at most 249 of them.",
            hint="write 'host:9092/topic'",
        )
    return servers.strip(), topic


def client_settings(target: Target) -> dict[str, Any]:
    """What every client of a feed is given: the statement's own settings, and where the brokers are."""
    servers, _ = split_target(target.location)
    return {**given_settings(target.options), "bootstrap.servers": servers}


def find_topic(target: Target) -> Topic:
    """The feed's topic, created if the statement says so; `SinkUnavailable` if it is not there."""
    kafka = kafka_library()
    servers, name = split_target(target.location)
    admin = _admin(target)
    if target.options.get("create_topic"):
        config = {"cleanup.policy": str(policy)} if (policy := target.options.get("cleanup_policy")) else {}
        create_topic(admin, name, int(target.options.get("partitions", -1)), _replication(target), config)
    until = time.monotonic() + ANSWER_SECONDS
    try:
        while (partitions := _partitions(admin, name)) == 0:
            if time.monotonic() > until:
                raise SinkUnavailable(f"Kafka at {servers} has no topic {name}: create it, or add create_topic = true")
            time.sleep(0.2)
    except kafka.KafkaException as error:
        raise SinkUnavailable(f"Kafka at {servers} does not answer: {error.args[0].str()}") from error
    config = _config(admin, name)
    most = min(int(config.get("max.message.bytes", _MOST_BYTES)), _MOST_OF_ALL)
    return Topic(name, partitions, most, "compact" in config.get("cleanup.policy", ""), bool(config))


def find_progress_topic(target: Target, name: str) -> None:
    """See that there is a compacted topic of one partition, in which transactions keep how far feeds are."""
    # Small segments, so that what is read when a feed is opened stays short.
    config = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
    create_topic(_admin(target), name, 1, _replication(target), config)


def create_topic(admin: Any, name: str, partitions: int, replication: int, config: Mapping[str, str]) -> None:
    """Create a topic if it is not there; -1 leaves a number to the broker."""
    kafka = kafka_library()
    made = importlib.import_module("confluent_kafka.admin").NewTopic(
        name, num_partitions=partitions, replication_factor=replication, config=dict(config)
    )
    try:
        for done in admin.create_topics([made], request_timeout=ANSWER_SECONDS).values():
            done.result(ANSWER_SECONDS)
    except kafka.KafkaException as error:
        if error.args[0].code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
            raise SinkUnavailable(f"topic {name} could not be created: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise SinkUnavailable(f"topic {name} could not be created: the broker does not answer") from error


def _replication(target: Target) -> int:
    return int(target.options.get("replication", -1))


def _partitions(admin: Any, name: str) -> int:
    """How many partitions a topic has; to ask for it has a broker create it that creates topics by itself."""
    found = admin.list_topics(topic=name, timeout=ANSWER_SECONDS).topics[name]
    return 0 if found.error is not None else len(found.partitions)


def _config(admin: Any, name: str) -> dict[str, str]:
    """A topic's settings, as far as the feed may ask for them."""
    kafka, module = kafka_library(), importlib.import_module("confluent_kafka.admin")
    asked = module.ConfigResource(module.ResourceType.TOPIC, name)
    try:
        found = admin.describe_configs([asked], request_timeout=ANSWER_SECONDS)[asked].result(ANSWER_SECONDS)
    except (kafka.KafkaException, TimeoutError):
        # Who may write to a topic need not have the right to see its settings.
        return {}
    return {key: entry.value for key, entry in found.items() if entry.value is not None}


def _admin(target: Target) -> Any:
    return importlib.import_module("confluent_kafka.admin").AdminClient(client_settings(target), logger=log)
