"""Many changes of one table at once, as whole columns: the same net change that they have one by one.

Of each key the last change that is not stale stands for all of them, as in intake/overlay.py. What became of each is
counted, so that no change goes unseen. Keys whose changes did not come in the order of their source are left to those
who take changes one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.catalog.catalog import Table
from headrace.epoch.emptied import end_of_all
from headrace.epoch.pending import LET_GO, before
from headrace.errors import Rejection
from headrace.intake.overlay import Taken
from headrace.intake.positions import POSITION_TYPES, SOURCE_AT, Captured, SourcePosition
from headrace.intake.table import TableContract
from headrace.state.arrow_compute import pc
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import (
    Delta,
    Positions,
    Weights,
    combine,
    concat,
    consolidate,
    found_among,
    gather,
    gather_rows,
    negate,
    number_identities,
)
from headrace.state.hashing import identity
from headrace.state.state import State

Marks = npt.NDArray[np.bool_]
POSITIONS = arrow_schema(POSITION_TYPES)
_LOG, _ORDER, _PARTITION, _OFFSET, _NUMBER, _AT, _READ = range(len(POSITION_TYPES))


@dataclass(frozen=True, eq=False)
class ColumnChanges:
    """Inserts and deletes in the order in which they came, exact and in the table's own types.

    A delete of a table with a key needs no more than the key, and the sequence if there is one. `positions` are those
    of the rows in their source, None if they are taken as they arrive. `others` are changes as `apply` takes them, of
    keys that none of the rows has.
    """

    rows: pa.Table
    deleted: Marks
    positions: pa.Table | None = None
    others: Sequence[object] = ()

    def __len__(self) -> int:
        return self.rows.num_rows + len(self.others)


class TakenColumns(NamedTuple):
    """The net change of a table and of what is remembered of its keys, what became of the changes, and those left."""

    deltas: dict[str, Delta]
    taken: Taken
    left: Sequence[object] = ()


class Held(NamedTuple):
    """What a table holds, and what is remembered of its keys."""

    rows: State
    tombstones: State | None
    positions: State | None


def take_columns(table: Table, held: Held, changes: ColumnChanges, now: datetime, retention: timedelta) -> TakenColumns:
    """What changes come to on top of what is held."""
    if not changes.rows.num_rows:
        return TakenColumns({}, Taken(0))
    if not table.contract.key:
        return _bag(table, held.rows, changes)
    keys = _Keys(table.contract, held.rows, changes)
    order = np.argsort(keys.numbers, kind="stable")
    if held.tombstones is None or table.contract.sequence is None:
        sequences = _Sequences(order, np.ones(len(order), dtype=bool), np.ones(len(order), dtype=bool), None)
    else:
        sequences = _in_sequence(table.contract, keys, held.tombstones, order)
    left = np.zeros(keys.count, dtype=bool)
    if changes.positions is not None and held.positions is not None:
        known = held.positions.lookup(tuple(range(len(keys.indexes))), keys.hashes)
        left = _out_of_order(keys, sequences, changes.positions, known)
        emptied_at = end_of_all(table, held.positions)
        if emptied_at is not None:
            left[keys.numbers[~_is_after(changes.positions, emptied_at)]] = True
    # Of each key the last one that is not stale.
    mine = order[sequences.fresh & ~left[keys.numbers[order]]]
    last = np.full(keys.count, -1, dtype=np.int64)
    last[keys.numbers[mine]] = mine
    deltas = {table.name: keys.delta(table.store.schema, last)}
    # What is too old is let go by those who come last: all of one epoch are checked against the same.
    retention = timedelta.max if left.any() or changes.others else retention
    if sequences.tombs is not None and held.tombstones is not None and table.tombstones is not None:
        deltas[table.tombstones.name] = _tombstones(keys, held.tombstones, sequences.tombs, last, now, retention)
    if changes.positions is not None and held.positions is not None and table.positions is not None:
        moved = last[last >= 0]
        if len(moved):
            deltas[table.positions.name] = _positions(keys, held.positions, changes.positions, moved, now, retention)
    kept = ~left[keys.numbers[order]]
    stale = int(np.count_nonzero(kept & ~sequences.fresh))
    count = int(np.count_nonzero(kept))
    return TakenColumns(deltas, Taken(count - stale, stale), _one_by_one(table.contract, changes, left[keys.numbers]))


class _Keys:
    """The keys that changes touch, numbered, and the rows that they have by now."""

    def __init__(self, contract: TableContract, before: State, changes: ColumnChanges) -> None:
        self.rows, self.deleted = changes.rows, changes.deleted
        self.indexes = contract.key_indexes
        self._low, self._high = identity([self.rows.column(i) for i in self.indexes], self.rows.num_rows)
        self._firsts, self.numbers = number_identities(self._low, self._high)
        self.count = len(self._firsts)
        self.hashes = np.unique(self._low[self._firsts])
        self.known = before.lookup(self.indexes, self.hashes)
        self.known_numbers = self.number_of(self.known.rows, self.indexes)

    def number_of(self, rows: pa.Table, indexes: Sequence[int]) -> Positions:
        """The numbers of keys, -1 for one that no change touches: a hash may be shared."""
        low, high = identity([rows.column(i) for i in indexes], rows.num_rows)
        # They are numbered in the order of their identities.
        places, found = found_among(low, high, self._low[self._firsts], self._high[self._firsts])
        return np.where(found, places, -1)

    def by_key(self, rows: pa.Table) -> Positions:
        """Of each key where its row is among these, which begin with the key; -1 if it has none."""
        numbers = self.number_of(rows, range(len(self.indexes)))
        found = np.full(self.count, -1, dtype=np.int64)
        found[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
        return found

    def delta(self, schema: pa.Schema, last: Positions) -> Delta:
        """The net change if of each key the change at this position is the last, and none where it is -1."""
        touched = last >= 0
        kept = np.sort(last[touched])
        kept = kept[~self.deleted[kept]]
        rows = gather_rows(self.rows, kept)
        # Rows of different keys are different rows, so that nothing needs to be summed.
        added = Delta(rows, np.ones(len(kept), dtype=np.int64), *identity(rows.columns, rows.num_rows))
        replaced = (self.known_numbers >= 0) & touched[self.known_numbers]
        return concat(schema, [negate(gather(self.known, np.flatnonzero(replaced))), added])


class _Tombs(NamedTuple):
    """Tombstones of keys: the rows, where that of each key is, whether its sequence is that of a change, by change."""

    found: Delta
    of_key: Positions
    same: Marks
    place: int


class _Sequences(NamedTuple):
    """Changes by key, in order: which are not stale, and which have the sequence of the one before, or none."""

    order: Positions
    fresh: Marks
    tied: Marks
    tombs: _Tombs | None


def _in_sequence(contract: TableContract, keys: _Keys, buried: State, order: Positions) -> _Sequences:
    """A change that is older than the last one of its key, or than its tombstone, is stale."""
    assert contract.sequence is not None
    width = len(contract.key)
    place = contract.schema.names.index(contract.sequence)
    tombs = buried.lookup(tuple(range(width)), keys.hashes)
    of_key = keys.by_key(tombs.rows)
    # All sequences there are, as numbers that compare as they do.
    parts = [keys.rows.column(place), keys.known.rows.column(place), tombs.rows.column(width)]
    ranks = _ranks(pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type))
    mine, of_known, of_tombs = np.split(ranks, np.cumsum([len(part) for part in parts])[:2])
    has_row = keys.known_numbers >= 0
    # A key that has a row has no tombstone that counts.
    of_key[keys.known_numbers[has_row]] = -1
    floors = np.full(keys.count, -1, dtype=np.int64)
    floors[of_key >= 0] = of_tombs[of_key[of_key >= 0]]
    floors[keys.known_numbers[has_row]] = of_known[has_row]
    numbers, sequences = keys.numbers[order], mine[order]
    # The largest so far of each key: with the key's number before it, the largest of another is always less.
    step = int(ranks.max()) + 2
    largest = np.maximum.accumulate(numbers * step + np.maximum(sequences, floors[numbers]))
    fresh = numbers * step + sequences >= largest
    begins = np.concatenate(([True], numbers[1:] != numbers[:-1]))
    before = np.where(begins, numbers * step + floors[numbers], np.concatenate(([0], largest[:-1])))
    tied = (numbers * step + sequences == before) & (~begins | (floors[numbers] >= 0))
    return _Sequences(order, fresh, tied, _Tombs(tombs, of_key, mine == floors[keys.numbers], place))


def _ranks(values: pa.ChunkedArray) -> Positions:
    """Numbers that compare as the values do."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time64(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    return np.asarray(pc.rank(values, tiebreaker="dense")).astype(np.int64)


