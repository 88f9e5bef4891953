"""The sink of Kafka alone, against a real broker: each event once and in order, whatever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from headrace.feeds.batch import Mark
from headrace.feeds.kafka import KafkaSink
from headrace.feeds.kafka_progress import Progress, read_progress
from headrace.feeds.sink import EventsRefused, SinkUnavailable
from tests.ending_with_us import ending_with_us
from tests.kafka_reading import committed
from tests.part_batches import batch, inserts, reset, target, with_gaps
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from headrace.local import Servers

SINK = KafkaSink()


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """A broker of these tests alone: they kill it."""
    from headrace import local

    with local.start(connect=False, postgres=False) as started:
        yield started


def sequences(messages: list[Any]) -> list[int]:
    return [json.loads(one.value())["sequence"] for one in messages if one.value() is not None]


def in_order_per_key(messages: list[Any]) -> bool:
    last: dict[bytes, int] = {}
    for message in messages:
        number = json.loads(message.value())["sequence"]
        if last.get(message.key(), 0) >= number:
            return False
        last[message.key()] = number
    return True


def delivered(delivery: Any, one: Any) -> int:
    """Deliver a batch as a runner does, again and again; how often it was not taken."""
    failures: list[str] = []
    until(lambda: is_taken(delivery, one, failures))
    return len(failures)


def is_taken(delivery: Any, one: Any, failures: list[str]) -> bool:
    """Deliver a batch once; False, and one failure more, if the sink was not available."""
    try:
        delivery.deliver(one)
    except SinkUnavailable as error:
        failures.append(str(error))
        return False
    return True


def test_an_event_is_a_message_with_key_and_headers(servers: Servers) -> None:
    told = target(f"{servers.bootstrap}/plain", create_topic=True, partitions=2, compression="zstd")
    SINK.check(told)
    delivery = SINK.open(told)
    assert delivery.known_mark() is None
    delivered(delivery, batch([("INSERT", 1, "ä"), ("UPDATE", 1, "b"), ("DELETE", 1, "b")], epoch=7))
    delivery.resolved(Mark(7, 3, 3), 1_772_366_400.0)
    delivered(delivery, reset(4))
    delivery.close()
    messages = committed(servers, "plain")
    events = [one for one in messages if one.key() is not None]
    assert {one.key() for one in events} == {b'parts:{"id":1}'}
    assert len({one.partition() for one in events}) == 1
    assert [json.loads(one.value())["operation"] for one in events] == ["INSERT", "UPDATE", "DELETE"]
    assert json.loads(events[0].value())["new_row"] == {"id": 1, "name": "ä"}
    assert dict(events[2].headers()) == {
        "sequence": b"3",
        "epoch": b"7",
        "operation": b"DELETE",
        "feed": b"parts_out",
        "content-type": b"application/json",
    }
    for_all = sorted((one.partition(), one.offset(), one.value()) for one in messages if one.key() is None)
    assert [one[0] for one in for_all] == [0, 0, 1, 1]
    resolved = {
        "resolved": 7,
        "sequence": 3,
        "timestamp": "2026-03-01T12:00:00+00:00",
        "table": "parts",
        "feed": "parts_out",
    }
    assert json.loads(for_all[0][2]) == json.loads(for_all[2][2]) == resolved
    assert json.loads(for_all[1][2])["operation"] == "RESET"


def test_a_topic_can_be_created_for_compaction(servers: Servers) -> None:
    told = target(
        f"{servers.bootstrap}/compacted", create_topic=True, partitions=1, replication=1, cleanup_policy="compact"
    )
    delivery = SINK.open(told)
    delivered(delivery, batch([("INSERT", 1, "a"), ("DELETE", 1, "a")]))
    delivery.resolved(Mark(2, 1, 2), 0.0)
    delivery.close()
    messages = committed(servers, "compacted")
    assert [one.key() for one in messages] == [*[b'parts:{"id":1}'] * 3, b"resolved:parts_out"]
    assert [one.value() is None for one in messages] == [False, False, True, False]
    SINK.open(told).close()  # A topic that is there already is taken as it is.


def test_a_message_that_is_too_large_is_refused_alone_and_holds_its_key(servers: Servers) -> None:
    servers.create_topic("small", config={"max.message.bytes": "2000"})
    for exactly_once in (False, True):
        name = "small" if not exactly_once else "small_exact"
        if exactly_once:
            servers.create_topic(name, config={"max.message.bytes": "2000"})
        delivery = SINK.open(target(f"{servers.bootstrap}/{name}", exactly_once=exactly_once))
        large = batch([("INSERT", 1, "a"), ("UPDATE", 1, "b" * 3_000), ("INSERT", 2, "c"), ("UPDATE", 1, "d")])
        with pytest.raises(EventsRefused) as refused:
            delivered(delivery, large)
        assert list(refused.value.refused) == [1]
        assert "max.message.bytes" in refused.value.refused[1]
        assert refused.value.held == {3}
        delivery.close()
        assert sequences(committed(servers, name)) == [1, 3]


def test_what_the_broker_alone_refuses_is_found_among_those_of_its_request(servers: Servers) -> None:
    for exactly_once in (False, True):
        name = f"judged_{exactly_once}"
        servers.create_topic(name, config={"max.message.bytes": "2000"})
        delivery: Any = SINK.open(target(f"{servers.bootstrap}/{name}", exactly_once=exactly_once, compression="none"))
        # As if the topic's settings were changed after they were read.
        delivery._topic = replace(delivery._topic, most_bytes=1_000_000)
        if delivery._sending is not None:
            delivery.close()
        large = batch([("INSERT", 1, "a"), ("INSERT", 3, "b" * 3_000), ("INSERT", 2, "c"), ("UPDATE", 3, "d")])
        with pytest.raises(EventsRefused) as refused:
            delivered(delivery, large)
        assert list(refused.value.refused) == [1]
        assert "refused" in refused.value.refused[1]
        assert refused.value.held == {3}
        delivery.close()
        assert [one for one in sequences(committed(servers, name)) if one != 4] == [1, 3], name
        if exactly_once:
            assert sequences(committed(servers, name)) == [1, 3]


@pytest.mark.slow
def test_a_broker_that_is_killed_makes_no_duplicates_and_no_disorder(servers: Servers) -> None:
    servers.create_topic("killed", partitions=3)
    plain = SINK.open(target(f"{servers.bootstrap}/killed"))
    servers.create_topic("killed_exact", partitions=3)
    exact = SINK.open(target(f"{servers.bootstrap}/killed_exact", exactly_once=True))
    batches = Counter[str](killed=0, killed_exact=0)
    failures: dict[str, list[str]] = {name: [] for name in batches}
    enough = threading.Event()

    def deliver(name: str, delivery: Any) -> None:
        while not enough.is_set():
            one = inserts(batches[name] * 500 + 1, 500, keys=97)
            until(partial(is_taken, delivery, one, failures[name]))
            batches[name] += 1

    with ThreadPoolExecutor(2) as threads:
        try:
            delivering = [threads.submit(deliver, *one) for one in (("killed", plain), ("killed_exact", exact))]
            until(lambda: all(batches.values()))
            servers.kill_broker()
            until(lambda: all(failures.values()))
            servers.kafka.start()
            before = batches.copy()
            until(lambda: all(batches[name] > before[name] + 3 for name in before))
        finally:
            enough.set()
        for one in delivering:
            one.result(PATIENCE)
    for name, delivery in (("killed", plain), ("killed_exact", exact)):
        delivery.close()
        messages = committed(servers, name)
        assert sorted(sequences(messages)) == list(range(1, batches[name] * 500 + 1)), name
        assert in_order_per_key(messages), name


CHILD = """
import signal, sys
from headrace.feeds.kafka import KafkaSink
from headrace.feeds.kafka_sending import Sending
from tests.e2e.test_feed_kafka_sink import delivered
from tests.part_batches import inserts, target
location, at = sys.argv[1], sys.argv[2]
if at == "before commit":
    real = Sending.wait
    def wait(self, *given):
        real(self, *given)
        if self.producer_batches > 3:
            print("now", flush=True); signal.pause()
    Sending.producer_batches = 0
    send = Sending.send
    def counted(self, *given):
        Sending.producer_batches += 1
        send(self, *given)
    Sending.send, Sending.wait = counted, wait
