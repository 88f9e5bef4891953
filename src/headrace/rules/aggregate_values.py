"""The multiset of values of each group: (group, value, n), for DISTINCT, MIN and MAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from headrace.plans.trees import Java
from headrace.rules.base import Epoch, NeedsFill
from headrace.rules.context import RuleContext
from headrace.rules.inputs import has_null_key
from headrace.state.delta import Delta, combine_with_positions
from headrace.state.extremes import dense_ranks
from headrace.state.hashing import identity
from headrace.state.state import State


@dataclass(frozen=True, eq=False)
class ChangedValues:
    """One epoch's change of the multiset, and how often each changed value was there before."""

    snapshot: State
    change: Delta
    groups: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]
    width: int

    def crossings(self) -> npt.NDArray[np.int64]:
        """For each changed value: 1 when it appeared, -1 when it went, else 0."""
        after = self.before + self.change.weights
        return (after > 0).astype(np.int64) - (self.before > 0).astype(np.int64)

    def values(self, position: int = 0) -> pa.ChunkedArray:
        """The changed values."""
        return self.change.rows.column(self.width + position)

    def extremes(self, old: pa.Array, low: Any, high: Any, largest: bool) -> pa.Array:
        """Each group's extreme value after the change, given the one before."""
        known, ranks = _ranked(old, self.values(), largest)
        ranks_before, ranks_changed = ranks[: len(old)], ranks[len(old) :]
        held = np.asarray(old.is_valid())
        crossed = self.crossings()
        went = (crossed < 0) & held[self.groups] & (ranks_changed == ranks_before[self.groups])
        lost = np.unique(self.groups[went])
        chosen = _best(held, ranks, self.groups, np.flatnonzero(crossed > 0))
        if len(lost):
            chosen[lost] = len(known) + np.arange(len(lost))
            after = self.snapshot.plus(self.change)
            lows = low[lost] if self.width else np.zeros(len(lost), dtype=np.uint64)
            found = [after.extreme(self.width, a, b, largest) for a, b in zip(lows, high[lost], strict=True)]
            known = pa.concat_arrays([known, pa.array(found, type=old.type)])
        return known.take(pa.array(chosen))


@dataclass(frozen=True, eq=False)
class GrownValues:
    """Values that came, with their groups, where none ever goes."""

    values: pa.ChunkedArray
    groups: npt.NDArray[np.int64]

    def extremes(self, old: pa.Array, low: Any, high: Any, largest: bool) -> pa.Array:
        """Each group's extreme value after them, given the one before."""
        known, ranks = _ranked(old, self.values, largest)
        chosen = _best(np.asarray(old.is_valid()), ranks, self.groups, np.arange(len(self.groups)))
        return known.take(pa.array(chosen))


def _ranked(old: pa.Array, column: pa.ChunkedArray, largest: bool) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The values before and those of a change, one after the other, and how good each is as the extreme."""
    values = column.combine_chunks()
    known = pa.concat_arrays([old, values if values.type == old.type else values.cast(old.type)])
    return known, dense_ranks(known) * (1 if largest else -1)


def _best(held: Any, ranks: Any, groups: Any, appeared: Any) -> Any:
    """Where each group's extreme stands among the values before and those of a change, some of which appeared."""
    count = len(held)
    ranks_before, ranks_changed = ranks[:count], ranks[count:]
    # The best of those that appeared comes last in its group.
    appeared = appeared[np.lexsort((ranks_changed[appeared], groups[appeared]))]
    of = groups[appeared]
    last = np.append(of[1:] != of[:-1], True)[: len(of)]
    best, of = appeared[last], of[last]
    better = ~held[of] | (ranks_changed[best] > ranks_before[of])
    chosen = np.arange(count)
    chosen[of[better]] = count + best[better]
    return chosen


@dataclass(frozen=True, eq=False)
class ValueStore:
    """The values of some columns, per group, with their multiplicity; NULLs are not values."""

    store: str
    width: int
    columns: tuple[int, ...]

    def absorb(self, epoch: Epoch, change: Delta, numbers: npt.NDArray[np.int64], count: int) -> ChangedValues:
        """Record the values that a change brings and takes."""
        kept = np.flatnonzero(~has_null_key(change, self.columns))
        stored = [*range(self.width), *self.columns]
        rows = change.rows.select(stored).take(pa.array(kept)).rename_columns([f"c{i}" for i in range(len(stored))])
        low, high = identity(rows.columns, len(kept))
        delta, firsts = combine_with_positions(rows, change.weights[kept], low, high)
        snapshot = epoch.before(self.store)
        before = snapshot.multiplicity(delta.low, delta.high)
        epoch.record(self.store, delta)
        return ChangedValues(snapshot, delta, numbers[kept[firsts]], before, self.width)


@dataclass(frozen=True, eq=False)
class GrowingValues:
    """The values of some columns where rows only ever come: an extreme is beaten or stays, so nothing is remembered."""

    columns: tuple[int, ...]

    def absorb(self, epoch: Epoch, change: Delta, numbers: npt.NDArray[np.int64], count: int) -> GrownValues:
        """The values that a change brings."""
        if bool(np.any(change.weights < 0)):
            raise NeedsFill
        (column,) = self.columns
        values = change.rows.column(column)
        if values.null_count == 0:
            return GrownValues(values, numbers)
        kept = np.flatnonzero(np.asarray(values.is_valid()))
        return GrownValues(values.take(pa.array(kept)), numbers[kept])


def keep_values(
    context: RuleContext, plan: Java, types: Sequence[DataType], width: int, columns: tuple[int, ...]
) -> ValueStore:
    """Keep the values of some columns; the first columns of the plan are the groups."""
    stored = [*range(width), *columns]

    def fill(frame: Any) -> Any:
        # Not dropna(), which would drop NaN as well.
        kept = frame.where(reduce(lambda a, b: a & b, [F.col(f"c{i}").isNotNull() for i in columns]))
        named = kept.select(*(F.col(f"c{column}").alias(f"v{i}") for i, column in enumerate(stored)))
        return named.groupBy(*named.columns).agg(F.count(F.lit(1)).alias("weight"))

    hidden = context.store([types[i] for i in stored], plan, fill, weighted=True)
    return ValueStore(hidden.name, width, columns)