def _out_of_order(keys: _Keys, sequences: _Sequences, positions: pa.Table, known: Delta) -> Marks:
    """The keys of which some change is not surely newer in its source than the one before it."""
    chosen = sequences.order[sequences.fresh]
    numbers = keys.numbers[chosen]
    begins = np.concatenate(([True], numbers[1:] != numbers[:-1]))
    committed = keys.by_key(known.rows)[numbers]
    length = positions.num_rows
    before = np.where(begins, np.where(committed >= 0, committed + length, -1), np.concatenate(([0], chosen[:-1])))
    width = len(keys.indexes)
    both = pa.concat_tables([positions, pa.table(known.rows.columns[width:], schema=POSITIONS)])
    compared = (before >= 0) & sequences.tied[sequences.fresh]
    sure = _is_newer(both.combine_chunks(), chosen, np.maximum(before, 0)) | ~compared
    # Tombstones of a compacted topic may tell no position: what is kept of them depends on what was there.
    named = np.asarray(pc.not_equal(positions.column(_ORDER), ""))[chosen]
    left = np.zeros(keys.count, dtype=bool)
    left[numbers[~(sure & named)]] = True
    return left


def _is_after(positions: pa.Table, end: SourcePosition) -> Marks:
    """Where a change is surely later in its source than the end of all rows."""
    same_log = pc.equal(positions.column(_LOG), end.log)
    return np.asarray(pc.and_(same_log, pc.greater(positions.column(_ORDER), end.order)))


