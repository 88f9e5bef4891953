"""From what a relation holds, and from what epochs change in it, to events in an order that never changes.

Events of one epoch are ordered by the identity of their keys, those of a relation without a key by what goes and what
comes, and rows of a scan by their own identity: so each event has the same place whenever it is read again, from memory
or from the ledger, by this process or the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.feeds.batch import Events, null_rows
from headrace.intake.arrow import table_schema
from headrace.reading.history import EpochChanges
from headrace.state.arrow_compute import pc
from headrace.state.delta import Delta, concat, gather
from headrace.state.hashing import identity
from headrace.state.state import State

# So many rows of a scan are brought into order at a time.
_PIECE = 50_000
_KINDS = pa.array(["delete", "update_preimage", "update_postimage", "insert"])
# The operation of an event that begins with an image of a kind.
_OPERATIONS = np.array(["DELETE", "UPDATE", "UPDATE", "INSERT"], dtype=object)
_RANKS: dict[str, int] = {name: rank for rank, name in enumerate(_KINDS.to_pylist())}


def change_events(changes: EpochChanges, key: Sequence[int]) -> Events:
    """Return what an epoch changed in a relation, one event for a key that was updated.

    The key may be another than that of the relation: a row that goes from one key to another is a DELETE of the one
    and an INSERT of the other, and a row that takes the place of another under its key is an UPDATE.
    """
    rows = changes.rows
    count = rows.num_rows
    kinds: npt.NDArray[np.int64] = pc.index_in(changes.kinds, value_set=_KINDS).to_numpy().astype(np.int64)
    low, high = identity([rows.column(index) for index in key], count)
    row_low, row_high = identity(rows.columns, count) if len(key) < rows.num_columns else (low, high)
    if len(key) == rows.num_columns:
        # Without a key nothing tells which row became which: whatever goes is told first, so that a receiver that has a
        # key of its own never takes away what came in the same epoch.
        kinds = np.where(kinds >= _RANKS["update_postimage"], _RANKS["insert"], _RANKS["delete"])
        order = np.lexsort((high, low, kinds))
        kinds = kinds[order]
    else:
        comes = kinds >= _RANKS["update_postimage"]
        order = np.lexsort((row_high, row_low, comes, high, low))
        kinds = _paired(low[order], high[order], comes[order])
    begins = np.flatnonzero(kinds != _RANKS["update_postimage"])
    firsts, what = order[begins], kinds[begins]
    updated = what == _RANKS["update_preimage"]
    # The new image of an update comes right after the old one.
    news = np.where(updated, order[np.minimum(begins + 1, count - 1)], firsts)
    inserted = what == _RANKS["insert"]
    olds = pa.array(np.where(inserted, 0, firsts), mask=inserted)
    old_rows = None if bool(inserted.all()) else _with_nulls(rows.take(olds))
    return Events.of_epoch(changes.epoch, changes.committed_at, _OPERATIONS[what], rows.take(pa.array(news)), old_rows)


def _paired(low: npt.NDArray[Any], high: npt.NDArray[Any], comes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the kinds of images that are in the order of their keys, the images that go first.

    A key with one image that goes and one that comes was updated.
    """
    begins = np.flatnonzero(np.concatenate(([True], (low[1:] != low[:-1]) | (high[1:] != high[:-1]))))
    pairs = begins[np.diff(np.append(begins, len(low))) == 2]
    pairs = pairs[~comes[pairs] & comes[pairs + 1]]
    kinds = np.where(comes, _RANKS["insert"], _RANKS["delete"])
    kinds[pairs], kinds[pairs + 1] = _RANKS["update_preimage"], _RANKS["update_postimage"]
    return kinds


def scan_events(state: State, columns: StructType, epoch: int, committed_at: datetime, after: int) -> Iterator[Events]:
    """All rows of a relation, those after the first so many, a piece at a time; no more than that is held."""
    schema = table_schema(columns)
    pieces = max(1, -(-state.size // _PIECE))
    bounds = [(one << 64) // pieces for one in range(pieces + 1)]
    told = 0
    for first, end in itertools.pairwise(bounds):
        held = _held_between(state, first, end)
        order = np.lexsort((held.high, held.low))
        ends = np.cumsum(held.weights[order])
        count = int(ends[-1]) if len(ends) else 0
        for start in range(max(0, after - told), count, _PIECE):
            stop = min(start + _PIECE, count)
            # A row is told as often as it is there.
            positions = order[np.searchsorted(ends, np.arange(start, stop), side="right")]
            rows = pa.table(held.rows.take(pa.array(positions)).columns, schema=schema)
            places = np.arange(told + start + 1, told + stop + 1)
            yield replace(Events.of_epoch(epoch, committed_at, "INSERT", rows), places=places, scan=True)
        told += count


def _held_between(state: State, first: int, end: int) -> Delta:
    """The rows whose identities begin between two numbers, summed."""
    found: list[Delta] = []
    last = np.uint64(end - 1)
    for part in state.parts():
        positions = np.flatnonzero((part.low >= np.uint64(first)) & (part.low <= last))
        if len(positions):
            found.append(gather(part, positions))
    return concat(state.schema, found)


def reset_event(columns: StructType, epoch: int, committed_at: datetime) -> Events:
    """Return the one event of a RESET, which has no row."""
    return Events.of_epoch(epoch, committed_at, "RESET", null_rows(table_schema(columns), 1))


def key_identities(rows: pa.Table, key: Sequence[str]) -> list[tuple[int, int]]:
    """What tells the keys of rows apart."""
    low, high = identity([rows.column(name) for name in key], rows.num_rows)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _with_nulls(rows: pa.Table) -> pa.Table:
    """Rows of which any may be no row at all."""
    return pa.table(rows.columns, schema=pa.schema([field.with_nullable(True) for field in rows.schema]))
