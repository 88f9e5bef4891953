"""Records of a topic, written and read by the usual client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.waiting import PATIENCE


def produce(bootstrap: str, topic: str, values: Iterable[str]) -> None:
    """Write records, and return when the broker has them."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 2})
    failures: list[Any] = []
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(PATIENCE) == 0
    assert failures == []


def read(bootstrap: str, topic: str, enough: Callable[[list[Message]], bool], since: int = 0) -> list[Message]:
    """The records of a topic's first partition, until they are enough."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reading", "enable.auto.commit": False, "log_level": 2}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "allow.auto.create.topics": False})
    found: list[Message] = []
    until = time.monotonic() + PATIENCE
    try:
        consumer.assign([TopicPartition(topic, 0, since)])
        while not enough(found):
            assert time.monotonic() < until, [message.value() for message in found]
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


def payloads(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """What Debezium says in records; tombstones say nothing."""
    return [json.loads(value)["payload"] for message in messages if (value := message.value()) is not None]
