"""Changefeeds and sinks that fail: nothing is lost, keys keep their order, and nobody else waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.feed_receiver import Receiver
from tests.spark.test_changefeeds import events, rebuilt
from tests.spark.test_source_commands import Shell
from tests.waiting import until


@pytest.fixture
def table(home: Any, receiver: Receiver) -> Any:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    return home


def test_a_delta_table_of_others_goes_on_by_three_statements(home: Any, tmp_path: Path) -> None:
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", "b"]})
    write_deltalake(theirs, rows, configuration={"delta.enableChangeDataFeed": "true"})
    home.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING);"
        f"CREATE SOURCE d INTO t FROM DELTA '{theirs}' WITH (mode = 'snapshot_and_follow');"
        f"CREATE CHANGEFEED f FOR TABLE t INTO FILES '{out}' WITH (flush_interval_ms = 5)"
    )
    until(lambda: len(events(out)) == 2)
    for predicate, value in (("id = 1", "'x'"), ("id = 2", "'y'")):
        DeltaTable(theirs).update(predicate=predicate, updates={"s": value})
    DeltaTable(theirs).delete("id = 1")
    write_deltalake(theirs, pa.table({"id": pa.array([1], pa.int64()), "s": ["back"]}), mode="append")
    wanted = {one["id"]: one["s"] for one in DeltaTable(theirs).to_pyarrow_table().to_pylist()}
    # Commits that were read together are one epoch, which tells what became of a key, not each step on the way.
    until(lambda: {one["id"]: one["s"] for one in rebuilt(events(out)).values()} == wanted)
    assert [one["sequence"] for one in events(out)] == list(range(1, len(events(out)) + 1))


def test_the_command_line(home: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    shell = Shell(home, capsys)
    out = tmp_path / "it's out"
    shell("changefeed", "create", "f", str(out), "--for", "t", "--into", "files", "-o", "flush_interval_ms=5")
    home.execute("INSERT INTO t VALUES (1, 1)")
    until(lambda: len(events(out)) == 1)
    (told,) = shell.json("changefeed", "list")
    assert (told["name"], told["state"], told["last_sequence"]) == ("f", "Running", 1)
    assert shell("changefeed", "pause", "f") == "changefeed f is paused\n"
    assert shell.json("changefeed", "show", "F")["state"] == "Paused"
    shell("changefeed", "alter", "f", "-o", "batch_size=7")
    shell("changefeed", "alter", "f", "--unset", "batch_size")
    shell("changefeed", "resume", "f")
    shell("changefeed", "resync", "f")
    until(lambda: len(events(out)) == 3)
    assert shell.json("changefeed", "parked", "list") == []
    assert "it is not said which" in shell("changefeed", "parked", "discard", code=1)
    shell("changefeed", "parked", "discard", "--all")
    assert [one["name"] for one in shell.json("status")["changefeeds"]] == ["f"]
    assert "dropped" in shell("changefeed", "drop", "f")
    assert "no changefeed f" in shell("changefeed", "show", "f", code=1)


def test_the_statements_of_the_page_on_delta_tables(home: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "send-changes-on.md"
    script = page.read_text().partition("```sql\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["Ada"]})
    write_deltalake(tmp_path / "lake" / "customers", rows, configuration={"delta.enableChangeDataFeed": "true"})
    home.execute(script)
    until(lambda: [one["new_row"]["name"] for one in events(tmp_path / "out")] == ["Ada"])