def _is_newer(positions: pa.Table, new: Positions, old: Positions) -> Marks:
    """Where a change is surely no older than another one; what `is_stale` tells where it is otherwise."""

    def pair(index: int) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
        column = positions.column(index)
        return column.take(pa.array(new)), column.take(pa.array(old))

    def marks(array: pa.ChunkedArray) -> Marks:
        return np.asarray(pc.fill_null(array, False))

    offsets, numbers, orders = pair(_OFFSET), pair(_NUMBER), pair(_ORDER)
    later = marks(pc.greater(*offsets)) | (marks(pc.equal(*offsets)) & marks(pc.greater(*numbers)))
    same_log = marks(pc.equal(*pair(_LOG))) & marks(pc.not_equal(orders[1], ""))
    by_position = marks(pc.greater(*pair(_AT))) | marks(pc.greater_equal(*orders))
    in_order = ~same_log | marks(pc.not_equal(*pair(_READ))) | by_position
    return marks(pc.equal(*pair(_PARTITION))) & later & in_order


def _tombstones(
    keys: _Keys, buried: State, tombs: _Tombs, last: Positions, now: datetime, retention: timedelta
) -> Delta:
    """The net change of tombstones: a delete leaves one, an insert takes it away."""
    touched = np.flatnonzero(last >= 0)
    deletes, was_buried = keys.deleted[last[touched]], tombs.of_key[touched] >= 0
    # A delete that the tombstone tells already leaves it as it is.
    same = was_buried & tombs.same[last[touched]]
    removed = tombs.of_key[touched[was_buried & ~(deletes & same)]]
    dead = keys.rows.select([*keys.indexes, tombs.place]).take(pa.array(last[touched[deletes & ~same]]))
    at = pa.array([now], buried.schema.types[-1]).take(pa.array(np.zeros(dead.num_rows, dtype=np.int64)))
    added = pa.table([*dead.columns, at], schema=buried.schema)
    gone = gather(tombs.found, removed)
    return _remembered(keys, buried, gone, added, len(keys.indexes) + 1, before(now, retention))


