"""Kafka feeds without a broker: the record of progress, and messages that go to every partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

import headrace.feeds.kafka_progress as progress_module
import headrace.feeds.kafka_transactions as module
from headrace.feeds.batch import Mark
from headrace.feeds.kafka_progress import Progress
from headrace.feeds.kafka_sending import PROGRESS, Sending
from headrace.feeds.kafka_topic import Topic
from headrace.feeds.sink import SinkEnded
from tests.feed_batches import batch_of, target_of


class Producer:
    """A client of a broker that does what it is asked, and notes the ends of transactions."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def init_transactions(self, *_: Any) -> None:
        """Begin."""

    def begin_transaction(self) -> None:
        """Begin."""

    def commit_transaction(self, *_: Any) -> None:
        self.ended.append("commit")

    def abort_transaction(self, *_: Any) -> None:
        self.ended.append("abort")


class RefusingProgress:
    """Messages to a broker that refuses the record of progress, and nothing else."""

    made: list[RefusingProgress]
    refuses = False
    own_fault = Sending.own_fault
    _kafka = confluent_kafka

    def __init__(self, *_: Any) -> None:
        self.producer, self.failed, self.fatal = Producer(), dict[int, Any](), ""
        self.made.append(self)

    def send(self, *_: Any) -> None:
        """Accept events."""

    def send_record(self, *_: Any) -> None:
        if self.refuses:
            self.failed[PROGRESS] = confluent_kafka.KafkaError(confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE)

    def wait(self) -> None:
        """All is reported at once."""

    def close(self) -> None:
        """Nothing is open."""


def test_a_refused_record_of_progress_ends_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    RefusingProgress.made = []
    monkeypatch.setattr(module, "Sending", RefusingProgress)
    monkeypatch.setattr(module, "read_progress", lambda *_: None)
    topic = Topic("t", 1, 10**6, compacted=False)
    delivery = module.KafkaTransactions(target_of("b:9092/t", fence=1), topic, "t.progress", tombstones=False)
    monkeypatch.setattr(RefusingProgress, "refuses", True)
    with pytest.raises(SinkEnded, match=r"raise max.message.bytes of that topic"):
        delivery.deliver(batch_of([("INSERT", {"id": 1, "name": "a", "price": None})]))
    assert RefusingProgress.made[-1].producer.ended[-1] == "abort"
    assert delivery.known_mark() is None


def test_missing_events_take_little_room_in_the_record() -> None:
    missing = frozenset([2, *range(10, 200_000), 300_000])
    progress = Progress(3, "x", Mark(7, None, 1), 400_000, missing)
    content = progress.to_bytes("f")
    assert len(content) < 200
    assert progress_module._progress(content) == progress  # pyright: ignore[reportPrivateUsage]
    earlier = b'{"feed": "f", "fence": 3, "transaction": "x", "mark": [7, 0, 1], "told": 9, "missing": [2, 5, 6]}'
    found = progress_module._progress(earlier)  # pyright: ignore[reportPrivateUsage]
    assert found == Progress(3, "x", Mark(7, None, 1), 9, frozenset([2, 5, 6]))


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        (Topic("t", 2, 10**6, compacted=False), None),
        (Topic("t", 2, 10**6, compacted=True), b"resolved:f"),
        (Topic("t", 2, 10**6, compacted=False, is_known=False), b"resolved:f"),
    ],
)
def test_a_mark_has_a_key_wherever_the_broker_may_want_one(topic: Topic, key: bytes | None) -> None:
    sent: list[Any] = []
    sending: Any = SimpleNamespace(_topic=topic, _produce=lambda *parts, **_: sent.append(parts))
    Sending.send_to_all(sending, b"{}", [("operation", b"RESOLVED"), ("feed", b"f")], lambda *_: None)
    assert sent == [("t", b"{}", key, 0), ("t", b"{}", key, 1)]
