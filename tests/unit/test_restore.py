"""A restored home neither delivers nor reads until somebody says so: the home that was backed up may still run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.catalog.catalog import Feed, Source, feed_definition, source_definition
from headrace.definitions.restored import PAUSED_BY_RESTORE, paused_by_restore
from headrace.feeds.sinks import SINKS
from headrace.offline import backup_home, restore_home
from tests.bare_home import BareHome
from tests.command_line import code_of
from tests.feed_receiver import MarkingReceiver, Receiver, create, numbers
from tests.small_homes import add_epoch, make_home, opened
from tests.waiting import until

COLUMNS = StructType([StructField("id", IntegerType(), False), StructField("n", IntegerType())])


@pytest.fixture
def copy(tmp_path: Path, receiver: Receiver) -> Path:
    """A backup of a home with a source, and with a changefeed that has delivered one event."""
    home = BareHome(tmp_path / "home")
    home.create_table("t", COLUMNS, ("id",))
    home.apply({"t": [{"insert": {"id": 1, "n": 1}}]})
    create(home)
    until(lambda: shown(home)["last_sequence"] == 1)
    home.close()
    # Of a broker that nobody runs: a home that read the source would fail to.
    ledger = opened(tmp_path / "home")
    ledger.commit(ledger.epoch + 1, ledger.heads()[-1].committed_at, {"sources": [source_definition(running("s"))]}, {})
    backup_home(tmp_path / "home", tmp_path / "copy")
    return tmp_path / "copy"


def shown(home: BareHome) -> dict[str, Any]:
    (feed,) = home.execute("SHOW CHANGEFEEDS").to_pylist()
    return feed


def test_a_restored_home_delivers_nothing_until_its_feed_is_resumed(
    copy: Path, tmp_path: Path, receiver: Receiver
) -> None:
    assert restore_home(copy, tmp_path / "again")["paused"] == {"sources": ["s"], "changefeeds": ["f"]}
    receiver.told.clear()
    for _ in range(2):
        # Also after the home was closed and opened again.
        home = BareHome(tmp_path / "again")
        home.apply({"t": [{"insert": {"id": 2, "n": 2}}]})
        assert (shown(home)["state"], shown(home)["error"]) == ("Paused", PAUSED_BY_RESTORE)
        assert home.feeds._runners.get("f") is None  # pyright: ignore[reportPrivateUsage]
        home.close()
    assert receiver.events() == []
    home = BareHome(tmp_path / "again")
    home.execute("RESUME CHANGEFEED f")
    until(lambda: numbers(receiver) == [2])
    assert (shown(home)["state"], shown(home)["error"]) == ("Running", None)
    home.close()


def test_a_restored_home_says_what_is_paused(copy: Path, tmp_path: Path) -> None:
    restore_home(copy, tmp_path / "again")
    home = BareHome(tmp_path / "again")
    (source,) = home.execute("SHOW SOURCES").to_pylist()
    assert (source["state"], source["error"]) == ("Paused", PAUSED_BY_RESTORE)
    assert paused_by_restore(home.core.catalog) == ["source s", "changefeed f"]
    home.execute("PAUSE SOURCE s; PAUSE CHANGEFEED f")
    (source,) = home.execute("SHOW SOURCES").to_pylist()
    assert (source["state"], source["error"]) == ("Paused", None)
    assert paused_by_restore(home.core.catalog) == []
    home.close()


def test_a_home_that_is_restored_live_goes_on_where_the_backup_was(
    copy: Path, tmp_path: Path, receiver: Receiver
) -> None:
    summary = restore_home(copy, tmp_path / "again", live=True)
    assert summary["paused"] == {"sources": [], "changefeeds": []}
    home = BareHome(tmp_path / "again")
    assert summary["epoch"] == home.epoch
    home.apply({"t": [{"insert": {"id": 2, "n": 2}}]})
    until(lambda: numbers(receiver) == [1, 2])
    assert shown(home)["error"] is None
    home.close()


def test_a_home_that_is_restored_live_outranks_the_home_that_was_backed_up(tmp_path: Path, receiver: Receiver) -> None:
    home = BareHome(tmp_path / "home")
    home.create_table("t", COLUMNS, ("id",))
    create(home)
    until(lambda: bool(receiver.targets))
    home.close()
    backup_home(tmp_path / "home", tmp_path / "copy")
    restore_home(tmp_path / "copy", tmp_path / "again", live=True)
    former = max(one.fence for one in receiver.targets)
    home = BareHome(tmp_path / "again")
    until(lambda: receiver.targets[-1].fence > former + 1000)
    assert receiver.targets[-1].fence <= time.time() + 1
    home.close()


@pytest.mark.parametrize("live", [False, True])
def test_a_restored_home_refuses_a_sink_that_is_further_than_its_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    """Though the restored home has reached the epoch by itself: what the sink has of that epoch is the other home's."""
    receiver = MarkingReceiver()
    monkeypatch.setitem(SINKS, "webhook", receiver)  # pyright: ignore[reportArgumentType]
    home = BareHome(tmp_path / "home")
    home.create_table("t", COLUMNS, ("id",))
    create(home)
    put(home, 1)
    until(lambda: shown(home)["last_sequence"] == 1)
    home.close()
    backup_home(tmp_path / "home", tmp_path / "copy")
    home = BareHome(tmp_path / "home")
    put(home, 2)
    until(lambda: shown(home)["last_sequence"] == 2)
    home.close()
    delivered = receiver.mark
    restore_home(tmp_path / "copy", tmp_path / "again", live=live)
    receiver.down = True
    again = BareHome(tmp_path / "again")
    for key in range(10, 20):
        put(again, key)
    receiver.down = False
    again.execute("PAUSE CHANGEFEED f; RESUME CHANGEFEED f")
    until(lambda: shown(again)["state"] == "Error")
    assert "the home was put back to an older copy" in shown(again)["error"]
    assert receiver.mark == delivered
    # After all rows were delivered again, the feed knows the sink.
    again.execute("RESYNC CHANGEFEED f")
    until(lambda: shown(again)["lag"] == 0)
    put(again, 30)
    until(lambda: shown(again)["lag"] == 0)
    again.execute("PAUSE CHANGEFEED f; RESUME CHANGEFEED f")
    put(again, 31)
    until(lambda: shown(again)["lag"] == 0 or shown(again)["state"] == "Error")
    assert shown(again)["state"] == "Running"
    again.close()


