"""What a reader of a Kafka topic sees."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka

from tests.waiting import PATIENCE


def committed(servers: Any, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All messages of a topic that a reader sees, each partition's in its order."""
    settings = {"bootstrap.servers": servers.bootstrap, "group.id": "t", "isolation.level": isolation}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in partitions])
        found: list[Any] = []
        ended: set[int] = set()
        until = time.monotonic() + PATIENCE
        while len(ended) < len(partitions):
            assert time.monotonic() < until, found
            message = consumer.poll(0.5)
            if message is None:
                continue
            error: Any = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                ended.add(int(message.partition() or 0))
        return found
    finally:
        consumer.close()
