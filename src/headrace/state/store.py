"""A store: what one relation holds, as a few runs of signed rows, indexed by the keys its rules need.

A lookup touches only the rows of the keys asked for. Runs are immutable; a new epoch adds one, and small runs are
merged so that their number stays logarithmic. A large run and its indexes lie in mapped files; none is longer than one
stretch, and when rows that cancel each other make up half of a store, it is written anew, part by part.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.state import mapped
from headrace.state.delta import Delta, concat, gather
from headrace.state.run import Run, indexed, joined, runs_of
from headrace.state.snapshot import Snapshot
from headrace.state.state import State

# A delta as a store holds it, for whoever has it prepared before it is shown.
Addition = tuple[Run, ...]


class Store:
    """The newest state of one relation; the loop alone changes it, readers take snapshots."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.schema = schema
        self._runs: tuple[Run, ...] = ()
        self._turn = threading.Lock()

    def snapshot(self) -> State:
        """What the store holds now, whatever comes later."""
        return Snapshot(self.schema, self._runs)

    @property
    def run_count(self) -> int:
        """In how many runs its rows lie: each makes a lookup a little slower."""
        return len(self._runs)

    def apply(self, delta: Delta) -> None:
        """Add one epoch's delta, and bring what is held into order."""
        self.add(delta)
        self.merge()

    def prepare(self, delta: Delta) -> Addition:
        """One epoch's delta as this store will hold it; large ones are written to files here."""
        return tuple(runs_of(delta))

    def add(self, delta: Delta) -> None:
        """Add one epoch's delta, beside what is held."""
        self.add_prepared(self.prepare(delta))

    def add_prepared(self, addition: Addition) -> None:
        """Hold what was prepared, beside what is held."""
        with self._turn:
            self._runs = (*self._runs, *addition)

    def merge(self) -> None:
        """Hold the same rows in fewer runs; other threads may read and add meanwhile."""
        runs = self._runs
        merged = tuple(self._merged(runs))
        with self._turn:
            if self._runs[: len(runs)] == runs:
                self._runs = (*merged, *self._runs[len(runs) :])

    def _merged(self, held: Sequence[Run]) -> Sequence[Run]:
        runs = list(held)
        # Merge those at the end of which none is clearly larger than all that follow it: each row is merged a
        # logarithmic number of times, and a large first run is left alone by small changes.
        first, last = len(runs) - 1, len(runs[-1].delta) if runs else 0
        while first > 0 and _worth_merging(len(runs[first - 1].delta), last):
            first -= 1
            last += len(runs[first].delta)
        if first < len(runs) - 1:
            runs[first:] = joined(self.schema, runs[first:])
        size = sum(len(run.delta) for run in runs)
        if size > mapped.STRETCH and 4 * sum(run.cancelling for run in runs) > size:
            return list(self._rewritten(runs, size))
        return runs

    def _rewritten(self, runs: Sequence[Run], size: int) -> Iterator[Run]:
        """The same rows without those that cancel, one range of identities after the other."""
        parts = 2 * size // mapped.STRETCH + 1
        edges = [np.uint64(i * (2**64 - 1) // parts) for i in range(1, parts)]
        owners = [np.searchsorted(edges, run.delta.low, side="right") for run in runs]
        for part in range(parts):
            chosen = [gather(run.delta, np.flatnonzero(o == part)) for run, o in zip(runs, owners, strict=True)]
            yield from indexed(runs_of(concat(self.schema, chosen)), runs)

    def replace(self, parts: Iterable[Delta]) -> None:
        """Hold just the sum of these, whatever was held before; one part at a time is in the heap."""
        self._runs = tuple(run for part in parts for run in runs_of(part))


def _worth_merging(before: int, last: int) -> bool:
    return before < 2 * last and before + last <= mapped.STRETCH