def put(home: BareHome, key: int) -> None:
    home.apply({"t": [{"insert": {"id": key, "n": 0}}]})


def running(name: str) -> Source:
    return Source(name, "t", "kafka", "localhost:9/t", "snapshot_and_follow", {}, state="Running")


def test_only_what_runs_is_paused(tmp_path: Path) -> None:
    ledger = make_home(tmp_path / "home", 2)
    feed = Feed("1", "f", "t", "files", "/tmp/f", {}, "2026-01-01T00:00:00+00:00", 2)
    done = Source("done", "t", "delta", "/tmp/t", "snapshot", {})
    paused = Source("paused", "t", "kafka", "localhost:9/t", "snapshot_and_follow", {}, state="Paused")
    failed = Feed("2", "failed", "t", "files", "/tmp/g", {}, feed.created, 2, state="Error", error="it is full")
    sources = [source_definition(one) for one in (running("gone"), running("s"), done, paused)]
    feeds = [feed_definition(one) for one in (feed, failed)]
    ledger.commit(3, opened(tmp_path / "home").heads()[-1].committed_at, {"sources": sources, "feeds": feeds}, {})
    ledger.commit(4, ledger.heads()[-1].committed_at, {"drop_sources": ["gone"]}, {})
    backup_home(tmp_path / "home", tmp_path / "copy")
    summary = restore_home(tmp_path / "copy", tmp_path / "again")
    assert (summary["epoch"], summary["paused"]) == (5, {"sources": ["s"], "changefeeds": ["f"]})
    head = opened(tmp_path / "again").heads()[-1]
    assert head.committed_at > ledger.heads()[-1].committed_at
    assert [Source(**one).error for one in head.content["sources"]] == [PAUSED_BY_RESTORE]
    # A backup of the restored home, in which nothing runs, is restored as it is.
    backup_home(tmp_path / "again", tmp_path / "second")
    assert restore_home(tmp_path / "second", tmp_path / "third")["epoch"] == 5


def test_the_verb_says_what_is_paused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, copy = str(tmp_path / "home"), str(tmp_path / "copy")
    ledger = make_home(tmp_path / "home", 1)
    at = ledger.heads()[-1].committed_at
    ledger.commit(2, at, {"sources": [source_definition(running("s"))]}, {})
    assert code_of("backup", copy, "--home", home) == 0
    capsys.readouterr()
    assert code_of("restore", copy, str(tmp_path / "again")) == 0
    assert "Paused: source s. RESUME SOURCE and RESUME CHANGEFEED start them" in capsys.readouterr().out
    assert code_of("restore", copy, str(tmp_path / "live"), "--live") == 0
    assert "Paused" not in capsys.readouterr().out
    add_epoch(opened(tmp_path / "live"), 3)
