"""Delta tables that others write, followed: a table of ours is what theirs is after each commit, change by change."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.errors import SourceError, StatementError
from tests.waiting import until

FEED = {"delta.enableChangeDataFeed": "true"}


def batch(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.table(
        {"id": pa.array([one for one, _ in pairs], pa.int64()), "s": pa.array([s for _, s in pairs], pa.string())}
    )


def rows(hr: Any, name: str = "t") -> list[Any]:
    return sorted(((row["id"], row["s"]) for row in hr.query(f"SELECT * FROM {name}").to_pylist()), key=repr)


def theirs(path: Path) -> list[Any]:
    return sorted(((row["id"], row["s"]) for row in DeltaTable(path).to_pyarrow_table().to_pylist()), key=repr)


def shown(hr: Any) -> dict[str, Any]:
    (row,) = hr.execute("SHOW SOURCES").to_pylist()
    return row


@pytest.mark.parametrize("feed", [True, False], ids=["feed", "log"])
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""], ids=["keyed", "bag"])
def test_a_table_is_what_the_other_is_after_each_commit(home: Any, tmp_path: Path, feed: bool, key: str) -> None:
    path = tmp_path / "theirs"
    write_deltalake(path, batch((1, "a"), (2, "b"), (3, None)), configuration=FEED if feed else None)
    home.execute(
        f"CREATE TABLE t (id BIGINT {key}, s STRING); CREATE VIEW v AS SELECT s, count(*) AS n FROM t GROUP BY s"
    )
    home.execute(f"CREATE SOURCE d INTO t FROM DELTA '{path}'")
    assert rows(home) == theirs(path)
    dice = random.Random(5)
    for step in range(8):
        table = DeltaTable(path)
        what = dice.choice(["append", "delete", "update", "merge", "optimize", "overwrite"])
        if what == "append":
            write_deltalake(path, batch((100 + step, dice.choice("abc"))), mode="append")
        elif what == "delete":
            table.delete(f"id = {dice.choice([1, 2, 3, 100, 101])}")
        elif what == "update":
            table.update(updates={"s": f"'u{step}'"}, predicate=f"id >= {dice.randint(1, 3)}")
        elif what == "merge":
            merged = table.merge(
                batch((2, f"m{step}"), (200 + step, "new")), "t.id = s.id", source_alias="s", target_alias="t"
            )
            merged.when_matched_update_all().when_not_matched_insert_all().execute()
        elif what == "optimize":
            table.optimize.compact()
        else:
            write_deltalake(path, batch((1, "o"), (2, "b"), (300 + step, "x")), mode="overwrite")
        until(lambda: rows(home) == theirs(path))
    assert home.verify().ok
    told = shown(home)
    assert told["received"] == told["applied"] + told["stale"] + told["dead"]
    assert (told["state"], told["dead"]) == ("Running", 0)


def test_what_changes_no_row_makes_no_change(home: Any, tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    for number in range(4):
        write_deltalake(path, batch((number, "a")), mode="append")
    home.execute("CREATE TABLE t (id BIGINT, s STRING)")
    home.execute(f"CREATE SOURCE d INTO t FROM DELTA '{path}'")
    before = home.epoch
    DeltaTable(path).optimize.compact()
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    write_deltalake(path, batch(*((number, "a") for number in range(4))), mode="overwrite")
    write_deltalake(path, batch((9, "z")), mode="append")
    until(lambda: (9, "z") in rows(home))
    assert home.changes("t", since=before).num_rows == 1


def test_a_commit_is_one_epoch(home: Any, tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    write_deltalake(path, batch((0, "a")))
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
    home.execute(f"CREATE SOURCE d INTO t FROM DELTA '{path}' WITH (mode = 'follow', max_records = 7)")
    assert rows(home) == []
    before = home.epoch
    write_deltalake(path, batch(*((number, "b") for number in range(50))), mode="append")
    until(lambda: len(rows(home)) == 50)
    assert len(set(home.changes("t", since=before).column("_commit_version").to_pylist())) == 1


def test_a_log_that_was_cleaned_past_us_is_told(home: Any, tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    write_deltalake(path, batch((0, "a")))
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
    home.execute(f"CREATE SOURCE d INTO t FROM DELTA '{path}'")
    home.execute("PAUSE SOURCE d")
    for number in range(1, 4):
        write_deltalake(path, batch((number, "a")), mode="append")
    DeltaTable(path).create_checkpoint()
    for number in range(3):
        (path / "_delta_log" / f"{number:020d}.json").unlink()
    home.execute("RESUME SOURCE d")
    until(lambda: shown(home)["state"] == "Error")
    assert "no longer tells what version 1 changed" in shown(home)["error"]
    assert rows(home) == [(0, "a")]
    # One command brings it back to what the other is.
    home.execute("DROP SOURCE d; DELETE FROM t")
    home.execute(f"CREATE SOURCE d INTO t FROM DELTA '{path}'")
    assert rows(home) == theirs(path)


def test_a_table_that_was_made_anew_is_told(home: Any, tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    for number in range(3):
        write_deltalake(path, batch((number, "a")), mode="append")
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
    home.execute(f"CREATE SOURCE d INTO t FROM DELTA '{path}'; PAUSE SOURCE d")
    shutil.rmtree(path)
    write_deltalake(path, batch((7, "new")))
    home.execute("RESUME SOURCE d")
    until(lambda: shown(home)["state"] == "Error")
    assert "restored or made anew" in shown(home)["error"]


def test_options_that_are_none_are_refused(home: Any, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "theirs", batch((0, "a")))
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING)")
    where = f"CREATE SOURCE d INTO t FROM DELTA '{tmp_path / 'theirs'}'"
    with pytest.raises(StatementError, match="no mode 'folow'"):
        home.execute(f"{where} WITH (mode = 'folow')")
    with pytest.raises(SourceError, match="has no option verson") as told:
        home.execute(f"{where} WITH (verson = 3)")
    assert told.value.hint == "did you mean version?"
