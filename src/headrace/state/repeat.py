"""Rows as often as their weights say, and no more of them than is wanted."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.state.delta import Weights


def first_of(weights: Weights, most: int) -> Weights:
    """How often each row comes among the first so many; weights are not negative."""
    return np.diff(np.minimum(np.cumsum(weights), most), prepend=0)


def repeat(rows: pa.Table, times: Weights) -> pa.Table:
    """Rows, each so many times in a row."""
    if bool(np.all(times == 1)):
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(times)), times)))


def repeated_bytes(rows: pa.Table, times: Weights) -> int:
    """How many bytes the rows would have, each so many times; never too few."""
    return sum(_bytes(column, times) for column in rows.columns)


def _bytes(column: pa.ChunkedArray, times: Weights) -> int:
    total = int(times.sum())
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.call_function("binary_length", [column]).cast(pa.int64()).fill_null(0).to_numpy()
        return int(lengths @ times) + 4 * total
    try:
        return total * (kind.bit_width + 8) // 8
    except ValueError:
        # Of what is nested, a row has no more than all rows have.
        return column.nbytes * max(1, total - len(times) + 1)
