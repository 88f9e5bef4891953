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

from headrace.plans.catalyst import Java
from headrace.rules.base import Epoch, Workshop
from headrace.state.delta import Delta, consolidate
from headrace.state.extremes import extreme, rank
from headrace.state.hashing import identity
from headrace.state.store import Run, Snapshot


@dataclass(frozen=True, eq=False)
class Folded:
    """One epoch's change of the multiset, and how often each changed value was there before."""

    snapshot: Snapshot
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

    def extremes(self, old: list[Any], low: Any, high: Any, largest: bool) -> list[Any]:
        """Each group's extreme value after the change, given the one before."""
        result = list(old)
        crossed = self.crossings()
        values = self.values().to_pylist()
        lost: set[int] = set()
        best: dict[int, Any] = {}
        for number, crossing, value in zip(self.groups.tolist(), crossed.tolist(), values, strict=True):
            if crossing < 0 and old[number] is not None and rank(value) == rank(old[number]):
                lost.add(number)
            elif crossing > 0:
                known = best.get(number)
                if known is None or (rank(value) > rank(known)) == largest:
                    best[number] = value
        runs = [*self.snapshot.runs, Run(self.change)]
        for number in lost:
            hash_low = low[number] if self.width else np.uint64(0)
            result[number] = extreme(runs, self.width, _key_hash(hash_low), high[number], largest)
        for number, value in best.items():
            if number not in lost:
                known = result[number]
                if known is None or (rank(value) > rank(known)) == largest:
                    result[number] = value
        return result


def _key_hash(value: Any) -> np.uint64:
    return np.uint64(value)


class ValueStore:
    """The values of some columns, per group, with their multiplicity; NULLs are not values."""

    def __init__(
        self, workshop: Workshop, plan: Java, types: tuple[DataType, ...], width: int, places: tuple[int, ...]
    ) -> None:
        self.places = places
        self._width = width
        self._columns = [*range(width), *places]
        self._store = workshop.store([types[i] for i in self._columns], plan, self._fill, weighted=True)

    def _fill(self, frame: Any) -> Any:
        # Not dropna(), which would drop NaN as well.
        kept = frame.where(reduce(lambda a, b: a & b, [F.col(f"c{i}").isNotNull() for i in self.places]))
        named = kept.select(*(F.col(f"c{place}").alias(f"v{i}") for i, place in enumerate(self._columns)))
        return named.groupBy(*named.columns).agg(F.count(F.lit(1)).alias("weight"))

    def fold(self, epoch: Epoch, change: Delta, numbers: npt.NDArray[np.int64], count: int) -> Folded:
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
        delta = consolidate(rows, change.weights[kept])
        groups = _numbers_of(delta, rows, numbers[kept])
        snapshot = epoch.before(self._store.name)
        before = snapshot.contains(delta.low, delta.high)
        epoch.leave(self._store.name, delta)
        return Folded(snapshot, delta, groups, before, self._width)


def _numbers_of(delta: Delta, rows: pa.Table, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The group number of each consolidated row."""
    low, high = identity(rows.columns, rows.num_rows)
    known = {(int(a), int(b)): int(n) for a, b, n in zip(low, high, numbers, strict=True)}
    return np.array([known[(int(a), int(b))] for a, b in zip(delta.low, delta.high, strict=True)], dtype=np.int64)
