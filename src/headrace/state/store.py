"""A store: what one relation holds, as a few runs of signed rows, indexed by the keys its rules need.

A lookup touches only the rows of the keys asked for. Runs are immutable; a new epoch adds one, and small runs are
merged so that their number stays logarithmic. A large run and its indexes lie in mapped files; none is longer than one
stretch, and when rows that cancel each other make up half of a store, it is written anew, part by part.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state import mapped
from headrace.state.delta import (
    Delta,
    Positions,
    Weights,
    combine,
    concat,
    end_to_end,
    gather,
    gather_rows,
    negate,
    surviving,
)
from headrace.state.hashing import Hashes, hash_columns, identity

Key = tuple[int, ...]
IDENTITY: Key = (-1,)


@dataclass(frozen=True, eq=False)
class Run:
    """Signed rows that never change, with the indexes made of them so far."""

    delta: Delta
    indexes: dict[Key, tuple[Hashes, Positions]] = field(default_factory=dict[Key, tuple[Hashes, Positions]])
    orders: dict[int, tuple[npt.NDArray[np.float64], Positions]] = field(
        default_factory=dict[int, tuple[npt.NDArray[np.float64], Positions]]
    )
    extremes: dict[int, tuple[Hashes, Positions]] = field(default_factory=dict[int, tuple[Hashes, Positions]])
    arranged: dict[object, object] = field(default_factory=dict[object, object])
    making: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def cancelling(self) -> int:
        """How many rows take away what another run holds."""
        return int(np.count_nonzero(self.delta.weights < 0))

    def index(self, key: Key) -> tuple[Hashes, Positions]:
        """The sorted key hashes and the positions of their rows; made when first asked for."""
        found = self.indexes.get(key)
        if found is not None:
            return found
        with self.making:
            found = self.indexes.get(key)
            if found is None:
                hashes = self.delta.low if key == IDENTITY else key_hashes(self.delta.rows, key)
                order = np.argsort(hashes, kind="stable")
                found = (mapped.numbers(hashes[order]), mapped.numbers(order))
                self.indexes[key] = found
        return found

    def ordered(self, column: int) -> tuple[npt.NDArray[np.float64], Positions]:
        """The column's values in order, as numbers, and the positions of their rows; NULLs are left out."""
        found = self.orders.get(column)
        if found is None:
            values = self.delta.rows.column(column)
            numbers = order_numbers(values)
            numbers = np.where(np.isnan(numbers), np.inf, numbers)
            positions = np.flatnonzero(np.asarray(values.is_valid()))
            positions = positions[np.argsort(numbers[positions], kind="stable")]
            found = (mapped.numbers(numbers[positions]), mapped.numbers(positions))
            self.orders[column] = found
        return found

    def find(self, key: Key, wanted: Hashes) -> Positions:
        """The positions of all rows whose key hash is among those wanted (sorted, distinct)."""
        hashes, order = self.index(key)
        return order[spans(*_bounds(hashes, wanted))]


def order_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Values as numbers in their own order: exact or rounded, never out of order; NULL and NaN become NaN."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date(kind):
        days = column.cast(pa.date32()).cast(pa.int32()).cast(pa.float64())
        return np.asarray(days.fill_null(np.nan)) * 86_400_000_000.0
    numbers = column.cast(pa.float64(), safe=False)
    return np.asarray(numbers.fill_null(np.nan) if numbers.null_count else numbers).astype(np.float64)


def _bounds(hashes: Hashes, wanted: Hashes) -> tuple[Positions, Positions]:
    """Where each of the wanted hashes, which rise, begins and ends among the sorted ones."""
    starts = np.searchsorted(hashes, wanted, side="left")
    ends = starts.copy()
    if len(hashes):
        # Most are of new rows and nowhere: only for the others is there an end to be looked for.
        there = np.flatnonzero(hashes.take(starts, mode="clip") == wanted)
        ends[there] = np.searchsorted(hashes, wanted[there], side="right")
    return starts, ends


