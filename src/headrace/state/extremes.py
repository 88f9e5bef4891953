"""The smallest or largest value of one group in a multiset, without reading the group.

Values are ordered as Spark orders them: NULL comes first, NaN is larger than every number, 0.0 equals -0.0, strings and
bytes go by their bytes, structs field by field, arrays element by element.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.state import mapped
from headrace.state.delta import combine
from headrace.state.hashing import Hashes, identity
from headrace.state.store import Positions, Run, key_hashes

_FIRST_CHUNK = 8
Index = tuple[Hashes, Positions]
Places = npt.NDArray[np.int64]


def rank(value: Any) -> tuple[Any, ...]:
    """A sort key in Spark's order."""
    if value is None:
        return (0,)
    if isinstance(value, float) and value != value:
        return (2,)
    if isinstance(value, dict):
        return (1, tuple(rank(part) for part in value.values()))
    if isinstance(value, list):
        return (1, tuple(rank(part) for part in value))
    return (1, value)


def order_places(column: pa.ChunkedArray | pa.Array) -> list[Places]:
    """Each value's place in the column's order, equal for equal values; a struct has several, the first weighs most."""
    kind = column.type
    gone = np.asarray(column.is_null())
    if pa.types.is_null(kind):
        return [np.zeros(len(column), dtype=np.int64)]
    if pa.types.is_struct(kind):
        fields = column.flatten()
        return [(~gone).astype(np.int64), *(places for field in fields for places in order_places(field))]
    if pa.types.is_list(kind):
        return [_places_of([rank(value) for value in column.to_pylist()])]
    places = np.asarray(pc.call_function("rank", [column], pc.RankOptions("ascending", tiebreaker="dense"))).astype(
        np.int64
    )
    return [np.where(gone, np.int64(0), places)]


def dense_places(column: pa.ChunkedArray | pa.Array) -> Places:
    """Each value's place in the column's order as one number, equal for equal values."""
    parts = order_places(column)
    if len(parts) == 1:
        return parts[0]
    order = np.lexsort(parts[::-1])
    steps = [part[order][1:] != part[order][:-1] for part in parts]
    places = np.zeros(len(column), dtype=np.int64)
    places[order[1:]] = np.cumsum(np.logical_or.reduce(steps))
    return places


def _places_of(ranks: list[tuple[Any, ...]]) -> Places:
    """The places of values that only Python can compare."""
    places = np.zeros(len(ranks), dtype=np.int64)
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    for before, after in pairwise(order):
        places[after] = places[before] + (ranks[after] != ranks[before])
    return places


def ordered_index(run: Run, groups: int) -> Index:
    """A run's rows sorted by group and then by value; made when first asked for."""
    cached = run.extremes.get(groups)
    if cached is None:
        hashes = key_hashes(run.delta.rows, tuple(range(groups)))
        if groups == 0:
            hashes = np.zeros(len(run.delta), dtype=np.uint64)
        places = order_places(run.delta.rows.column(groups))
        order = np.lexsort((*reversed(places), hashes))
        cached = (mapped.numbers(hashes[order]), mapped.numbers(order))
        run.extremes[groups] = cached
    return cached


def extreme(runs: Sequence[Run], groups: int, low: np.uint64, high: np.uint64, largest: bool) -> Any:
    """The extreme value of the group with these two hashes, or None when it has no value."""
    indexes = [ordered_index(run, groups) for run in runs]
    bounds = [
        (int(np.searchsorted(h, low, side="left")), int(np.searchsorted(h, low, side="right"))) for h, _ in indexes
    ]
    chunk = _FIRST_CHUNK
    while True:
        parts: list[tuple[Run, Positions]] = []
        edges: list[tuple[Any, ...]] = []
        for run, (_, order), (start, end) in zip(runs, indexes, bounds, strict=True):
            if start == end:
                continue
            first, last = (max(start, end - chunk), end) if largest else (start, min(end, start + chunk))
            parts.append((run, order[first:last]))
            if last - first < end - start:
                edge = int(order[first if largest else last - 1])
                edges.append(rank(run.delta.rows.column(groups)[edge].as_py()))
        # Beyond the nearest edge of a run lie values of other runs whose weights are not all at hand.
        frontier = (max(edges) if largest else min(edges)) if edges else None
        best = _best(parts, groups, high, largest, frontier)
        if best is not None or frontier is None:
            return best
        chunk *= 4


def _best(
    parts: Sequence[tuple[Run, Positions]],
    groups: int,
    high: np.uint64,
    largest: bool,
    frontier: tuple[Any, ...] | None,
) -> Any:
    if not parts:
        return None
    rows = pa.concat_tables([run.delta.rows.take(pa.array(places)) for run, places in parts]).combine_chunks()
    merged = combine(
        rows,
        np.concatenate([run.delta.weights[places] for run, places in parts]),
        np.concatenate([run.delta.low[places] for run, places in parts]),
        np.concatenate([run.delta.high[places] for run, places in parts]),
    )
    if len(merged) == 0:
        return None
    live = merged.weights > 0
    if groups:
        columns = [merged.rows.column(i) for i in range(groups)]
        live &= identity(columns, len(merged))[1] == high
    places = np.flatnonzero(live)
    values = merged.rows.column(groups).take(pa.array(places)).to_pylist()
    if frontier is not None:
        values = [value for value in values if (rank(value) > frontier if largest else rank(value) < frontier)]
    if not values:
        return None
    return max(values, key=rank) if largest else min(values, key=rank)
