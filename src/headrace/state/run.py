"""A run: signed rows that never change, with the indexes made of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state import mapped
from headrace.state.delta import Delta, Positions, concat, end_to_end, gather_rows, surviving
from headrace.state.hashing import Hashes, key_hashes

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

    @cached_property
    def count(self) -> int:
        """The sum of the weights; kept, for whoever shows it asks at every epoch, and most runs stay."""
        return int(self.delta.weights.sum())

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
        return order[spans(*bounds(hashes, wanted))]


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


def bounds(hashes: Hashes, wanted: Hashes) -> tuple[Positions, Positions]:
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


def runs_of(delta: Delta) -> Iterator[Run]:
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


def joined(schema: pa.Schema, runs: Sequence[Run]) -> Iterator[Run]:
    """The rows of all these as one run, with the indexes that they had."""
    parts = [run.delta for run in runs]
    sizes = [len(part) for part in parts]
    if sum(sizes) > mapped.LARGE:
        yield from indexed(runs_of(concat(schema, parts)), runs)
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
        yield from indexed(iter([run]), runs)


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


def indexed(runs: Iterator[Run], sources: Sequence[Run]) -> Iterator[Run]:
    """Runs with the indexes that those had which they were made of."""
    # Another thread may be making an index of one of them.
    keys = {key for source in sources for key in list(source.indexes)}
    for run in runs:
        for key in keys:
            run.index(key)
        yield run
