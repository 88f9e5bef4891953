"""Values in the JSON form that `apply` reads back: decimals and times as strings, bytes as base64."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa


def json_form(value: object) -> Any:
    """One value, with everything inside it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case Decimal():
            return f"{value:f}"
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
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.to_pylist()
    if pa.types.is_decimal(kind):
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return [None if value is None else value.isoformat() for value in column.to_pylist()]
    if pa.types.is_nested(kind) and _has_plain_keys(kind):
        return [json_form(value) for value in column.to_pylist(maps_as_pydicts="strict")]
    return [json_form(value) for value in column.to_pylist()]


def _has_plain_keys(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and not (pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)):
        return False
    return all(_has_plain_keys(kind.field(place).type) for place in range(kind.num_fields))
