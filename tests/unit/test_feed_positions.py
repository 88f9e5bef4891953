"""Where feeds are when others are not where they were: slow sinks, older copies, dropped relations; without Spark."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FeedUnavailable
from headrace.feeds.batch import Batch, Mark
from headrace.feeds.delivery_loop import DeliveryLoop
from headrace.feeds.progress import Progress, ProgressFiles
from headrace.feeds.sink import SinkEnded, SinkUnavailable, Target
from headrace.feeds.sinks import SINKS
from headrace.statements.create import drop_relation
from tests.bare_home import BareHome
from tests.feed_receiver import MarkingDoor, MarkingReceiver
from tests.spark.test_changefeeds import events, feed
from tests.unit.test_feed_delivery import COLUMNS, create, numbers
from tests.waiting import until


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> MarkingReceiver:
    one = MarkingReceiver()
    monkeypatch.setitem(SINKS, "webhook", one)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr("headrace.feeds.blocked._FIRST_PAUSE", 0.01)
    return one


@pytest.fixture
def table(tmp_path: Path, receiver: MarkingReceiver) -> Iterator[BareHome]:
    home = BareHome(tmp_path / "home")
    home.create_table("t", COLUMNS, ("id",))
    yield home
    home.close()


def put(home: BareHome, key: int, n: int = 0) -> None:
    home.apply({"t": [{"insert": {"id": key, "n": n}}]})


def tell_one(home: BareHome) -> None:
    """A feed that has told one event."""
    create(home)
    put(home, 0)
    until(lambda: feed(home)["last_sequence"] == 1)


def lose_position(home: BareHome) -> None:
    """Between a pause and what comes after it, all that the home knows of where the feed is goes away."""
    home.execute("PAUSE CHANGEFEED f")
    home.feeds.wait_for_stopped()
    put(home, 3)
    shutil.rmtree(home.core.path / "feeds" / home.core.catalog.feeds["f"].id)
    home.execute("RESUME CHANGEFEED f")
    until(lambda: feed(home)["lag"] == 0)


def kept(home: BareHome) -> Progress:
    found = ProgressFiles(home.core.path, home.core.catalog.feeds["f"].id).read()
    assert found is not None
    return found


def test_a_batch_that_takes_longer_than_a_pause_does_not_take_the_position_back(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.feeds.runner._JOIN_SECONDS", 0.01)
    create(table)
    put(table, 0)
    until(lambda: numbers(receiver) == [1])
    free = threading.Event()
    held: list[int] = []
    deliver = MarkingDoor.deliver

    def stuck(self: MarkingDoor, batch: Batch) -> None:
        if batch.sequences[0] == 2 and not held:
            held.append(2)
            free.wait(90)
        deliver(self, batch)

    monkeypatch.setattr(MarkingDoor, "deliver", stuck)
    put(table, 1)
    until(lambda: bool(held))
    table.execute("PAUSE CHANGEFEED f")
    table.execute("RESUME CHANGEFEED f; PAUSE CHANGEFEED f; RESUME CHANGEFEED f")
    put(table, 1, 1)
    until(lambda: "batch that was under way" in (feed(table)["error"] or ""))
    # Nothing of the same feed overtakes it.
    assert numbers(receiver) == [1]
    free.set()
    until(lambda: feed(table)["last_sequence"] == 3)
    assert numbers(receiver) == [1, 2, 3]
    until(lambda: kept(table).mark.sequence == 3)
    assert threading.active_count() < 50


def test_a_sink_that_was_put_back_to_an_older_copy_is_noticed(
    table: BareHome, receiver: MarkingReceiver, tmp_path: Path
) -> None:
    tell_one(table)
    copy = receiver.mark
    put(table, 1)
    until(lambda: feed(table)["last_sequence"] == 2)
    table.execute("PAUSE CHANGEFEED f")
    receiver.mark = copy
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["state"] == "Error")
    assert "knows the feed up to event 1, and has confirmed event 2" in feed(table)["error"]
    assert "RESYNC CHANGEFEED f" in feed(table)["error"]
    put(table, 2)
    table.execute("RESYNC CHANGEFEED f")
    until(lambda: feed(table)["last_sequence"] == 6)
    assert [one["operation"] for one in receiver.events()[2:]] == ["RESET", "INSERT", "INSERT", "INSERT"]
    # One that has lost all says so, too, before there is anything new to tell.
    table.execute("PAUSE CHANGEFEED f")
    receiver.mark = None
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["state"] == "Error")
    assert "knows the feed not at all" in feed(table)["error"]


def test_a_sink_that_comes_back_as_an_older_copy_is_noticed(table: BareHome, receiver: MarkingReceiver) -> None:
    create(table)
    for key in range(3):
        put(table, key)
    until(lambda: feed(table)["last_sequence"] == 3)
    receiver.down = True
    put(table, 3)
    until(lambda: feed(table)["error"])
    receiver.mark = Mark(1, None, 1)
    receiver.down = False
    until(lambda: feed(table)["state"] == "Error")
    assert "has confirmed event 3 before" in feed(table)["error"]


def test_an_older_copy_of_the_sink_is_noticed_though_another_request_succeeded_first(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPLAY fails once and is not retried; the sink that answers the next call is a copy from before."""
    poison = {"id": 13, "n": 0}
    receiver.refuses = lambda event: "never" if event["new_row"] == poison else None
    create(table, ", max_retries = 0")
    for key in (1, 2):
        put(table, key)
    until(lambda: feed(table)["lag"] == 0 and kept(table).confirmed == 2)
    put(table, 13)
    until(lambda: feed(table)["parked"] == 1)
    receiver.down = True
    with pytest.raises(FeedUnavailable):
        table.execute("REPLAY PARKED EVENTS")
    receiver.mark = Mark(1, None, 1)
    receiver.down = False
    put(table, 4)
    until(lambda: feed(table)["state"] == "Error")
    assert "has confirmed event 2 before" in feed(table)["error"]


