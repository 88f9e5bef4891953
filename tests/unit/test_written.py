"""A delta that lies in files already is committed with them: nothing of it is written again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import LedgerError, LedgerNotWritten
from headrace.ledger import durable
from headrace.ledger.backup import backup, restore
from headrace.ledger.durable import digest_of, is_whole
from headrace.ledger.inspection import inspect_storage
from headrace.ledger.ledger import Ledger, summed
from headrace.ledger.names import is_kept
from headrace.ledger.written import Part, Written
from headrace.state.delta import consolidate, weights_of
from headrace.storage.objects import Location
from tests.checks.storage import orphans
from tests.small_homes import BEGIN, SCHEMA, TABLE, files_of, make_home, opened, row, rows_at

ROWS = [(number, f"row {number}") for number in range(300)]


@pytest.fixture(autouse=True)
def nothing_raised_later() -> Iterator[None]:
    yield
    durable._crash_at = ""


@pytest.fixture
def spark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark writes."""
    return tmp_path_factory.mktemp("spark")


def written(folder: Path, rows: list[tuple[int, str]] = ROWS, files: int = 3) -> Written:
    """Rows as Spark leaves them: a few files, and one without rows."""
    folder.mkdir(exist_ok=True)
    names: list[Path] = []
    for number in range(files + 1):
        part = rows[number::files] if number < files else []
        columns = [pa.array([one[i] for one in part], kind) for i, kind in enumerate(SCHEMA.types)]
        table = pa.table([*columns, pa.array([1] * len(part), pa.int64())], names=["c0", "c1", "_headrace_weight"])
        names.append(folder / f"part-{number}.snappy.parquet")
        pq.write_table(table, names[-1])
    together = pa.concat_tables([pq.read_table(name, columns=["c0", "c1"]) for name in names])
    parts = (Part(name, pq.read_metadata(name).num_rows, digest_of(name), name.stat().st_size) for name in names)
    return Written(consolidate(together, weights_of([1] * len(rows))), tuple(parts))


def commit(ledger: Ledger, one: Written, epoch: int = 2) -> None:
    ledger.commit(epoch, BEGIN, {}, {TABLE: one, "t#0": row(epoch)})


def test_its_files_are_those_of_the_ledger(location: Location, spark: Path) -> None:
    ledger = make_home(location, 1, inline_bytes=100)
    one = written(spark)
    commit(ledger, one)
    large = [file for file in (location / "deltas").iterdir() if "-t-" in file.name]
    assert len(large) == 3
    assert all(map(is_whole, large))
    assert sorted(file.stat().st_size for file in large) == sorted(part.file.stat().st_size for part in one.parts[:3])
    for reader in (ledger, opened(location)):
        (entry,) = reader.entries(TABLE, since=1)
        assert sorted(zip(*entry.rows.to_pydict().values(), strict=True)) == ROWS
        assert entry.weights.tolist() == [1] * 300
        assert [found.relation for found in reader.entries_after({TABLE: 1, "t#0": 1})] == [TABLE, "t#0"]


def test_a_small_one_lies_in_its_row(location: Location, spark: Path) -> None:
    ledger = make_home(location, 1, inline_bytes=10**6)
    commit(ledger, written(spark))
    assert ledger.large_files() == set()
    assert len(rows_at(location, 2)) == 301


def test_what_spark_removes_afterwards_stays_in_the_ledger(location: Location, spark: Path) -> None:
    ledger = make_home(location, 1, inline_bytes=100)
    one = written(spark)
    commit(ledger, one)
    for part in one.parts:
        part.file.unlink()
    assert len(rows_at(location, 2)) == 301


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_what_happens_to_spark_s_files_afterwards_does_not_harm_the_ledger(
    tmp_path: Path, spark: Path, mode: int
) -> None:
    """Scratch is what need not last: neither whoever tidies it nor an executor that still writes may reach the home."""
    home = tmp_path / "home"
    one = written(spark)
    for part in one.parts:
        part.file.chmod(mode)
    commit(make_home(home, 1, inline_bytes=100), one)
    for part in one.parts:
        os.truncate(part.file, 100)
    assert inspect_storage(home).ok
    assert len(rows_at(home, 2)) == 301
    assert not any(file.stat().st_mode & 0o002 for file in (home / "deltas").iterdir())