def spans(starts: Positions, ends: Positions) -> Positions:
    """All integers of the half-open spans, one after the other."""
    lengths = ends - starts
    total = int(lengths.sum())
    if total == 0:
        return np.zeros(0, dtype=np.int64)
    offsets = np.repeat(ends - np.cumsum(lengths), lengths)
    return np.arange(total, dtype=np.int64) + offsets


def key_hashes(rows: pa.Table, key: Key) -> Hashes:
    """The hash of each row's key columns."""
    return hash_columns([rows.column(i) for i in key], rows.num_rows)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One relation at one epoch: a fixed list of runs."""

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
        schema = _selected(self.schema.empty_table(), wanted).schema
        return concat(schema, [gather(project(run.delta, wanted), positions) for run, positions in parts])

    def all(self, columns: Sequence[int] | None = None) -> Delta:
        """Every row: only for what has no key to look up by."""
        wanted = list(range(len(self.schema))) if columns is None else list(columns)
        schema = _selected(self.schema.empty_table(), wanted).schema
        return concat(schema, [project(run.delta, wanted) for run in self.runs])

    def contains(self, low: Hashes, high: Hashes) -> Weights:
        """The multiplicity of each of the given row identities."""
        total = np.zeros(len(low), dtype=np.int64)
        for owners, weights in self._found(low, high):
            np.add.at(total, owners, weights)
        return total

    def brought(self, low: Hashes, high: Hashes) -> npt.NDArray[np.bool_]:
        """Whether some run brings each of the given row identities, whatever others take away."""
        found = np.zeros(len(low), dtype=bool)
        for owners, weights in self._found(low, high):
            found[owners[weights > 0]] = True
        return found

    def _found(self, low: Hashes, high: Hashes) -> Iterator[tuple[Positions, Weights]]:
        """Run by run, which of the given row identities it has, and with what weights."""
        rising = np.argsort(low)
        wanted = low[rising]
        for run in self.runs:
            hashes, order = run.index(IDENTITY)
            starts, ends = _bounds(hashes, wanted)
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
        return int(sum(int(run.delta.weights.sum()) for run in self.runs))


def project(delta: Delta, columns: Sequence[int]) -> Delta:
    """Only some columns of a delta, each row still under the identity of the whole row."""
    if list(columns) == list(range(delta.rows.num_columns)):
        return delta
    return Delta(_selected(delta.rows, columns), delta.weights, delta.low, delta.high)


def _selected(rows: pa.Table, columns: Sequence[int]) -> pa.Table:
    return rows.select(list(columns)).rename_columns([f"c{i}" for i in range(len(columns))])


def project_and_sum(delta: Delta, columns: Sequence[int]) -> Delta:
    """Only some columns of a delta, summed again: rows that differed elsewhere are now equal."""
    if list(columns) == list(range(delta.rows.num_columns)):
        return delta
    rows = _selected(delta.rows, columns)
    low, high = identity(rows.columns, len(delta))
    return combine(rows, delta.weights, low, high)


class Store:
    """The newest state of one relation; the loop alone changes it, readers take snapshots."""

    def __init__(self, name: str, schema: pa.Schema) -> None:
        self.name = name
        self.schema = schema
        self._runs: tuple[Run, ...] = ()
        self._turn = threading.Lock()

    def snapshot(self) -> Snapshot:
        """What the store holds now, whatever comes later."""
        return Snapshot(self.schema, self._runs)

    def apply(self, delta: Delta) -> None:
        """Add one epoch's delta, and bring what is held into order."""
        self.add(delta)
        self.merge()

    def prepare(self, delta: Delta) -> tuple[Run, ...]:
        """One epoch's delta as this store will hold it; large ones are written to files here."""
        return tuple(_runs_of(delta))

    def add(self, delta: Delta) -> None:
        """Add one epoch's delta, beside what is held."""
        self.add_runs(self.prepare(delta))

    def add_runs(self, runs: tuple[Run, ...]) -> None:
        """Hold what was prepared, beside what is held."""
        with self._turn:
            self._runs = (*self._runs, *runs)

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
            runs[first:] = _joined(self.schema, runs[first:])
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
            yield from _indexed(_runs_of(concat(self.schema, chosen)), runs)

    def replace(self, parts: Iterable[Delta]) -> None:
        """Hold just the sum of these, whatever was held before; one part at a time is in the heap."""
        self._runs = tuple(run for part in parts for run in _runs_of(part))


