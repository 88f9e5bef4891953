"""Contents of relations are kept for the next query, as long as the relation has them and there is room."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.query_processes import contents as module
from headrace.query_processes.contents import Contents
from headrace.query_processes.question import Question, QuestionWriter
from headrace.reading.files import Files
from headrace.reading.frames import Frames
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import consolidate, weights_of
from headrace.state.snapshot import Snapshot
from headrace.state.store import Store


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    return Contents(Frames(None, Files(tmp_path)))  # pyright: ignore[reportArgumentType]


@pytest.fixture
def store() -> Store:
    return Store("t", arrow_schema([LongType(), StringType()]))


def add(store: Store, ids: range) -> Snapshot:
    columns = [pa.array(ids, pa.int64()), pa.array([f"x{i}" * 40 for i in ids])]
    store.apply(consolidate(pa.table(columns, schema=store.schema), weights_of([1] * len(ids))))
    return store.snapshot()


def test_the_same_runs_have_the_same_content(contents: Contents, store: Store) -> None:
    first = contents.of(add(store, range(10)))
    assert contents.of(store.snapshot()) is first
    assert contents.of(add(store, range(10, 20))) is not first


@pytest.mark.thorough
def test_what_a_relation_no_longer_holds_is_not_kept(contents: Contents, store: Store) -> None:
    before = pa.total_allocated_bytes()
    snapshot = add(store, range(20_000))
    one = contents.of(snapshot).rows.nbytes
    for epoch in range(40):
        contents.of(add(store, range(100_000 + 1000 * epoch, 101_000 + 1000 * epoch)))
    del snapshot
    gc.collect()
    assert contents.kept <= 3
    # What the store itself holds, and what was put together of its runs for the newest epochs.
    assert pa.total_allocated_bytes() - before < 12 * one
    del store
    gc.collect()


def test_contents_go_with_their_runs(contents: Contents, store: Store) -> None:
    contents.of(add(store, range(10)))
    assert contents.kept == 1
    store.replace([])
    gc.collect()
    assert contents.kept == 0


def test_no_more_bytes_are_kept_than_there_is_room_for(
    contents: Contents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_KEPT_BYTES", 10_000)
    stores = [Store(f"t{i}", arrow_schema([LongType(), StringType()])) for i in range(30)]
    snapshots = [add(store, range(10)) for store in stores]
    made = [contents.of(snapshot) for snapshot in snapshots]
    sizes = [content.rows.nbytes for content in made]
    assert 1 <= contents.kept == 10_000 // max(sizes)
    assert contents.of(snapshots[-1]) is made[-1]
    assert contents.of(snapshots[0]) is not made[0]


def test_relations_without_rows_are_told_apart(contents: Contents) -> None:
    one, other = (Snapshot(arrow_schema(kinds), ()) for kinds in ([LongType()], [LongType(), StringType()]))
    assert [contents.of(held).rows.num_columns for held in (one, other, one)] == [1, 2, 1]


def test_runs_that_have_the_number_of_others_that_are_gone_have_contents_of_their_own(
    contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "id", lambda run: 7, raising=False)
    stores = [Store(name, arrow_schema([LongType(), StringType()])) for name in ("one", "other")]
    found = [contents.of(add(store, range(n))).rows.num_rows for n, store in enumerate(stores, 3)]
    assert found == [3, 4]


def test_files_that_are_there_for_what_a_process_was_told_are_counted(tmp_path: Path) -> None:
    contents, writer = Contents(Frames(None, Files(tmp_path))), QuestionWriter()  # pyright: ignore[reportArgumentType]
    schema = StructType([StructField("a", LongType()), StructField("b", StringType())])
    kept = [contents.of(_of_small_runs(n)) for n in range(3)]
    sizes = [sum(file.path.stat().st_size for file in content.files) for content in kept]
    assert min(sizes) > 100_000
    for content in kept:
        with writer.writing(Question("rows", "SELECT 1", {"t": (content, schema)})):
            pass
    assert sum(sizes) <= writer._bytes < 2 * sum(sizes)


def test_a_content_whose_files_others_have_removed_is_made_anew(contents: Contents) -> None:
    held = _of_small_runs(0)
    first = contents.of(held)
    assert contents.of(held) is first
    for file in first.files:
        file.path.unlink()
    again = contents.of(held)
    assert again is not first
    assert all(file.path.exists() for file in again.files)


def _of_small_runs(number: int) -> Snapshot:
    store = Store("t", arrow_schema([LongType(), StringType()]))
    for begin in (0, 20_000, 40_000):
        add(store, range(100_000 * number + begin, 100_000 * number + begin + 20_000))
    return store.snapshot()