def other_rows(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(table.set_column(1, "c1", pa.array(["forged"] * len(table))), file)


def fewer_rows(file: Path) -> None:
    pq.write_table(pq.read_table(file).slice(0, 10), file)


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("spoil", [other_rows, fewer_rows, torn, Path.unlink])
def test_files_that_are_no_longer_what_was_read_are_not_taken(
    location: Location, spark: Path, spoil: Callable[[Path], None]
) -> None:
    """What is committed is the delta that the rest of the epoch was worked out with."""
    ledger = make_home(location, 1, inline_bytes=100)
    one = written(spark)
    spoil(one.parts[1].file)
    commit(ledger, one)
    (entry,) = opened(location).entries(TABLE, since=1)
    assert sorted(zip(*entry.rows.to_pydict().values(), strict=True)) == ROWS
    assert len(ledger.large_files()) == 1
    assert orphans(location) == []
    assert inspect_storage(location).ok


def test_files_of_which_one_was_not_read_are_not_taken(tmp_path: Path, spark: Path) -> None:
    ledger = make_home(tmp_path / "home", 1, inline_bytes=100)
    one = written(spark)
    commit(ledger, Written(one.delta, one.parts[1:]))
    assert len(rows_at(tmp_path / "home", 2)) == 301


@pytest.mark.parametrize("spoil", [torn, Path.unlink])
def test_the_types_of_a_file_that_cannot_be_read_are_not_known(spark: Path, spoil: Callable[[Path], None]) -> None:
    one = written(spark)
    spoil(one.parts[0].file)
    assert not one.is_readable


def test_what_arrow_cannot_write_is_told_as_an_epoch_that_was_not_written(
    tmp_path: Path, spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise pa.ArrowInvalid("not a Parquet file")

    ledger = make_home(tmp_path / "home", 1, inline_bytes=100)
    with monkeypatch.context() as patched:
        patched.setattr(pq, "write_table", refuse)
        with pytest.raises(LedgerNotWritten, match="cannot be written"):
            ledger.commit(2, BEGIN, {}, {TABLE: row(2)})
    commit(ledger, written(spark))
    assert len(rows_at(tmp_path / "home", 2)) == 301


@pytest.mark.parametrize("point", ["file written!error", "files written!full", "data written!interrupt"])
def test_an_epoch_that_is_not_committed_leaves_none_of_its_files(location: Location, spark: Path, point: str) -> None:
    ledger = make_home(location, 1, inline_bytes=100)
    before = files_of(location)
    durable._crash_at = point
    with pytest.raises((RuntimeError, LedgerError, KeyboardInterrupt)):
        commit(ledger, written(spark))
    assert files_of(location) == before
    commit(ledger, written(spark))
    assert len(rows_at(location, 2)) == 301
    assert orphans(location) == []


def test_a_file_that_is_gone_or_harmed_is_found(tmp_path: Path, spark: Path) -> None:
    home = tmp_path / "home"
    commit(make_home(home, 1, inline_bytes=100), written(spark))
    assert inspect_storage(home).ok
    sorted((home / "deltas").glob("*-t-*"))[1].unlink()
    found = inspect_storage(home)
    assert not found.ok
    with pytest.raises(LedgerError):
        list(opened(home).entries(TABLE, since=1))


def test_it_is_part_of_a_backup(tmp_path: Path, spark: Path) -> None:
    home = tmp_path / "home"
    commit(make_home(home, 1, inline_bytes=100), written(spark))
    backup(home, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    assert rows_at(tmp_path / "again", 2) == rows_at(home, 2)


def test_it_outlives_the_joining_of_the_log(location: Location, spark: Path) -> None:
    ledger = make_home(location, 1, inline_bytes=100)
    commit(ledger, written(spark))
    commit(ledger, written(spark / "more", [(1000 + number, name) for number, name in ROWS]), epoch=3)
    ledger.compact(3, 0, is_kept, 1)
    entries = list(opened(location).entries(TABLE))
    assert [entry.epoch for entry in entries] == [1, 2, 3]
    assert len(summed(SCHEMA, entries)) == 601


def test_rows_whose_types_files_do_not_tell_are_written_by_the_ledger(spark: Path) -> None:
    assert written(spark).is_readable
    other = written(spark)
    columns = [other.delta.rows.column(0).cast(pa.duration("us")), other.delta.rows.column(1)]
    as_durations = pa.table(columns, names=["c0", "c1"])
    assert not Written(consolidate(as_durations, other.delta.weights), other.parts).is_readable
