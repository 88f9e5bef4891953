"""The multiset of values of each group: (group, value, n), for DISTINCT, MIN and MAX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from headrace.plans.trees import Java
from headrace.rules.base import Epoch, RuleContext
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

    def values(self, place: int = 0) -> pa.ChunkedArray:
        """The changed values."""
        return self.change.rows.column(self.width + place)

    def extremes(self, old: pa.Array, low: Any, high: Any, largest: bool) -> pa.Array:
        """Each group's extreme value after the change, given the one before."""
        values = self.values().combine_chunks()
        known = pa.concat_arrays([old, values if values.type == old.type else values.cast(old.type)])
        ranks = dense_ranks(known) * (1 if largest else -1)
        ranks_before, ranks_changed = ranks[: len(old)], ranks[len(old) :]
        held = np.asarray(old.is_valid())
        crossed = self.crossings()
        went = (crossed < 0) & held[self.groups] & (ranks_changed == ranks_before[self.groups])
        lost = np.unique(self.groups[went])
        # The best of those that appeared comes last in its group.
        appeared = np.flatnonzero(crossed > 0)
        appeared = appeared[np.lexsort((ranks_changed[appeared], self.groups[appeared]))]
        groups = self.groups[appeared]
        last = np.append(groups[1:] != groups[:-1], True)[: len(groups)]
        best, groups = appeared[last], groups[last]
        better = ~held[groups] | (ranks_changed[best] > ranks_before[groups])
        chosen = np.arange(len(old))
        chosen[groups[better]] = len(old) + best[better]
        if len(lost):
            chosen[lost] = len(known) + np.arange(len(lost))
            after = self.snapshot.plus(self.change)
            lows = low[lost] if self.width else np.zeros(len(lost), dtype=np.uint64)
            found = [after.extreme(self.width, a, b, largest) for a, b in zip(lows, high[lost], strict=True)]
            known = pa.concat_arrays([known, pa.array(found, type=old.type)])
        return known.take(pa.array(chosen))


class ValueStore:
    """The values of some columns, per group, with their multiplicity; NULLs are not values."""

    def __init__(
        self, context: RuleContext, plan: Java, types: tuple[DataType, ...], width: int, places: tuple[int, ...]
    ) -> None:
        self.places = places
        self._width = width
        self._columns = [*range(width), *places]
        self._store = context.store([types[i] for i in self._columns], plan, self._fill, weighted=True)

    def _fill(self, frame: Any) -> Any:
        # Not dropna(), which would drop NaN as well.
        kept = frame.where(reduce(lambda a, b: a & b, [F.col(f"c{i}").isNotNull() for i in self.places]))
        named = kept.select(*(F.col(f"c{place}").alias(f"v{i}") for i, place in enumerate(self._columns)))
        return named.groupBy(*named.columns).agg(F.count(F.lit(1)).alias("weight"))

    def absorb(self, epoch: Epoch, change: Delta, numbers: npt.NDArray[np.int64], count: int) -> ChangedValues:
        """Record the values that a change brings and takes."""
        present = np.ones(len(change), dtype=bool)
        for place in self.places:
            column = change.rows.column(place)
            if column.null_count:
                present &= np.asarray(column.is_valid())
        kept = np.flatnonzero(present)
        rows = (
            change.rows.select(self._columns)
            .take(pa.array(kept))
            .rename_columns([f"c{i}" for i in range(len(self._columns))])
        )
        low, high = identity(rows.columns, len(kept))
        delta, firsts = combine_with_positions(rows, change.weights[kept], low, high)
        snapshot = epoch.before(self._store.name)
        before = snapshot.multiplicity(delta.low, delta.high)
        epoch.record(self._store.name, delta)
        return ChangedValues(snapshot, delta, numbers[kept[firsts]], before, self._width)
