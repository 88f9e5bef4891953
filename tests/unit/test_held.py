"""What a relation holds is read piece by piece: the same rows as whole, and next to nothing kept meanwhile."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType

from headrace.reading.held_rows import HeldRows
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import consolidate, weights_of
from headrace.state.repeat import repeat
from headrace.state.state import BEGIN, At
from headrace.state.store import Store

Row = tuple[int, str, int]


def store_of(*epochs: list[Row], merge: bool = False) -> Store:
    store = Store("t", arrow_schema([LongType(), StringType()]))
    for rows in epochs:
        columns = [pa.array([row[0] for row in rows], pa.int64()), pa.array([row[1] for row in rows], pa.string())]
        store.add(consolidate(pa.table(columns, schema=store.schema), weights_of([row[2] for row in rows])))
        if merge:
            store.merge()
    return store


def pieces(held: HeldRows, most: int) -> list[list[tuple[Any, ...]]]:
    found: list[list[tuple[Any, ...]]] = []
    at: At | None = BEGIN
    while at is not None:
        piece = held.piece(at, most)
        assert piece.rows.column_names == ["id", "name"]
        found.append([tuple(row.values()) for row in piece.rows.to_pylist()])
        at = piece.after
        assert at is None or at.told == sum(map(len, found))
    return found


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
def test_pieces_are_the_whole(most: int) -> None:
    chance = random.Random(most)
    for trial in range(20):
        held: Counter[tuple[int, str]] = Counter()
        epochs: list[list[Row]] = []
        for _ in range(chance.randrange(8)):
            rows: list[Row] = []
            for one in chance.sample(range(30), 10):
                row = one, f"n{one % 3}"
                change = chance.choice([1, 1, 2, 5, -held[row]])
                held[row] += change
                rows.append((*row, change))
            epochs.append(rows)
        store = store_of(*epochs, merge=trial % 2 == 0)
        found = pieces(HeldRows(store.snapshot(), ["id", "name"]), most)
        assert Counter(row for piece in found for row in piece) == +held
        # All but the last are full, and only of an empty relation is there an empty one.
        assert {len(piece) for piece in found[:-1]} <= {most}
        assert len(found) == 1 or found[-1]


def test_a_row_that_is_there_often_is_told_in_pieces() -> None:
    snapshot = store_of([(1, "a", 1), (2, "b", 2**60), (3, "c", 1)]).snapshot()
    held = HeldRows(snapshot, ["id", "name"])
    assert held.count == 2**60 + 2
    first = held.piece(BEGIN, 1000)
    assert Counter(first.rows.column("id").to_pylist()) == {1: 1, 2: 999}
    assert first.after is not None
    second = held.piece(first.after, 1000)
    assert second.after == At(2000, 0, 1, 1999)
    last = held.piece(At(2**60 - 499, 0, 1, 2**60 - 500), 1000)
    assert Counter(last.rows.column("id").to_pylist()) == {2: 500, 3: 1}
    assert last.after is None


@pytest.mark.thorough
def test_who_reads_slowly_keeps_no_copy() -> None:
    store = store_of([(i, "x" * 100, 1) for i in range(100_000)], [(i, "x" * 100, -1) for i in range(40_000)])
    snapshot = store.snapshot()
    whole = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        readers = [HeldRows(snapshot, ["id", "name"]) for _ in range(50)]
        positions = [reader.piece(BEGIN, 1000).after for reader in readers]
        assert all(at is not None and at.told == 1000 for at in positions)
        # Of all fifty together, less than a tenth of what one copy of the relation takes.
        assert pa.total_allocated_bytes() - whole + _python_bytes() < 1_000_000 + _index_bytes(snapshot)
    finally:
        tracemalloc.stop()
    rows = snapshot.all()
    assert repeat(rows.rows, rows.weights).nbytes > 6_000_000


def _python_bytes() -> int:
    return tracemalloc.get_traced_memory()[0]


def _index_bytes(snapshot: Any) -> int:
    """What runs keep for all who read them: which identities they have."""
    return sum(part.nbytes for run in snapshot.runs for pair in run.indexes.values() for part in pair)