def test_a_scan_that_ended_in_the_sink_is_not_continued(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the end of the scan in the sink and the record of it in the home."""
    put(table, 1)
    ends: list[Mark] = []

    def end_scan(_: MarkingDoor, mark: Mark) -> None:
        receiver.mark = mark
        ends.append(mark)
        if len(ends) == 1:
            raise SinkUnavailable("the connection was lost, though the scan has ended")

    monkeypatch.setattr(MarkingDoor, "end_scan", end_scan)
    monkeypatch.setattr("headrace.feeds.retry.pause_after", lambda _: 60.0)
    create(table)
    until(lambda: bool(ends))
    table.execute("PAUSE CHANGEFEED f")
    table.feeds.wait_for_stopped()
    put(table, 2)
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["last_sequence"] == 2)
    assert len(ends) == 1
    assert numbers(receiver) == [1, 2]


def test_a_home_that_was_put_back_to_an_older_copy_is_noticed(
    table: BareHome, receiver: MarkingReceiver, tmp_path: Path
) -> None:
    tell_one(table)
    table.close()
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    table = BareHome(tmp_path / "home")
    for key in range(1, 6):
        put(table, key)
    until(lambda: feed(table)["last_sequence"] == 6)
    table.close()
    again = BareHome(tmp_path / "copy")
    try:
        until(lambda: feed(again)["state"] == "Error")
        assert "the home was put back to an older copy" in feed(again)["error"]
        again.execute("RESYNC CHANGEFEED f")
        # Under numbers that the sink has never seen.
        until(lambda: feed(again)["last_sequence"] == 8)
        told = [(one["sequence"], one["operation"]) for one in receiver.events()]
        assert told[6:] == [(7, "RESET"), (8, "INSERT")]
    finally:
        again.close()


def test_a_dropped_relation_ends_its_feed_and_one_made_again_is_told_with_a_reset(
    table: BareHome, receiver: MarkingReceiver
) -> None:
    tell_one(table)
    table.loop.define(lambda: drop_relation(table.core, table.core.catalog.table("t")))
    until(lambda: feed(table)["state"] == "Error")
    assert "t was dropped" in feed(table)["error"]
    table.create_table("t", COLUMNS, ("id",))
    put(table, 7)
    # It is another relation: somebody says that the feed is to go on with it.
    assert feed(table)["state"] == "Error"
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["last_sequence"] == 3)
    assert [one["operation"] for one in receiver.events()] == ["INSERT", "RESET", "INSERT"]
    # A feed that was not at work meanwhile sees a relation that was replaced.
    table.execute("PAUSE CHANGEFEED f")
    table.replace_table("t", COLUMNS, ("id",))
    table.execute("RESUME CHANGEFEED f")
    until(lambda: [one["operation"] for one in receiver.events()][3:] == ["RESET"])


def test_a_sink_that_refuses_a_reset_is_told_of_by_its_own_words(table: BareHome, receiver: MarkingReceiver) -> None:
    tell_one(table)
    receiver.refuses = lambda event: "unknown operation" if event["operation"] == "RESET" else None
    table.execute("RESYNC CHANGEFEED f")
    until(lambda: feed(table)["state"] == "Error")
    assert feed(table)["error"] == "the sink refuses the RESET: unknown operation"
    receiver.refuses = lambda _: None
    table.execute("RESUME CHANGEFEED f")
    until(lambda: [one["operation"] for one in receiver.events()][1:] == ["RESET", "INSERT"])


def test_a_scan_whose_rows_are_refused_holds_no_more_of_them_than_any_feed(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.feeds.blocked.pause_after", lambda _: 60.0)
    monkeypatch.setattr("headrace.feeds.delivery_loop._LEAST_HELD", 40)
    table.apply({"t": [{"insert": {"id": key, "n": 0}} for key in range(500)]})
    # Half of them is accepted: a sink that refuses nearly everything stops its feed.
    receiver.refuses = lambda event: "never" if event["new_row"]["id"] % 2 else None
    create(table, ", batch_size = 4")
    until(lambda: feed(table)["waiting"] >= 40)
    time.sleep(0.5)
    assert feed(table)["waiting"] < 44


def test_a_feed_that_waits_for_refused_events_before_a_reset_sleeps(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.feeds.blocked.pause_after", lambda _: 60.0)
    looks: list[DeliveryLoop] = []
    look = DeliveryLoop._look  # pyright: ignore[reportPrivateUsage]

    def counted(telling: DeliveryLoop) -> None:
        looks.append(telling)
        look(telling)

    receiver.refuses = lambda event: "never" if event["new_row"] == {"id": 13, "n": 0} else None
    create(table)
    put(table, 13)
    until(lambda: feed(table)["waiting"] == 1)
    table.execute("ALTER TABLE t RENAME COLUMN n TO m")
    time.sleep(0.2)
    monkeypatch.setattr("headrace.feeds.delivery_loop._LOOK_SECONDS", 60.0)
    monkeypatch.setattr(DeliveryLoop, "_look", counted)
    table.apply({"t": [{"insert": {"id": 1, "m": 1}}]})
    time.sleep(1.0)
    assert len(looks) < 10


def test_a_feed_that_waits_for_a_refused_event_does_not_look_for_resolved_marks(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.feeds.blocked.pause_after", lambda _: 60.0)
    receiver.refuses = lambda event: "never" if event["new_row"]["id"] == 13 else None
    create(table, ", resolved = '10ms'")
    put(table, 13)
    until(lambda: feed(table)["waiting"] == 1)
    looks: list[DeliveryLoop] = []
    look = DeliveryLoop._look  # pyright: ignore[reportPrivateUsage]

    def counted(loop: DeliveryLoop) -> None:
        looks.append(loop)
        look(loop)

    monkeypatch.setattr(DeliveryLoop, "_look", counted)
    time.sleep(1.0)
    assert len(looks) < 50


def test_a_relation_that_is_altered_before_its_first_event_is_no_loss_of_a_table(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A sink that takes no RESET, and ends where sequences begin with a gap.
    monkeypatch.setattr(MarkingDoor, "tells_resets", False)
    deliver = MarkingDoor.deliver

    def without_gaps(self: MarkingDoor, batch: Batch) -> None:
        if receiver.mark is None and batch.sequences[0] > 1:
            raise SinkEnded("the table no longer has what was delivered")
        deliver(self, batch)

    monkeypatch.setattr(MarkingDoor, "deliver", without_gaps)
    put(table, 0)
    create(table, ", initial_scan = 'no', on_reset = 'ignore'")
    until(lambda: feed(table)["lag"] == 0)
    table.execute("ALTER TABLE t RENAME COLUMN n TO m")
    until(lambda: feed(table)["lag"] == 0)
    table.apply({"t": [{"insert": {"id": 1, "m": 1}}]})
    until(lambda: feed(table)["last_sequence"] == 1 or feed(table)["state"] == "Error")
    assert (feed(table)["state"], numbers(receiver)) == ("Running", [1])
    # Once it has an event, one that has lost it says so.
    table.execute("PAUSE CHANGEFEED f")
    receiver.mark = None
    table.execute("RESUME CHANGEFEED f")
    until(lambda: feed(table)["state"] == "Error")
    assert "knows the feed not at all" in feed(table)["error"]


def test_a_position_that_cannot_be_read_is_the_trouble_of_its_feed_alone(
    table: BareHome, receiver: MarkingReceiver, tmp_path: Path
) -> None:
    create(table)
    create(table, name="g")
    until(lambda: feed(table)["lag"] == 0)
    table.execute("PAUSE CHANGEFEED f")
    (tmp_path / "home" / "feeds" / table.core.catalog.feeds["f"].id / f"{99:020d}.json").write_text("{")
    assert feed(table, "g")["state"] == "Running"
    assert feed(table)["state"] == "Error"
    assert "cannot be read" in feed(table)["error"]


def test_no_secret_stands_in_the_log_of_what_nobody_foresaw(
    table: BareHome, receiver: MarkingReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FEED_PASSWORD", "hunter33")

    def fail(target: Target) -> Any:
        raise RuntimeError(f"no way with {target.options['password']}")

    monkeypatch.setattr(receiver, "open", fail)
    monkeypatch.setattr(receiver, "forget", fail)
    create(table, ", password = 'env:FEED_PASSWORD'")
    until(lambda: feed(table)["state"] == "Error")
    table.execute("DROP CHANGEFEED f")
    assert caplog.text.count("no way with env:FEED_PASSWORD") >= 3
    assert "Traceback" in caplog.text
    assert "hunter" not in caplog.text


def test_a_feed_whose_position_is_lost_goes_on_where_its_sink_is(table: BareHome, receiver: MarkingReceiver) -> None:
    create(table)
    for key in range(3):
        put(table, key)
    until(lambda: numbers(receiver) == [1, 2, 3])
    lose_position(table)
    assert numbers(receiver) == [1, 2, 3, 4]
    assert feed(table)["state"] == "Running"


def test_a_feed_whose_position_is_lost_with_a_sink_that_keeps_none_tells_all_again_and_loses_nothing(
    table: BareHome, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    table.execute(f"CREATE CHANGEFEED f FOR TABLE t INTO FILES '{out}' WITH (flush_interval_ms = 5)")
    for key in range(3):
        put(table, key)
    until(lambda: feed(table)["lag"] == 0)
    lose_position(table)
    told = [one["new_row"]["id"] for one in events(out)]
    assert set(told) == {0, 1, 2, 3}