def _worth_merging(before: int, last: int) -> bool:
    return before < 2 * last and before + last <= mapped.STRETCH


def _runs_of(delta: Delta) -> Iterator[Run]:
    """A delta as runs: a small one as it is, a large one in stretches outside the heap."""
    if len(delta) <= mapped.LARGE:
        if len(delta):
            yield Run(delta)
        return
    for start in range(0, len(delta), mapped.STRETCH):
        rows = mapped.rows(delta.rows.schema, [delta.rows.slice(start, mapped.STRETCH)])
        part = slice(start, start + mapped.STRETCH)
        low, high = mapped.numbers(delta.low[part]), mapped.numbers(delta.high[part])
        yield Run(Delta(rows, mapped.numbers(delta.weights[part]), low, high))


def _joined(schema: pa.Schema, runs: Sequence[Run]) -> Iterator[Run]:
    """The rows of all these as one run, with the indexes that they had."""
    parts = [run.delta for run in runs]
    sizes = [len(part) for part in parts]
    if sum(sizes) > mapped.LARGE:
        yield from _indexed(_runs_of(concat(schema, parts)), runs)
        return
    rows, weights, low, high = end_to_end(parts)
    kept = surviving(weights, low, high)
    positions = None
    if kept is not None:
        positions, weights = kept
        rows, low, high = gather_rows(rows, positions), low[positions], high[positions]
    if len(weights):
        run = Run(Delta(rows, weights, low, high))
        for key in set[Key].intersection(*(set(source.indexes) for source in runs)):
            run.indexes[key] = _joined_index([source.indexes[key] for source in runs], sizes, positions)
        yield from _indexed(iter([run]), runs)


def _joined_index(
    indexes: Sequence[tuple[Hashes, Positions]], sizes: Sequence[int], positions: Positions | None
) -> tuple[Hashes, Positions]:
    """One index over rows that follow each other, of which those at the positions are left."""
    starts = np.cumsum([0, *sizes])
    hashes = np.concatenate([hashes for hashes, _ in indexes])
    order = np.concatenate([order + start for (_, order), start in zip(indexes, starts[:-1], strict=True)])
    if positions is not None:
        number = np.full(int(starts[-1]), -1, dtype=np.int64)
        number[positions] = np.arange(len(positions))
        order = number[order]
        stays = order >= 0
        hashes, order = hashes[stays], order[stays]
    # Each part is in order already: a stable sort only has to merge them.
    turn = np.argsort(hashes, kind="stable")
    return hashes[turn], order[turn]


def _indexed(runs: Iterator[Run], sources: Sequence[Run]) -> Iterator[Run]:
    """Runs with the indexes that those had which they were made of."""
    # Another thread may be making an index of one of them.
    keys = {key for source in sources for key in list(source.indexes)}
    for run in runs:
        for key in keys:
            run.index(key)
        yield run


def difference(before: Snapshot, wanted: Delta) -> Delta:
    """What must be added to what is held, so that it becomes what is wanted."""
    if not before.runs:
        return wanted
    changed = wanted.weights - before.contains(wanted.low, wanted.high)
    positions = np.flatnonzero(changed)
    added = gather(wanted, positions)
    parts = [Delta(added.rows, changed[positions], added.low, added.high)]
    target = Snapshot(before.schema, (Run(wanted),) if len(wanted) else ())
    for run in before.runs:
        unwanted = np.flatnonzero(target.contains(run.delta.low, run.delta.high) == 0)
        parts.append(negate(gather(run.delta, unwanted)))
    return concat(before.schema, parts)
