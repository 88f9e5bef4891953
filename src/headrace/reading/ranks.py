"""Values of a column as Python compares them in the column's own order, and back as Arrow holds them.

Times are whole numbers and text is its bytes: so a year that Python cannot hold, and text that is no UTF-8, have their
place in the order as well.
"""

from __future__ import annotations

import base64
import binascii
import math
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

_LONGEST = 100_000


def ranks(column: pa.ChunkedArray) -> list[Any]:
    """The rank of each value, None for NULL; no rank of a column equals another's of a value that differs."""
    kind = column.type
    if pa.types.is_timestamp(kind) and not column.null_count:
        return column.to_numpy(zero_copy_only=False).view(np.int64).tolist()
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_pylist()
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_pylist()
    if pa.types.is_string(kind):
        return column.cast(pa.binary()).to_pylist()
    if pa.types.is_floating(kind):
        # NaN is the largest number, and equal to itself.
        return [
            None if one is None else (math.isnan(one), 0.0 if math.isnan(one) else one) for one in column.to_pylist()
        ]
    return column.to_pylist()


def of_rank(rank: Any, kind: pa.DataType) -> pa.Array:
    """The one value of a rank, or NULL."""
    if rank is None:
        return pa.nulls(1, kind)
    if pa.types.is_floating(kind):
        return pa.array([math.nan if rank[0] else rank[1]], kind)
    if pa.types.is_timestamp(kind):
        return pa.array([rank], pa.int64()).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array([rank], pa.int32()).cast(kind)
    if pa.types.is_string(kind):
        return pa.array([rank], pa.binary()).cast(kind, safe=False)
    return pa.array([rank], kind)


def rank_to_json(rank: Any) -> Any:
    """A rank as JSON can hold it."""
    match rank:
        case bytes():
            return base64.b64encode(rank).decode("ascii")
        case Decimal():
            return f"{rank:f}"
        case (is_nan, number):
            return "NaN" if is_nan else float(number).hex()
        case _:
            return rank


def rank_from_json(value: Any, kind: pa.DataType) -> Any:
    """What `rank_to_json` was given for a column of this type; ValueError for anything else."""
    if value is None:
        return None
    if pa.types.is_boolean(kind):
        return _only(value, bool)
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        number = _only(value, int)
        bits = kind.bit_width
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError("a number that the column has no room for")
        return number
    text = _only(value, str)
    if len(text) > _LONGEST:
        raise ValueError("a text that is too long")
    if pa.types.is_floating(kind):
        return (True, 0.0) if text == "NaN" else (False, float.fromhex(text))
    if pa.types.is_decimal(kind):
        return _decimal(text, kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError("no base64") from error
    raise ValueError("a column without an order")


def _only(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"no {kind.__name__}")
    return value


def _decimal(text: str, kind: pa.DataType) -> Decimal:
    try:
        number = Decimal(text)
        return pa.scalar(number, kind).as_py()
    except (InvalidOperation, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError("no decimal of the column") from error
