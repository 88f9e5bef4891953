"""One producer of Kafka: many messages under way at once, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.capture.kafka_settings import kafka_library
from headrace.feeds.kafka_messages import Headers, Messages
from headrace.feeds.kafka_topic import Topic, client_settings, log, split_target
from headrace.feeds.sink import SinkUnavailable, Target

# How long nothing may be confirmed before the brokers are said to be away. What is under way stays so.
PATIENCE_SECONDS = 8.0
_STEP_SECONDS = 0.25
_CLOSE_SECONDS = 2.0
# Stands for the record of progress where events have their sequence.
PROGRESS = -1


class Sending:
    """A producer that never gives a message up by itself, so that none overtakes an earlier one of its partition."""

    def __init__(self, target: Target, topic: Topic, further: dict[str, Any] | None = None) -> None:
        self._kafka = kafka_library()
        self._servers, _ = split_target(target.location)
        self._topic = topic
        # By the number of their event.
        self.failed: dict[int, Any] = {}
        # What clients told of connections since the last message was confirmed.
        self._trouble = ""
        self.fatal = ""
        settings = {
            "compression.type": str(target.options.get("compression", "lz4")),
            "queue.buffering.max.messages": 500_000,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            **client_settings(target),
            # The way that Java's clients choose partitions, so that topics of both can be joined.
            "partitioner": "murmur2_random",
            "acks": "all",
            "enable.idempotence": True,
            # Without an end: one that were given up while later ones arrive would arrive after them.
            "message.timeout.ms": 0,
            "message.max.bytes": max(1_000, topic.most_bytes),
            "error_cb": self._hear,
            **(further or {}),
        }
        # A transaction's messages end with it.
        if "transactional.id" in settings:
            del settings["message.timeout.ms"]
        self.producer: Any = self._kafka.Producer(settings, logger=log)

    def send(self, messages: Messages, indices: Iterable[int]) -> None:
        """Hand over messages; those without a key go to every partition."""
        name, produce = self._topic.name, self._produce
        for index in indices:
            key, value, headers = messages.keys[index], messages.values[index], messages.headers(index)
            reported = partial(self._report, messages.sequences[index])
            if key is None:
                self.send_to_all(value, headers, reported)
                continue
            produce(name, value, key, headers=headers, on_delivery=reported)
            if messages.ends[index]:
                produce(name, None, key, headers=headers, on_delivery=reported)

    def send_to_all(self, value: bytes, headers: Headers, reported: Callable[[Any, Any], None]) -> None:
        """Hand over a message to every partition; a compacted topic takes none without a key."""
        key = headers_key(headers) if self._topic.needs_keys else None
        for number in range(self._topic.partitions):
            self._produce(self._topic.name, value, key, number, headers=headers, on_delivery=reported)

    def send_record(self, topic: str, key: bytes, value: bytes | None) -> None:
        """Hand over a record of progress."""
        self._produce(topic, value, key, 0, on_delivery=partial(self._report, PROGRESS))

    def wait(self) -> None:
        """Return when it is known what became of every message; `SinkUnavailable` when nothing moves for long."""
        left, moved_at = len(self.producer), time.monotonic()
        while left:
            now = self._served(self.producer.flush)
            if now < left:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > PATIENCE_SECONDS:
                raise SinkUnavailable(self.reason("does not confirm what is sent"))
            left = now
        self._trouble = ""

    def _served(self, serve: Callable[[float], int]) -> int:
        """Let the client report; it raises what ends it from there, by one way or the other."""
        try:
            return serve(_STEP_SECONDS)
        except (self._kafka.KafkaException, SystemError) as error:
            self.fatal = self.fatal or str(error.__cause__ or error)
            raise SinkUnavailable(self.reason(f"ended the producer: {self.fatal}")) from error

    def reason(self, what: str) -> str:
        """A sentence about the brokers, with what was last heard of them."""
        return f"Kafka at {self._servers} {what}{': ' + self._trouble if self._trouble else ''}"

    def close(self) -> None:
        """Let go of the producer and of all that is under way."""
        with suppress(self._kafka.KafkaException, SystemError):
            self.producer.purge(blocking=False)
            self.producer.flush(_CLOSE_SECONDS)

    def _produce(self, *arguments: Any, **named: Any) -> None:
        ends_at = 0.0
        while True:
            try:
                self.producer.produce(*arguments, **named)
                return
            except BufferError:
                # The queue is full: what was confirmed makes room.
                now = time.monotonic()
                ends_at = ends_at or now + PATIENCE_SECONDS
                if self._served(self.producer.poll):
                    ends_at = now + PATIENCE_SECONDS
                elif now > ends_at:
                    raise SinkUnavailable(self.reason("takes nothing more")) from None
            except self._kafka.KafkaException as error:
                raise self.failure(error) from error

    def failure(self, error: Any) -> SinkUnavailable:
        """What an error of the client's is to the feed; a fatal one ends the producer."""
        told = error.args[0]
        if told.fatal():
            self.fatal = told.str()
        return SinkUnavailable(self.reason(f"reports: {told.str()}"))

    def _report(self, sequence: int, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed[sequence] = error
            if error.fatal():
                self.fatal = error.str()

    def _hear(self, error: Any) -> None:
        self._trouble = error.str()
        if error.fatal():
            self.fatal = error.str()

    def own_fault(self, error: Any) -> bool:
        """Whether a broker refused a message for what it is, so that it would do so again."""
        codes = self._kafka.KafkaError
        return error.code() in (
            codes.MSG_SIZE_TOO_LARGE,
            codes.INVALID_MSG_SIZE,
            codes.RECORD_LIST_TOO_LARGE,
            codes.INVALID_TIMESTAMP,
            codes.INVALID_RECORD,
        )


def headers_key(headers: Headers) -> bytes:
    """The key of a message for all partitions, where there must be one: what kind it is, and of which feed."""
    found = dict(headers)
    return b"%s:%s" % (found["operation"].lower(), found["feed"])
