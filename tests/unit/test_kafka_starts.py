"""Where a Kafka source begins, and where it goes on after a restart: librdkafka over its own cluster in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace.capture.connector import Description
from headrace.capture.kafka import KAFKA, KafkaReading
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.errors import SourceUnavailable
from headrace.sources.runner import Runner
from tests.small_engine import Host
from tests.small_sources import runner_of, source_home
from tests.waiting import until

kafka: Any = pytest.importorskip("confluent_kafka")
Write = Callable[..., None]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> tuple[str, Write]:
    """The address of a broker, and what writes rows into a partition of its topic."""
    # This cluster answers nobody who asks for the ids of topics.
    monkeypatch.setattr("headrace.capture.kafka.ID_SECONDS", 0.1)
    producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 3})
    listed = producer.list_topics(timeout=90).brokers.values()

    def write(partition: int, *ids: int, topic: str = "shop") -> None:
        for one in ids:
            producer.produce(topic, b'{"insert": {"id": %d, "n": 1}}' % one, partition=partition)
        assert producer.flush(90) == 0

    return ",".join(f"{one.host}:{one.port}" for one in listed), write


def runner_over(host: Host, location: str, **options: Any) -> Runner:
    source = Source("s", "t", "kafka", location, "", options, state="Running")
    host.catalog = replace(host.catalog, sources={"s": source})
    return runner_of(Loop(host), source, KAFKA)


def ids(host: Host) -> Sequence[int]:
    return sorted(row[0] for row in host.holds("t"))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_topic_that_is_not_there_is_told_and_read_once_it_is(
    brokers: tuple[str, Write], capfd: pytest.CaptureFixture[str]
) -> None:
    servers, write = brokers
    write(0, 1)
    host = source_home()
    runner = runner_over(host, f"{servers}/not_there")
    runner.start()
    until(lambda: runner.status.warning is not None)
    assert runner.status.warning == "there is no topic not_there yet"
    assert runner.status.state == "Running"
    write(0, 7, topic="not_there")
    until(lambda: ids(host) == [7])
    until(lambda: runner.status.warning is None)
    runner.stop()
    with pytest.raises(SourceUnavailable):
        KafkaReading(Description("s", "127.0.0.1:1/shop", {}), {})
    # What the library says of the broker that is not there is for the log.
    assert "127.0.0.1:1" not in capfd.readouterr().err


@pytest.mark.parametrize("start", ["latest", "offset:3", "2100-01-01 00:00:00"])
def test_what_comes_after_the_start_comes_once_and_nothing_before_it_over_restarts(
    brokers: tuple[str, Write], start: str
) -> None:
    servers, write = brokers
    for partition in range(4):
        write(partition, 1, 2, 3)
    host = source_home()
    first = runner_over(host, f"{servers}/shop", start=start)
    first.start()
    until(lambda: len(first.status.progress.position) == 4)
    first.stop()
    # It is not read now; what comes meanwhile is no less after the start for that.
    write(0, 10)
    second = runner_over(host, f"{servers}/shop", start=start)
    second.start()
    until(lambda: 10 in ids(host))
    second.stop()
    write(1, 11)
    third = runner_over(host, f"{servers}/shop", start=start)
    third.start()
    until(lambda: 11 in ids(host))
    third.stop()
    assert list(ids(host)) == [10, 11]


def test_a_topic_that_comes_later_is_read_from_its_beginning(
    brokers: tuple[str, Write], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.capture.kafka._LOOK_SECONDS", 0.0)
    servers, write = brokers
    reading = KafkaReading(Description("s", f"{servers}/later*", {"start": "latest"}), {})
    try:
        write(0, 1, 2, topic="later")
        found: list[int] = []

        def both() -> bool:
            found.extend(one.record.offset for one in reading.poll(10, 0.2))
            return len(found) >= 2

        until(both)
        assert found == [0, 1]
    finally:
        reading.close()


def test_a_broker_that_does_not_answer_while_a_partition_is_looked_at_is_tried_again(
    brokers: tuple[str, Write], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, write = brokers
    write(0, 1)
    # No answer is as quick as that.
    monkeypatch.setattr("headrace.capture.kafka._ANSWER_SECONDS", 0.000001)
    monkeypatch.setattr(KafkaReading, "_partitions", lambda _: {("shop", 0)})
    with pytest.raises(SourceUnavailable, match="does not answer"):
        KafkaReading(Description("s", f"{servers}/shop"), {})


def test_a_partition_that_has_not_come_to_the_offset_is_read_from_its_end(brokers: tuple[str, Write]) -> None:
    servers, write = brokers
    write(0, 1, 2, 3)
    write(1, 4)
    reading = KafkaReading(Description("s", f"{servers}/shop", {"start": "offset:2"}), {})
    try:
        assert dict(reading.position) == {"shop:0": 2, "shop:1": 1, "shop:2": 0, "shop:3": 0}
    finally:
        reading.close()
