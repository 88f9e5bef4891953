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
from headrace.state.delta import Positions, combine, end_to_end, gather
from headrace.state.hashing import Hashes, identity, key_hashes
from headrace.state.run import Run

_FIRST_CHUNK = 8
Index = tuple[Hashes, Positions]
Ranks = npt.NDArray[np.int64]


def sort_key(value: Any) -> tuple[Any, ...]:
    """A sort key in Spark's order."""
    if value is None:
        return (0,)
    if isinstance(value, float) and value != value:
        return (2,)
    if isinstance(value, dict):
        return (1, tuple(sort_key(part) for part in value.values()))
    if isinstance(value, list):
        return (1, tuple(sort_key(part) for part in value))
    return (1, value)


def order_ranks(column: pa.ChunkedArray | pa.Array) -> list[Ranks]:
    """Each value's rank in the column's order, equal for equal values; a struct has several, the first weighs most."""
    kind = column.type
    gone = np.asarray(column.is_null())
    if pa.types.is_null(kind):
        return [np.zeros(len(column), dtype=np.int64)]
    if pa.types.is_struct(kind):
        fields = column.flatten()
        return [(~gone).astype(np.int64), *(ranks for field in fields for ranks in order_ranks(field))]
    if pa.types.is_list(kind):
        return [_ranks_of([sort_key(value) for value in column.to_pylist()])]
    ranks = np.asarray(pc.call_function("rank", [column], pc.RankOptions("ascending", tiebreaker="dense"))).astype(
        np.int64
    )
    return [np.where(gone, np.int64(0), ranks)]


def dense_ranks(column: pa.ChunkedArray | pa.Array) -> Ranks:
    """Each value's rank in the column's order as one number, equal for equal values."""
    parts = order_ranks(column)
    if len(parts) == 1:
        return parts[0]
    order = np.lexsort(parts[::-1])
    steps = [part[order][1:] != part[order][:-1] for part in parts]
    ranks = np.zeros(len(column), dtype=np.int64)
    ranks[order[1:]] = np.cumsum(np.logical_or.reduce(steps))
    return ranks


def _ranks_of(keys: list[tuple[Any, ...]]) -> Ranks:
    """The ranks of values that only Python can compare."""
    ranks = np.zeros(len(keys), dtype=np.int64)
    order = sorted(range(len(keys)), key=keys.__getitem__)
    for before, after in pairwise(order):
        ranks[after] = ranks[before] + (keys[after] != keys[before])
    return ranks


def ordered_index(run: Run, groups: int) -> Index:
    """A run's rows sorted by group and then by value; made when first asked for."""
    cached = run.extremes.get(groups)
    if cached is None:
        hashes = key_hashes(run.delta.rows, tuple(range(groups)))
        if groups == 0:
            hashes = np.zeros(len(run.delta), dtype=np.uint64)
        ranks = order_ranks(run.delta.rows.column(groups))
        order = np.lexsort((*reversed(ranks), hashes))
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
                edges.append(sort_key(run.delta.rows.column(groups)[edge].as_py()))
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
    merged = combine(*end_to_end([gather(run.delta, positions) for run, positions in parts]))
    if len(merged) == 0:
        return None
    live = merged.weights > 0
    if groups:
        columns = [merged.rows.column(i) for i in range(groups)]
        live &= identity(columns, len(merged))[1] == high
    positions = np.flatnonzero(live)
    values = merged.rows.column(groups).take(pa.array(positions)).to_pylist()
    if frontier is not None:
        values = [value for value in values if (sort_key(value) > frontier if largest else sort_key(value) < frontier)]
    if not values:
        return None
    return max(values, key=sort_key) if largest else min(values, key=sort_key)
