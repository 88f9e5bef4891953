"""Feeds whose sinks are unavailable, refuse events, or limit requests; without Spark."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FeedError, FeedUnavailable
from headrace.feeds import define, runner
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.blocked import Blocked
from headrace.feeds.retry import Retry, Stopped
from headrace.feeds.running import Feeds
from headrace.feeds.sink import EventsRefused, SinkUnavailable
from tests.bare_home import BareHome
from tests.costs import cost_of
from tests.feed_batches import batch_of
from tests.feed_receiver import Door, Receiver, create
from tests.spark.test_changefeeds import feed
from tests.unit.test_feed_delivery import COLUMNS
from tests.waiting import PATIENCE, until
from tests.webhook_receivers import OK, Received, receiving, status
from tests.webhook_receivers import Receiver as HttpReceiver

LOCAL = "allow_insecure = true, allow_private = true"


@pytest.fixture
def table(tmp_path: Path) -> Iterator[BareHome]:
    home = BareHome(tmp_path / "home")
    home.create_table("t", COLUMNS, ("id",))
    yield home
    home.close()


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    monkeypatch.setattr("headrace.feeds.blocked._FIRST_PAUSE", 0.01)
    with receiving() as one:
        yield one


def send_to(home: BareHome, hooks: HttpReceiver, more: str = "") -> None:
    location = f"http://127.0.0.1:{hooks.port}/"
    home.execute(
        f"CREATE CHANGEFEED f FOR TABLE t INTO WEBHOOK '{location}' WITH ({LOCAL}, flush_interval_ms = 5{more})"
    )


def put(home: BareHome, *rows: tuple[int, int]) -> None:
    home.apply({"t": [{"insert": {"id": key, "n": n}} for key, n in rows]})


def is_bad(request: Received) -> bool:
    return any(one["new_row"]["n"] == 13 for one in request.events)


def test_a_delivery_stays_open_while_its_sink_is_unavailable(table: BareHome, receiver: Receiver) -> None:
    receiver.failing = 0.5
    create(table, ", batch_size = 2, resolved = true")
    for step in range(30):
        put(table, (step % 7, step))
    until(lambda: feed(table)["lag"] == 0)
    assert len(receiver.targets) == 1
    assert table.feeds.totals["f"]["retries"] > 0
    assert feed(table)["error"] is None


def test_a_rate_limit_and_a_bad_event_do_not_stop_a_feed(table: BareHome, hooks: HttpReceiver) -> None:
    """Every second request is one too many: a search for the bad event continues where the limit stopped it."""
    asked: list[int] = []

    def judge(request: Received) -> bytes:
        asked.append(len(request.events))
        if len(asked) % 2:
            return status(429, "Retry-After: 0")
        return status(422, body=b"n is bad") if is_bad(request) else OK

    hooks.judge = judge
    put(table, *((key, 13 if key == 5 else 1) for key in range(10)))
    send_to(table, hooks, ", max_retries = 0")
    until(lambda: feed(table)["last_sequence"] == 10)
    assert len(hooks.taken) == 9
    assert feed(table)["parked"] == 1


def test_the_id_of_a_message_is_the_same_in_each_attempt(table: BareHome, hooks: HttpReceiver) -> None:
    def judge(_: Received) -> bytes:
        if len(hooks.received) == 1:
            # The receiver has taken the event, and its answer is an error; meanwhile another event comes.
            put(table, (2, 1))
            return status(500)
        return OK

    put(table, (1, 1))
    hooks.judge = judge
    send_to(table, hooks, ", initial_scan = 'no'")
    put(table, (1, 2))
    until(lambda: feed(table)["last_sequence"] == 2)
    sent = [(one.headers["webhook-id"], [event["sequence"] for event in one.events]) for one in hooks.received]
    assert sent[0] == sent[1]
    assert [numbers for _, numbers in sent] == [[1], [1], [2]]


def test_a_sink_can_only_lengthen_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("headrace.feeds.retry.pause_after", lambda attempts: float(attempts))
    stopped = threading.Event()
    monkeypatch.setattr(stopped, "wait", lambda _: False)
    retry = Retry(stopped, lambda _, pause: pauses.append(pause), lambda: None)
    for asked in (0.0, None, 2.0, 40.0, 99_999.0):
        retry.pause(SinkUnavailable("away", asked))
    assert pauses[:3] == [1, 2, 3]
    assert 40 <= pauses[3] <= 44
    assert 3_600 <= pauses[4] <= 3_960
    with pytest.raises(ValueError, match="permanent"):
        retry.pause(ValueError("permanent"))
    stopped.set()
    with pytest.raises(Stopped):
        retry.pause(SinkUnavailable("away"))


@pytest.mark.parametrize("size", [100, 7])
def test_bad_rows_at_the_head_are_parked_and_the_others_arrive(table: BareHome, hooks: HttpReceiver, size: int) -> None:
    hooks.judge = lambda request: status(422) if is_bad(request) else OK
    send_to(table, hooks, f", max_retries = 1, batch_size = {size}")
    put(table, *((key, 13) for key in range(8)))
    put(table, *((key, 1) for key in range(100, 120)))
    until(lambda: feed(table)["last_sequence"] == 28 and feed(table)["parked"] == 8)
    assert len(hooks.taken) == 20


def test_a_sink_that_refuses_everything_stops_its_feed_and_nothing_is_parked(
    table: BareHome, receiver: Receiver
) -> None:
    receiver.refuses = lambda _: 'null value in column "region"'
    create(table, ", max_retries = 1")
    put(table, *((key, key) for key in range(300)))
    epoch = table.epoch
    until(lambda: feed(table)["state"] == "Error")
    assert (
        'the last 100 events, so the fault is not in single rows: null value in column "region"' in feed(table)["error"]
    )
    assert feed(table)["parked"] == 0
    # The state of the feed is all that was committed.
    assert table.epoch == epoch + 1
    receiver.refuses = lambda _: None
    table.execute("RESUME CHANGEFEED f")
    until(lambda: len(receiver.events()) == 300)


def test_events_that_are_parked_together_make_one_epoch(table: BareHome, receiver: Receiver) -> None:
    receiver.refuses = lambda event: "bad" if event["new_row"]["id"] < 15 else None
    create(table, ", max_retries = 0")
    until(lambda: feed(table)["lag"] == 0)
    put(table, *((key, 1) for key in range(100)))
    epoch = table.epoch
    until(lambda: feed(table)["parked"] == 15)
    assert table.epoch == epoch + 1


def test_a_receiver_that_refuses_resolved_marks_stops_its_feed_with_the_reason(
    table: BareHome, hooks: HttpReceiver
) -> None:
    hooks.judge = lambda request: status(422) if "resolved" in request.events[0] else OK
    send_to(table, hooks, ", resolved = true")
    put(table, (1, 1))
    until(lambda: feed(table)["state"] == "Error")
    assert "refuses resolved marks" in feed(table)["error"]


def test_what_was_committed_before_an_alteration_is_delivered_without_a_scan(
    table: BareHome, receiver: Receiver
) -> None:
    create(table, ", on_reset = 'ignore'")
    put(table, (1, 1))
    until(lambda: feed(table)["lag"] == 0)
    receiver.down = True
    put(table, (2, 2))
    put(table, (3, 3))
    until(lambda: feed(table)["error"])
    table.execute("ALTER TABLE t RENAME COLUMN n TO m")
    table.apply({"t": [{"insert": {"id": 4, "m": 4}}]})
    table.execute("PAUSE CHANGEFEED f")
    receiver.down = False
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["lag"] == 0)
    delivered = [(one["operation"], (one["new_row"] or {}).get("id")) for one in receiver.events()]
    assert delivered == [("INSERT", 1), ("RESET", None), ("INSERT", 2), ("INSERT", 3), ("INSERT", 4)]
    assert receiver.events()[-1]["new_row"] == {"id": 4, "m": 4}
    # The position of the alteration is kept: a restart emits no second RESET.
    table.execute("PAUSE CHANGEFEED f; RESUME CHANGEFEED f")
    table.apply({"t": [{"insert": {"id": 5, "m": 5}}]})
    until(lambda: feed(table)["lag"] == 0)
    assert [one["operation"] for one in receiver.events()[5:]] == ["INSERT"]


def test_a_replay_that_the_sink_interrupts_keeps_what_arrived(
    table: BareHome, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(define, "_REPLAYED_TOGETHER", 4)
    receiver.refuses = lambda event: "no" if event["new_row"]["id"] < 10 else None
    create(table, ", max_retries = 0")
    put(table, *((key, key) for key in range(20)))
    until(lambda: feed(table)["parked"] == 10)
    receiver.refuses = lambda event: None
    before = len(receiver.events())
    replay = Feeds.replay

    def interrupted(self: Feeds, name: str, row: Any) -> str | None:
        receiver.down = len(receiver.events()) - before == 6
        return replay(self, name, row)

    monkeypatch.setattr(Feeds, "replay", interrupted)
    with pytest.raises(FeedUnavailable) as failed:
        table.execute("REPLAY PARKED EVENTS")
    assert failed.value.transient
    assert table.query("SELECT * FROM parked_events").num_rows == 4
    receiver.down = False
    monkeypatch.setattr(Feeds, "replay", replay)
    assert table.execute("REPLAY PARKED EVENTS").applied == {"parked_events": 4}
    assert len(receiver.events()) - before == 10
    assert table.query("SELECT * FROM parked_events").num_rows == 0


def test_a_feed_that_is_paused_takes_no_replay_now(table: BareHome, receiver: Receiver) -> None:
    receiver.refuses = lambda event: "no" if event["new_row"]["id"] == 1 else None
    create(table, ", max_retries = 0")
    put(table, *((key, key) for key in range(3)))
    until(lambda: feed(table)["parked"] == 1)
    table.execute("PAUSE CHANGEFEED f")
    with pytest.raises(FeedUnavailable, match="is not running"):
        table.execute("REPLAY PARKED EVENTS")


def test_the_log_is_kept_for_a_feed_whose_sink_was_never_reached(table: BareHome, receiver: Receiver) -> None:
    receiver.down, receiver.retry_after = True, 0.0
    begins_after = table.epoch
    create(table, ", initial_scan = 'no'")
    for key in range(5):
        put(table, (key, key))
    until(lambda: feed(table)["error"])
    protected = table.readers.protected(table.epoch)
    assert protected is not None
    assert protected <= begins_after + 1


def test_a_filter_is_compiled_once_for_an_open_sink(
    table: BareHome, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[int] = []

    class CountingFilter:
        def __init__(self, *_: Any) -> None:
            pass

        def compile(self) -> None:
            compiled.append(1)

        def close(self) -> None:
            pass

    monkeypatch.setattr(runner, "RowFilter", CountingFilter)
    monkeypatch.setattr(define, "RowFilter", CountingFilter)
    receiver.down = True
    create(table, ", filter = 'n > 0'")
    until(lambda: table.feeds.totals["f"]["retries"] >= 5)
    # For the statement alone: the sink was not opened yet.
    assert len(compiled) == 1


def test_a_slow_name_server_holds_up_no_epoch(table: BareHome, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = threading.Event(), threading.Event()

    def resolve(*_: Any, **__: Any) -> Any:
        asked.set()
        answer.wait(60)
        return [(0, 0, 0, "", ("93.184.216.34", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("headrace.feeds.webhook._LOOK_SECONDS", 60.0)
    created = threading.Thread(
        target=lambda: table.execute("CREATE CHANGEFEED f FOR TABLE t INTO WEBHOOK 'https://hooks.example/'")
    )
    created.start()
    assert asked.wait(60)
    # While the name server is asked, an epoch is committed.
    put(table, (1, 1))
    answer.set()
    created.join()
    monkeypatch.undo()
    assert feed(table)["name"] == "f"


def test_what_waits_for_a_refused_event_costs_linear_time() -> None:
    def let_go(count: int) -> None:
        old = {"id": 1, "name": "o", "price": None}
        rows: list[Any] = [("UPDATE", {**old, "name": f"n{one}"}, old) for one in range(count + 1)]
        batch = batch_of(rows, epochs=list(range(1, count + 2)))
        blocked = Blocked(max_retries=0)
        blocked.refuse(batch, EventsRefused({0: "no"}, frozenset(range(1, count + 1))))
        blocked.retry(lambda _: None, lambda _: None)
        assert blocked.first_mark() is None

    assert cost_of(lambda: let_go(8_000)) < 40 * cost_of(lambda: let_go(1_000))


def test_waiting_events_are_delivered_together(table: BareHome, receiver: Receiver) -> None:
    receiver.refuses = lambda event: "no" if event["new_row"]["n"] == 13 else None
    create(table, ", max_retries = 1000")
    put(table, (1, 13), *((key, 0) for key in range(2, 30)))
    until(lambda: feed(table)["waiting"] == 1)
    receiver.refuses = lambda event: None
    until(lambda: feed(table)["lag"] == 0)
    assert {json.dumps(one["key"]) for one in receiver.events()} == {json.dumps({"id": key}) for key in range(1, 30)}


def test_a_batch_for_a_table_ends_with_an_epoch(table: BareHome, receiver: Receiver, monkeypatch: Any) -> None:
    monkeypatch.setattr(Door, "keeps_epochs_whole", True)
    create(table, ", batch_size = 10, initial_scan = 'no'")
    table.execute("PAUSE CHANGEFEED f")
    for size in (6, 7, 40, 3, 300):
        put(table, *((key, size) for key in range(size)))
    receiver.batches = 0
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["lag"] == 0)
    # 6 and 7, 40 and 3 events together; 300 are too many to wait for.
    assert receiver.sizes[:3] == [13, 40, 10]
    assert receiver.marks[0].event is None
    assert receiver.marks[1].event is None
    assert receiver.marks[2].event == 7


def test_a_batch_is_bounded_in_bytes(table: BareHome, receiver: Receiver, monkeypatch: Any) -> None:
    monkeypatch.setattr("headrace.feeds.delivery_loop._BATCH_BYTES", 200)
    create(table, ", batch_size = 1000")
    put(table, *((key, 1) for key in range(500)))
    until(lambda: feed(table)["lag"] == 0)
    assert max(receiver.sizes) < 30


def test_positions_are_ordered_as_events_are() -> None:
    marks = [Mark(4, 2, 9), Mark(4, None, 9), Mark(5, None, 9), Mark(5, 0, 10), Mark(5, 1, 10), Mark(3, None, 11)]
    assert sorted({*marks}) == marks
    assert Mark.stored(4, Mark(4, None, 9).stored_event, 9) == Mark(4, None, 9)


def test_a_sink_that_opens_and_then_fails_is_opened_again_with_growing_pauses(
    table: BareHome, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def pause_after(number: int) -> float:
        attempts.append(number)
        return 0.01

    def fail(_: Door) -> None:
        raise SinkUnavailable("it answers, and does not know where the feed is")

    monkeypatch.setattr("headrace.feeds.retry.pause_after", pause_after)
    monkeypatch.setattr(Door, "known_mark", fail)
    put(table, (1, 1))
    create(table)
    until(lambda: len(attempts) >= 5)
    assert attempts[:5] == [1, 2, 3, 4, 5]
    monkeypatch.undo()


def test_a_replay_under_way_is_waited_for_and_its_errors_hide_secrets(
    table: BareHome, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEED_PASSWORD", "hunter44")
    receiver.refuses = lambda event: "never" if event["new_row"]["n"] == 13 else None
    create(table, ", max_retries = 0, password = 'env:FEED_PASSWORD'")
    put(table, (1, 1), (2, 1), (3, 13))
    until(lambda: feed(table)["parked"] == 1)
    receiver.refuses = lambda _: None
    begun = threading.Event()
    deliver = Door.deliver

    def slow(door: Door, batch: Batch) -> None:
        begun.set()
        time.sleep(0.5)
        deliver(door, batch)

    # REPLAY stops waiting while the delivery is under way.
    monkeypatch.setattr(Door, "deliver", slow)
    with monkeypatch.context() as impatient:
        impatient.setattr("headrace.feeds.runner.wait", lambda *_: begun.wait(PATIENCE))
        table.execute("REPLAY PARKED EVENTS")
    assert len(receiver.events()) == 3
    assert table.query("SELECT * FROM parked_events").num_rows == 0

    monkeypatch.setattr(Door, "deliver", deliver)
    receiver.refuses = lambda event: "never" if event["new_row"]["n"] == 13 else None
    put(table, (4, 13))
    until(lambda: table.query("SELECT * FROM parked_events").num_rows == 1)

    def fail(door: Door, _: object) -> None:
        raise RuntimeError("no way with hunter44")

    monkeypatch.setattr(Door, "deliver", fail)
    with pytest.raises(FeedError) as failed:
        table.execute("REPLAY PARKED EVENTS")
    assert "hunter44" not in failed.value.in_a_line()
    assert "no way with env:FEED_PASSWORD" in failed.value.in_a_line()
