"""Rows in files: written once, beside each other, whole or not at all, and never longer than what they are made of."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType

from headrace.ledger.durable import digest_of
from headrace.ledger.written import Part
from headrace.reading import files as module
from headrace.reading import frames
from headrace.reading.files import WEIGHT, File, Files
from headrace.reading.frames import Frames
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import consolidate, weights_of
from headrace.state.run import Run
from headrace.state.snapshot import Snapshot
from headrace.storage.scratch import Scratch

SCHEMA = arrow_schema([LongType(), StringType()])


def run_of(ids: range, *, weights: list[int] | None = None) -> Run:
    columns = [pa.array(ids, pa.int64()), pa.array([f"n{i}" for i in ids], pa.string())]
    return Run(consolidate(pa.table(columns, schema=SCHEMA), weights_of(weights or [1] * len(ids))))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_file_that_is_being_written_holds_up_nobody_who_wants_another(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = run_of(range(10)), run_of(range(20))
    begun, go_on, writes = threading.Event(), threading.Event(), list[int]()
    write = pq.write_table

    def waiting(rows: pa.Table, path: Path, **options: Any) -> None:
        writes.append(rows.num_rows)
        if rows.num_rows == 10:
            begun.set()
            assert go_on.wait(90)
        write(rows, path, **options)

    monkeypatch.setattr(module.pq, "write_table", waiting)
    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(files.of, slow) for _ in range(3)]
        assert begun.wait(90)
        try:
            assert threads.submit(files.of, other).result(90).path.exists()
            assert files.new_path("fill").parent == tmp_path
            assert not any(one.done() for one in asked)
        finally:
            go_on.set()
        (file,) = {one.result(90) for one in asked}
    assert sorted(writes) == [10, 20]
    assert pq.read_table(file.path).num_rows == 10


@pytest.mark.parametrize(
    "write", [lambda files: files.of(run_of(range(5))), lambda files: files.write(SCHEMA.empty_table())]
)
def test_a_write_that_fails_leaves_nothing_and_is_tried_again(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Files], Any]
) -> None:
    def fail(_: pa.Table, path: Path, **__: Any) -> None:
        path.write_bytes(b"PAR1 half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(module.pq, "write_table", fail)
        with pytest.raises(OSError, match="No space left"):
            write(files)
    assert list(tmp_path.iterdir()) == []
    assert write(files).path.exists()


def test_a_run_whose_write_failed_is_written_when_it_is_asked_for_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(range(5))
    with monkeypatch.context() as patched:
        patched.setattr(module.pq, "write_table", lambda *_, **__: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            files.of(run)
    assert files.of(run) == files.of(run)
    assert files.of(run).path.exists()


def test_a_file_goes_with_its_run(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_SECONDS", -1.0)
    run = run_of(range(5))
    path = files.of(run).path
    assert list(tmp_path.iterdir()) == [path]
    del run
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_is_there_often_lies_in_a_file_once(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.of(run_of(range(4), weights=[1, 10**15, -3, 2]))
    rows = pq.read_table(file.path)
    assert file.weighted
    assert rows.column(WEIGHT).to_pylist() == [1, 10**15, 2]
    assert not files.of(run_of(range(4), weights=[1, 1, -1, 1])).weighted
    monkeypatch.setattr(frames, "_IN_MEMORY", 3)
    held = Frames(None, files)  # pyright: ignore[reportArgumentType]
    small = held.content(Snapshot(SCHEMA, (run_of(range(3), weights=[1, 10**15, 1]),)))
    assert (small.rows.num_rows, small.rows.column_names) == (3, ["c0", "c1", WEIGHT])
    apart = held.content(Snapshot(SCHEMA, (run_of(range(9)), run_of(range(8, 10), weights=[10**15, 1]))))
    assert apart.rows.to_pylist() == [{"c0": 8, "c1": "n8", WEIGHT: 10**15 + 1}, {"c0": 9, "c1": "n9", WEIGHT: 1}]
    more = (run_of(range(8, 11), weights=[10**15, 1, 1]), run_of(range(11, 14)))
    rest = held.content(Snapshot(SCHEMA, (run_of(range(9)), *more))).rest
    assert rest is not None
    assert rest.weighted


def test_a_file_that_others_have_removed_is_written_anew(tmp_path: Path) -> None:
    """Folders for what is temporary are tidied by the system: the rows are held here, and nothing is lost."""
    scratch = Scratch(tmp_path)
    files, run = Files(scratch.path), run_of(range(5))
    first = files.of(run)
    first.path.unlink()
    assert pq.read_table(files.of(run).path).num_rows == 5
    shutil.rmtree(scratch.path)
    again = files.of(run)
    assert pq.read_table(again.path).num_rows == 5
    assert files.of(run) is again
    assert scratch.path.stat().st_mode & 0o777 == 0o700
    # It is marked as in use again, and swept by nobody.
    with open(scratch.path / "in-use", "rb") as mark, pytest.raises(BlockingIOError):
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    Scratch(tmp_path).close()
    assert again.path.exists()
    scratch.close()
    # Whoever still had it then does not make it once more.
    scratch.make_again()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: os.truncate(path, 100)], ids=["removed", "torn"])
def test_a_folder_of_spark_that_others_have_removed_or_torn_is_not_read(
    files: Files, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    run, folder = run_of(range(5)), tmp_path / "fill-1.parquet"
    folder.mkdir()
    path = folder / "part-0.parquet"
    pq.write_table(run.delta.rows, path)
    kept = File(folder, parts=(Part(path, 5, "", path.stat().st_size),))
    files.keep(run.delta.rows, kept)
    assert files.as_written(run) is kept
    assert kept.paths == (path,)
    spoil(path)
    assert files.written(run.delta.rows) is None
    assert files.as_written(run).path.exists()


def test_what_a_file_was_is_noted_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(run_of(range(7)).delta.rows, path)
    before, size, noted = digest_of(path), path.stat().st_size, list[Part]()
    for _ in frames._parts([path], ["c0"], noted.append):  # pyright: ignore[reportPrivateUsage]
        path.write_bytes(b"changed meanwhile")
    assert noted == [Part(path, 7, before, size)]


def test_a_file_that_was_torn_after_spark_wrote_it_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "part.parquet"
    pq.write_table(run_of(range(7)).delta.rows, path)
    os.truncate(path, 100)
    with pytest.raises(OSError, match="cannot be read"):
        list(frames._parts([path], ["c0"]))  # pyright: ignore[reportPrivateUsage]
