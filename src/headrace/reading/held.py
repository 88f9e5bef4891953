"""What a relation holds, piece by piece: nothing is copied or repeated before it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.state.delta import Weights
from headrace.state.repeat import first_of, repeat
from headrace.state.store import Snapshot


@dataclass(frozen=True)
class At:
    """How far one has read: so many rows were told, up to a row of a run, and of that row so many."""

    told: int = 0
    run: int = 0
    row: int = 0
    times: int = 0


BEGIN = At()


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows, and where the others follow; None after the last."""

    rows: pa.Table
    after: At | None


class Held:
    """The rows of a snapshot, each as often as it is there; it keeps the runs of a store, and no rows of its own."""

    def __init__(self, snapshot: Snapshot, names: Sequence[str]) -> None:
        self._snapshot = snapshot
        self._names = list(names)

    @cached_property
    def count(self) -> int:
        """How many rows there are."""
        return self._snapshot.count

    @cached_property
    def _cancelling(self) -> bool:
        return any(run.cancelling for run in self._snapshot.runs)

    def piece(self, at: At, most: int) -> Piece:
        """The next rows, at most so many."""
        parts = [self._snapshot.schema.empty_table()]
        told, number, row, times = at.told, at.run, at.row, at.times
        wanted = min(self.count, told + most)
        while told < wanted:
            delta = self._snapshot.runs[number].delta
            weights = self._weights(number, row, min(len(delta), row + most))
            weights[0] -= times
            chosen = first_of(weights, wanted - told)
            there = np.flatnonzero(chosen)
            parts.append(repeat(delta.rows.slice(row, len(weights)).take(pa.array(there)), chosen[there]))
            told += int(chosen.sum())
            left = np.flatnonzero(chosen < weights)
            if len(left):
                position = int(left[0])
                row, times = row + position, int(chosen[position]) + (times if position == 0 else 0)
            else:
                row, times = row + len(weights), 0
                if row == len(delta):
                    number, row = number + 1, 0
        rows = pa.concat_tables(parts).rename_columns(self._names)
        return Piece(rows, At(told, number, row, times) if told < self.count else None)

    def _weights(self, number: int, begin: int, end: int) -> Weights:
        """How often rows of a run are told with it: all that is left of one, with the first run that brings it."""
        runs = self._snapshot.runs
        delta = runs[number].delta
        weights = np.maximum(delta.weights[begin:end], 0)
        if not self._cancelling:
            return weights
        low, high = delta.low[begin:end], delta.high[begin:end]
        before = Snapshot(self._snapshot.schema, runs[:number]).brought(low, high)
        left = np.maximum(self._snapshot.contains(low, high), 0)
        return np.where((weights > 0) & ~before, left, 0)
