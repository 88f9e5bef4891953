"""Values in the JSON form that `apply` reads back: decimals and times as strings, bytes as base64.

What Spark can compute and Python cannot hold has a form too: a year outside 1 to 9999 is written as ISO 8601 expands it
(-0044-03-15, +290000-01-01T00:00:00+00:00), and every broken byte of a STRING that is not UTF-8 as U+FFFD.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa

_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# Far more than any column holds.
_MOST_DIGITS = 10_000
# What Python raises for a time that it cannot hold, and for bytes that are no text.
_NO_PYTHON_VALUE = (OverflowError, ValueError, pa.ArrowInvalid)


def json_form(value: object) -> Any:
    """One value, with everything inside it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case Decimal():
            # One of a few letters must not become one of a gigabyte.
            return f"{value:f}" if abs(value.adjusted()) <= _MOST_DIGITS else str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            entries = cast(Mapping[object, object], value)
            return {str(name): json_form(part) for name, part in entries.items()}
        case Sequence():
            return [json_form(part) for part in cast(Sequence[object], value)]
        case _:
            return str(value)


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, each an object by column name."""
    names = table.column_names
    columns = [json_column(column) for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def json_column(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; a MAP whose keys are text or integers becomes an object, any other a list of pairs."""
    try:
        return _python_column(column)
    except _NO_PYTHON_VALUE:
        return [scalar_form(value) for value in column]


def scalar_form(value: Any) -> Any:
    """The form of one Arrow value that Python may not be able to hold."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value.as_buffer().to_pybytes().decode("utf-8", "replace")
    if pa.types.is_date32(kind):
        return date_text(value.value)
    if pa.types.is_timestamp(kind):
        return moment_text(value.value, kind.unit) + ("" if kind.tz is None else "+00:00")
    if pa.types.is_struct(kind):
        return {field.name: scalar_form(value[index]) for index, field in enumerate(kind)}
    if pa.types.is_map(kind):
        pairs = [(scalar_form(entry[0]), scalar_form(entry[1])) for entry in value.values]
        return {str(key): item for key, item in pairs} if _has_plain_keys(kind) else [list(pair) for pair in pairs]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [scalar_form(part) for part in value.values]
    return json_form(value.as_py())


def with_readable_text(table: pa.Table) -> pa.Table:
    """The table with U+FFFD for every broken byte of its text, so that any reader of Arrow takes it."""
    for index, column in enumerate(table.columns):
        if has_text(column.type) and not is_readable(column):
            whole = pa.array([_readable(value) for value in column], column.type)
            table = table.set_column(index, table.field(index), whole)
    return table


def is_readable(column: pa.ChunkedArray) -> bool:
    """Whether all text of a column is UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def has_text(kind: pa.DataType) -> bool:
    """Whether a type is text or has text inside."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    return any(has_text(kind.field(index).type) for index in range(kind.num_fields))


def date_text(days: int) -> str:
    """A date by its days since 1970, in any year of the Gregorian calendar."""
    era, day = divmod(days + 719_468, 146_097)
    # A year that begins with March has its leap day last.
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    number = era * 400 + year + (month >= 10)
    sign = "-" if number < 0 else "+" if number > 9_999 else ""
    return (
        f"{sign}{abs(number):04}-{month + 3 if month < 10 else month - 9:02}-{of_year - (153 * month + 2) // 5 + 1:02}"
    )


def moment_text(ticks: int, unit: str = "us") -> str:
    """A time by its ticks since 1970, without a zone, in any year."""
    seconds, rest = divmod(ticks, _UNITS[unit])
    days, second = divmod(seconds, 86_400)
    micros = rest * 1_000_000 // _UNITS[unit]
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"{date_text(days)}T{clock}{f'.{micros:06}' if micros else ''}"


def _python_column(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.to_pylist()
    if pa.types.is_decimal128(kind) and kind.precision <= 18 and kind.scale >= 0 and not column.null_count:
        return [text for chunk in column.chunks for text in _short_decimals(chunk)]
    if pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    if pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC")):
        # Arrow itself looks the zone up for each value.
        zone = "+00:00" if pa.types.is_timestamp(kind) and kind.tz else ""
        values = column.to_numpy(zero_copy_only=False).tolist()
        # The smallest of all times is NumPy's NULL.
        if any(type(value) is int for value in values) or values.count(None) != column.null_count:
            raise OverflowError("a year that Python cannot hold")
        return [None if value is None else value.isoformat() + zone for value in values]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return [None if value is None else value.isoformat() for value in column.to_pylist()]
    if pa.types.is_nested(kind) and _has_plain_keys(kind):
        return [json_form(value) for value in column.to_pylist(maps_as_pydicts="strict")]
    return [json_form(value) for value in column.to_pylist()]


def _short_decimals(array: pa.Array) -> list[str]:
    """Decimals of one machine word, without NULL, as their digits: Python's own take four times as long."""
    words = np.frombuffer(array.buffers()[1], dtype=np.int64)[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    scale = array.type.scale
    if not scale:
        return [str(number) for number in words.tolist()]
    # With a zero before the point, and a sign before that.
    return [
        f"{text[:-scale]}.{text[-scale:]}"
        for text in (f"{number:0{scale + 1 + (number < 0)}d}" for number in words.tolist())
    ]


def _readable(value: Any) -> Any:
    """An Arrow value as Arrow takes it back, with text that can be read."""
    kind = value.type
    if not value.is_valid or not has_text(kind):
        return value if value.is_valid else None
    if pa.types.is_struct(kind):
        return {field.name: _readable(value[index]) for index, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(_readable(entry[0]), _readable(entry[1])) for entry in value.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_readable(part) for part in value.values]
    return scalar_form(value)


def _has_plain_keys(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and not (pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)):
        return False
    return all(_has_plain_keys(kind.field(index).type) for index in range(kind.num_fields))
