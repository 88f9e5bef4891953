"""The smallest or largest value of one group in a multiset, without reading the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state import mapped
from headrace.state.delta import combine
from headrace.state.hashing import Hashes, hash_columns
from headrace.state.store import Positions, Run, key_hashes, order_numbers

_FIRST_CHUNK = 8
Index = tuple[Hashes, npt.NDArray[np.float64], Positions]


def rank(value: Any) -> tuple[bool, Any]:
    """A sort key in Spark's order: NaN is larger than every number."""
    return (True, 0.0) if isinstance(value, float) and value != value else (False, value)


def value_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Values of any ordered type as numbers that never contradict their order; equal numbers may differ."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        heads = [_head(value.encode() if isinstance(value, str) else value) for value in column.to_pylist()]
        return np.array(heads, dtype=np.float64)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    numbers = order_numbers(column)
    return np.where(np.isnan(numbers), np.inf, numbers)


def _head(value: bytes | None) -> float:
    return float(int.from_bytes((value or b"")[:6].ljust(6, b"\0"), "big"))


def ordered_index(run: Run, groups: int) -> Index:
    """A run's rows sorted by group and then by value; made when first asked for."""
    cached = run.extremes.get(groups)
    if cached is None:
        hashes = key_hashes(run.delta.rows, tuple(range(groups)))
        if groups == 0:
            hashes = np.zeros(len(run.delta), dtype=np.uint64)
        numbers = value_numbers(run.delta.rows.column(groups))
        order = np.lexsort((numbers, hashes))
        cached = (mapped.numbers(hashes[order]), mapped.numbers(numbers[order]), mapped.numbers(order))
        run.extremes[groups] = cached
    return cached


def extreme(runs: Sequence[Run], groups: int, low: np.uint64, high: np.uint64, largest: bool) -> Any:
    """The extreme value of the group with these two hashes, or None when it has no value."""
    indexes = [ordered_index(run, groups) for run in runs]
    bounds = [
        (int(np.searchsorted(h, low, side="left")), int(np.searchsorted(h, low, side="right"))) for h, _, _ in indexes
    ]
    chunk = _FIRST_CHUNK
    while True:
        parts: list[tuple[Run, Positions]] = []
        frontier: float | None = None
        for run, (_, numbers, order), (start, end) in zip(runs, indexes, bounds, strict=True):
            if start == end:
                continue
            first, last = (max(start, end - chunk), end) if largest else (start, min(end, start + chunk))
            parts.append((run, order[first:last]))
            if last - first < end - start:
                edge = float(numbers[first] if largest else numbers[last - 1])
                frontier = edge if frontier is None else (max if largest else min)(frontier, edge)
        best = _best(parts, groups, high, largest, frontier)
        if best is not None or frontier is None:
            return best
        chunk *= 4


def _best(
    parts: Sequence[tuple[Run, Positions]],
    groups: int,
    high: np.uint64,
    largest: bool,
    frontier: float | None,
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
        live &= hash_columns(columns, len(merged), 1) == high
    if frontier is not None:
        numbers = value_numbers(merged.rows.column(groups))
        live &= numbers > frontier if largest else numbers < frontier
    places = np.flatnonzero(live)
    if len(places) == 0:
        return None
    values = merged.rows.column(groups).take(pa.array(places)).to_pylist()
    return max(values, key=rank) if largest else min(values, key=rank)