def _positions(
    keys: _Keys, held: State, positions: pa.Table, moved: Positions, now: datetime, retention: timedelta
) -> Delta:
    """The net change of positions: those of the last changes in place of those before them."""
    chosen = pa.array(moved)
    parts = [*keys.rows.select(keys.indexes).take(chosen).columns, *positions.take(chosen).columns]
    added = pa.table(parts, schema=held.schema)
    known = held.lookup(tuple(range(len(keys.indexes))), keys.hashes)
    numbers = keys.number_of(known.rows, range(len(keys.indexes)))
    touched = np.zeros(keys.count + 1, dtype=bool)
    touched[keys.numbers[moved]] = True
    # The last one stands for those that no change touches.
    gone = gather(known, np.flatnonzero(touched[numbers]))
    newest = pc.max(positions.column(SOURCE_AT).take(chosen)).as_py()
    expired_at = None if newest is None else before(min(newest, now), retention)
    return _remembered(keys, held, gone, added, len(keys.indexes) + SOURCE_AT, expired_at)


def _remembered(
    keys: _Keys, held: State, gone: Delta, added: pa.Table, column: int, expired_at: datetime | None
) -> Delta:
    """What is remembered of keys in place of what was, without some of what is too old."""
    parts = [(gone.rows, -gone.weights), (added, np.ones(added.num_rows, dtype=np.int64))]
    if expired_at is not None:
        found = held.between(column, -np.inf, expired_at.timestamp() * 1e6)
        first = gather(found, np.arange(min(len(found), max(LET_GO, 4 * added.num_rows))))
        width = range(len(keys.indexes))
        mine = [identity([one.column(i) for i in width], one.num_rows) for one in (gone.rows, added)]
        low, high = (np.concatenate(half) for half in zip(*mine, strict=True))
        order = np.lexsort((high, low))
        _, touched = found_among(*identity([first.rows.column(i) for i in width], len(first)), low[order], high[order])
        old = gather(first, np.flatnonzero(~touched))
        parts.append((old.rows, -old.weights))
    rows = pa.concat_tables([table for table, _ in parts]).combine_chunks()
    return consolidate(rows, np.concatenate([weights for _, weights in parts]))


def _one_by_one(contract: TableContract, changes: ColumnChanges, chosen: Marks) -> Sequence[object]:
    """Some changes as `apply` takes them, with their positions."""
    if not chosen.any():
        return ()
    mask = pa.array(chosen)
    named = changes.rows.filter(mask).rename_columns(contract.schema.names).to_pylist()
    carried = {*contract.key, *([contract.sequence] if contract.sequence is not None else [])}
    listed: list[object] = [
        {"delete": {name: row[name] for name in carried}} if deleted else {"insert": row}
        for row, deleted in zip(named, changes.deleted[chosen].tolist(), strict=True)
    ]
    if changes.positions is None:
        return listed
    columns = [column.to_pylist() for column in changes.positions.filter(mask).columns]
    return Captured(listed, [SourcePosition(*parts) for parts in zip(*columns, strict=True)])


def _bag(table: Table, before: State, changes: ColumnChanges) -> TakenColumns:
    """Of a table without a key each change counts; a delete of a row that is not there is rejected."""
    rows, weights = changes.rows, np.where(changes.deleted, -1, 1)
    low, high = identity(rows.columns, rows.num_rows)
    rejected: list[int] = []
    if changes.deleted.any():
        firsts, numbers = number_identities(low, high)
        rejected = _not_there(before.multiplicity(low[firsts], high[firsts]), numbers, weights)
        weights[rejected] = 0
    reasons = tuple(Rejection(table.name, one, "the row to delete is not in the table") for one in rejected)
    return TakenColumns({table.name: combine(rows, weights, low, high)}, Taken(len(rows) - len(rejected), 0, reasons))


def _not_there(held: Weights, numbers: Positions, weights: Weights) -> list[int]:
    """Where rows are taken away, in order, of which there is none at that time."""
    order = np.argsort(numbers, kind="stable")
    of_rows, signed = numbers[order], weights[order]
    begins = np.flatnonzero(np.concatenate(([True], of_rows[1:] != of_rows[:-1])))
    sums = np.cumsum(signed)
    earlier = np.repeat(sums[begins] - signed[begins], np.diff(np.append(begins, len(order))))
    lacking = np.unique(of_rows[held[of_rows] + sums - earlier < 0])
    rejected: list[int] = []
    for number in lacking.tolist():
        left = int(held[number])
        for position in order[of_rows == number].tolist():
            if left + weights[position] < 0:
                rejected.append(int(position))
            else:
                left += int(weights[position])
    return sorted(rejected)
