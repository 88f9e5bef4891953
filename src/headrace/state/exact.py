"""Exact sums: integers and decimals as whole numbers, in 64 bits while they fit and as Python integers beyond."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]

_SAFE = 1 << 62
_WIDE = Context(prec=80)


def unscaled(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """The whole numbers behind an integer or decimal column (decimals times ten to their scale); NULL is 0."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if len(array) == 0:
        return np.zeros(0, dtype=np.int64)
    if not pa.types.is_decimal(array.type):
        return np.asarray(array.fill_null(0) if array.null_count else array).astype(np.int64)
    words = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset * 2 : (array.offset + len(array)) * 2]
    low, high = words[0::2].copy(), words[1::2].copy()
    if array.null_count:
        gone = np.asarray(array.is_null())
        low[gone], high[gone] = 0, 0
    if bool(np.all(high == (low >> 63))):
        return low
    unsigned = low.view(np.uint64)
    return np.array([(int(h) << 64) + int(u) for h, u in zip(high, unsigned, strict=True)], dtype=object)


def times(left: Numbers, right: Numbers) -> Numbers:
    """The product of two columns of whole numbers, never rounded."""
    if left.dtype != object and right.dtype != object and _peak(left) * _peak(right) < _SAFE:
        return left * right
    return left.astype(object) * right.astype(object)


def plus(left: Numbers, right: Numbers) -> Numbers:
    """The sum of two columns of whole numbers, never rounded."""
    if left.dtype != object and right.dtype != object and _peak(left) + _peak(right) < _SAFE:
        return left + right
    return left.astype(object) + right.astype(object)


def sum_by(numbers: Numbers, groups: npt.NDArray[np.int64], count: int) -> Numbers:
    """The sum of each group's numbers."""
    if numbers.dtype != object and _peak(numbers) * max(len(numbers), 1) < _SAFE:
        totals = np.zeros(count, dtype=np.int64)
        np.add.at(totals, groups, numbers)
        return totals
    totals = np.zeros(count, dtype=object)
    np.add.at(totals, groups, numbers.astype(object))
    return totals


def divide(numbers: Numbers, divisors: Numbers) -> Numbers:
    """Quotients of whole numbers by positive ones, halves rounded away from zero; divided by zero they are zero."""
    safe = np.where(divisors == 0, 1, divisors)
    doubled = plus(times(np.abs(numbers), np.full(len(numbers), 2)), safe)
    quotients = doubled // times(safe, np.full(len(safe), 2))
    return np.where(divisors == 0, 0, np.where(numbers < 0, -quotients, quotients))


def decimals(numbers: Numbers, kind: pa.Decimal128Type, gone: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Whole numbers as a decimal column of the given scale; OverflowError when they do not fit."""
    bound = 10**kind.precision
    if numbers.dtype != object:
        if _peak(numbers) >= bound:
            raise OverflowError
        words = np.empty((len(numbers), 2), dtype=np.int64)
        words[:, 0] = numbers
        words[:, 1] = numbers >> 63
        mask = None if gone is None else pa.py_buffer(np.packbits(~gone, bitorder="little").tobytes())
        return pa.Array.from_buffers(kind, len(numbers), [mask, pa.py_buffer(words.tobytes())])
    if any(abs(int(n)) >= bound for n in numbers):
        raise OverflowError
    values: Sequence[Decimal | None] = [
        None if gone is not None and gone[i] else Decimal(int(n)).scaleb(-kind.scale, _WIDE)
        for i, n in enumerate(numbers)
    ]
    return pa.array(values, type=kind)


def _peak(numbers: Numbers) -> int:
    if len(numbers) == 0:
        return 0
    return max(abs(int(numbers.max())), abs(int(numbers.min())))