delivery = KafkaSink().open(target(location, exactly_once=True))
mark = delivery.known_mark()
for first in range(1 if mark is None else mark.sequence + 1, 3_001, 100):
    delivered(delivery, inserts(first, 100, keys=17))
    if at == "after commit" and first > 300:
        print("now", flush=True); signal.pause()
"""


@pytest.mark.slow
def test_a_producer_that_is_killed_around_its_commit_tells_each_event_once(servers: Servers) -> None:
    servers.create_topic("murdered", partitions=2)
    location = f"{servers.bootstrap}/murdered"
    for at in ("before commit", "after commit"):
        child = subprocess.Popen(
            ending_with_us([sys.executable, "-c", CHILD, location, at]), stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
        child.send_signal(signal.SIGKILL)
        child.wait(PATIENCE)
        child.stdout.close()
    delivery = SINK.open(target(location, exactly_once=True))
    mark = delivery.known_mark()
    assert mark is not None
    assert mark.sequence > 300
    for first in range(mark.sequence + 1, 3_001, 100):
        delivered(delivery, inserts(first, 100, keys=17))
    delivery.close()
    messages = committed(servers, "murdered")
    assert sorted(sequences(messages)) == list(range(1, 3_001))
    assert in_order_per_key(messages)
    assert len(committed(servers, "murdered", "read_uncommitted")) > 3_000  # What the first left is there, and aborted.


def test_a_second_owner_ends_the_first(servers: Servers) -> None:
    location = f"{servers.bootstrap}/owned"
    old = SINK.open(target(location, exactly_once=True, fence=1))
    delivered(old, inserts(1, 10))
    new = SINK.open(target(location, exactly_once=True, fence=2))
    assert new.known_mark() == inserts(1, 10).after
    for _ in range(2):
        with pytest.raises(SinkUnavailable):
            old.deliver(inserts(11, 10))
    assert delivered(new, inserts(11, 10)) == 0
    old.close()
    with pytest.raises(SinkUnavailable, match="another process"):
        SINK.open(target(location, exactly_once=True, fence=1))
    # It ended the transactions of the second for a moment; that takes them back.
    delivered(new, inserts(21, 10))
    new.close()
    assert sequences(committed(servers, "owned")) == list(range(1, 31))


def test_a_commit_whose_answer_was_lost_is_looked_up(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery: Any = SINK.open(target(f"{servers.bootstrap}/unanswered", exactly_once=True))
    delivered(delivery, inserts(1, 10))
    real = delivery._commit

    def lost(*given: Any) -> None:
        real(*given)
        delivery._in_doubt = (given[1], frozenset(given[2]))
        delivery._discard()
        raise SinkUnavailable("the answer was lost")

    monkeypatch.setattr(delivery, "_commit", lost)
    with pytest.raises(SinkUnavailable):
        delivery.deliver(inserts(11, 10))
    monkeypatch.undo()
    # The batch comes again, longer by now.
    delivered(delivery, inserts(11, 15))
    delivery.close()
    assert sequences(committed(servers, "unanswered")) == list(range(1, 26))


def test_a_batch_that_is_sent_again_is_not_committed_twice(servers: Servers) -> None:
    """The failure may lie behind the commit, as where the position cannot be recorded."""
    delivery: Any = SINK.open(target(f"{servers.bootstrap}/again", exactly_once=True))
    for one in (inserts(1, 10), inserts(1, 10), inserts(1, 15), inserts(1, 15)):
        delivered(delivery, one)
    delivery.close()
    assert sequences(committed(servers, "again")) == list(range(1, 16))


def test_events_that_wait_are_told_once_over_a_restart(servers: Servers) -> None:
    told = target(f"{servers.bootstrap}/waiting", exactly_once=True, create_topic=True, partitions=1)
    delivery: Any = SINK.open(told)
    delivery._topic = replace(delivery._topic, most_bytes=2_000)
    with pytest.raises(EventsRefused):
        delivered(delivery, batch([("INSERT", 1, "a"), ("INSERT", 2, "b" * 3_000), ("INSERT", 3, "c")]))
    # The runner holds 5, which has the key of 2; its mark stays before 2.
    before = Mark(2, None, 1)
    more = batch([("INSERT", 4, "d"), ("UPDATE", 2, "e"), ("INSERT", 6, "f")], 4)
    delivered(delivery, with_gaps(more, [5], before))
    delivery.close()
    again: Any = SINK.open(told)
    assert again.known_mark() == before
    # All after the mark comes again; the topic takes the large one by now.
    delivered(again, batch([("INSERT", 2, "b" * 3_000), ("INSERT", 3, "c"), ("INSERT", 4, "d")], 2))
    delivered(again, batch([("UPDATE", 2, "e"), ("INSERT", 6, "f")], 5))
    assert again.known_mark() == Mark(6, 1, 6)
    again.close()
    assert sequences(committed(servers, "waiting")) == [1, 3, 4, 6, 2, 5]


@pytest.mark.slow
def test_progress_is_forgotten_with_its_feed_and_found_far_back(servers: Servers) -> None:
    first = target(f"{servers.bootstrap}/shared", "one", exactly_once=True)
    other = target(f"{servers.bootstrap}/shared", "two", exactly_once=True)
    delivery = SINK.open(first)
    delivered(delivery, inserts(1, 5))
    delivery.close()
    delivery = SINK.open(other)
    for number in range(1, 300):
        delivered(delivery, inserts(number, 1))
    delivery.close()
    found = read_progress(first, "shared.progress")
    assert found is not None
    assert found.mark == Mark(5, 1, 5)
    SINK.forget(first)
    assert read_progress(first, "shared.progress") is None
    assert read_progress(other, "shared.progress") is not None


@pytest.mark.slow
def test_a_broker_that_is_not_there_is_said_to_be_so() -> None:
    with pytest.raises(SinkUnavailable, match=r"does not answer|could not be created"):
        SINK.open(target("127.0.0.1:1/topic"))


def test_numbers_between_those_of_a_batch_are_missing() -> None:
    progress = Progress(0, "a", Mark(3, 1, 3), 3).after("b", Mark(3, 1, 3), [4, 6, 7], [4, 7], [6])
    assert (progress.told, progress.missing) == (7, {5, 6})
    assert [number for number in range(1, 9) if progress.has_told(number)] == [4, 7]
    done = progress.after("c", Mark(7, 1, 7), [5, 6], [5, 6], [])
    assert (done.mark, done.missing) == (Mark(7, 1, 7), frozenset())
