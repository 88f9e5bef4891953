"""A state that this process holds: a fixed list of runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state.arranged import Arrangement, Order
from headrace.state.delta import Delta, Positions, Weights, concat, gather, negate, number_identities, project, selected
from headrace.state.extremes import extreme
from headrace.state.hashing import Hashes
from headrace.state.repeat import first_of, repeat
from headrace.state.run import IDENTITY, Key, Run, bounds, spans
from headrace.state.state import At, Piece, State, Stretches


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One relation at one epoch, as runs."""

    schema: pa.Schema
    runs: tuple[Run, ...]

    def lookup(self, key: Key, wanted: Hashes, columns: Sequence[int] | None = None) -> Delta:
        """The rows of the wanted key hashes; with columns, only those, under the identity of the whole row."""
        parts = [(run, positions) for run in self.runs if len(positions := run.find(key, wanted))]
        return self._gather(parts, columns)

    def between(self, column: int, low: float, high: float, columns: Sequence[int] | None = None) -> Delta:
        """The rows whose column lies in the closed range; NULLs never do."""
        parts: list[tuple[Run, Positions]] = []
        for run in self.runs:
            values, order = run.ordered(column)
            start, end = (
                np.searchsorted(values, low, side="left"),
                np.searchsorted(values, high, side="right"),
            )
            if end > start:
                parts.append((run, order[start:end]))
        return self._gather(parts, columns)

    def _gather(self, parts: list[tuple[Run, Positions]], columns: Sequence[int] | None) -> Delta:
        wanted = list(range(len(self.schema))) if columns is None else list(columns)
        schema = selected(self.schema.empty_table(), wanted).schema
        return concat(schema, [gather(project(run.delta, wanted), positions) for run, positions in parts])

    def all(self, columns: Sequence[int] | None = None) -> Delta:
        """Every row: only for what has no key to look up by."""
        wanted = list(range(len(self.schema))) if columns is None else list(columns)
        schema = selected(self.schema.empty_table(), wanted).schema
        return concat(schema, [project(run.delta, wanted) for run in self.runs])

    def multiplicity(self, low: Hashes, high: Hashes) -> Weights:
        """The multiplicity of each of the given row identities."""
        total = np.zeros(len(low), dtype=np.int64)
        for owners, weights in self._found(low, high):
            np.add.at(total, owners, weights)
        return total

    def _found(self, low: Hashes, high: Hashes) -> Iterator[tuple[Positions, Weights]]:
        """Run by run, which of the given row identities it has, and with what weights."""
        rising = np.argsort(low)
        wanted = low[rising]
        for run in self.runs:
            hashes, order = run.index(IDENTITY)
            starts, ends = bounds(hashes, wanted)
            owners = np.repeat(rising, ends - starts)
            positions = order[spans(starts, ends)]
            same = run.delta.high[positions] == high[owners]
            yield owners[same], run.delta.weights[positions[same]]

    @property
    def size(self) -> int:
        """How many signed rows the runs have: at least the number of distinct rows."""
        return sum(len(run.delta) for run in self.runs)

    @property
    def count(self) -> int:
        """How many rows the relation has, counted with their multiplicity."""
        return self._count

    @cached_property
    def _count(self) -> int:
        return sum(run.count for run in self.runs)

    @property
    def is_empty(self) -> bool:
        """Whether there is no run."""
        return not self.runs

    @property
    def made_of(self) -> tuple[object, ...]:
        """The runs."""
        return self.runs

    def parts(self) -> Iterator[Delta]:
        """The rows of each run."""
        return (run.delta for run in self.runs)

    def arranged(self, order: Order) -> Arrangement:
        """The runs under an order."""
        return Arrangement(order, self.schema, self.runs)

    def extreme(self, groups: int, low: np.uint64, high: np.uint64, largest: bool) -> Any:
        """The extreme value of a group."""
        return extreme(self.runs, groups, low, high, largest)

    def plus(self, delta: Delta) -> Snapshot:
        """The same with one more run."""
        return Snapshot(self.schema, (*self.runs, Run(delta))) if len(delta) else self

    def stretches(self, longest: int) -> Stretches:
        """The long runs; what small ones hold, and what long ones take away, is counted over all and kept beside."""
        nothing = self.schema.empty_table(), np.zeros(0, dtype=np.int64)
        long = tuple(run for run in self.runs if len(run.delta) > longest)
        if not long:
            return Stretches((Run(self.all()),), None, *nothing, made=True)
        beside = [run.delta for run in self.runs if len(run.delta) <= longest]
        beside.extend(gather(run.delta, np.flatnonzero(run.delta.weights < 0)) for run in long if run.cancelling)
        if not any(map(len, beside)):
            return Stretches(long, None, *nothing)
        rows = pa.concat_tables([part.rows for part in beside])
        low, high = np.concatenate([part.low for part in beside]), np.concatenate([part.high for part in beside])
        firsts, _ = number_identities(low, high)
        present = self.multiplicity(low[firsts], high[firsts])
        return Stretches(long, (low, high), rows.take(pa.array(firsts[present > 0])), present[present > 0])

    def piece(self, at: At, most: int) -> Piece:
        """The next rows, run after run: nothing is copied or repeated before it is wanted."""
        parts = [self.schema.empty_table()]
        told, number, row, times = at.told, at.part, at.row, at.times
        wanted = min(self.count, told + most)
        while told < wanted:
            delta = self.runs[number].delta
            weights = self._told_with(number, row, min(len(delta), row + most))
            weights[0] -= times
            chosen = first_of(weights, wanted - told)
            there = np.flatnonzero(chosen)
            parts.append(repeat(delta.rows.slice(row, len(weights)).take(pa.array(there)), chosen[there]))
            told += int(chosen.sum())
            left = np.flatnonzero(chosen < weights)
            if len(left):
                index = int(left[0])
                row, times = row + index, int(chosen[index]) + (times if index == 0 else 0)
            else:
                row, times = row + len(weights), 0
                if row == len(delta):
                    number, row = number + 1, 0
        return Piece(pa.concat_tables(parts), At(told, number, row, times) if told < self.count else None)

    @cached_property
    def _cancelling(self) -> bool:
        return any(run.cancelling for run in self.runs)

    def _told_with(self, number: int, begin: int, end: int) -> Weights:
        """How often rows of a run are told with it: all that is left of one, with the first run that brings it."""
        delta = self.runs[number].delta
        weights = np.maximum(delta.weights[begin:end], 0)
        if not self._cancelling:
            return weights
        low, high = delta.low[begin:end], delta.high[begin:end]
        before = Snapshot(self.schema, self.runs[:number])._brought(low, high)
        left = np.maximum(self.multiplicity(low, high), 0)
        return np.where((weights > 0) & ~before, left, 0)

    def _brought(self, low: Hashes, high: Hashes) -> npt.NDArray[np.bool_]:
        """Whether some run brings each of the given row identities, whatever others take away."""
        found = np.zeros(len(low), dtype=bool)
        for owners, weights in self._found(low, high):
            found[owners[weights > 0]] = True
        return found


def holding(schema: pa.Schema, *deltas: Delta) -> State:
    """A state of just these rows."""
    return Snapshot(schema, tuple(Run(delta) for delta in deltas if len(delta)))


def difference(before: State, wanted: Delta) -> Delta:
    """What must be added to what is held, so that it becomes what is wanted."""
    if before.is_empty:
        return wanted
    changed = wanted.weights - before.multiplicity(wanted.low, wanted.high)
    positions = np.flatnonzero(changed)
    added = gather(wanted, positions)
    parts = [Delta(added.rows, changed[positions], added.low, added.high)]
    target = holding(before.schema, wanted)
    for part in before.parts():
        unwanted = np.flatnonzero(target.multiplicity(part.low, part.high) == 0)
        parts.append(negate(gather(part, unwanted)))
    return concat(before.schema, parts)
