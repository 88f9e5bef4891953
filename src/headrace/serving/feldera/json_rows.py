"""Arrow rows as the JSON that a Feldera server writes: exact, one text per row.

Its ad-hoc queries write a decimal as a bare number and a timestamp with a T; its change streams quote decimals and part
date and time by a blank. Timestamps carry no zone in either: they are UTC. NaN and infinities are null.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from headrace.json_forms import moment_text as far_moment_text
from headrace.json_forms import scalar_form


@dataclass(frozen=True)
class JsonStyle:
    """What differs between the routes that write rows."""

    quoted_decimals: bool
    between: str


QUERY = JsonStyle(quoted_decimals=False, between="T")
CHANGES = JsonStyle(quoted_decimals=True, between=" ")

Write = Callable[[Any], str]


def json_rows(table: pa.Table, style: JsonStyle) -> Iterator[str]:
    """Each row as one JSON object, in order."""
    if table.num_columns == 0:
        return iter(["{}"] * table.num_rows)
    keys = [f"{encode_basestring(name)}:" for name in table.column_names]
    keys = [keys[0], *(f",{key}" for key in keys[1:])]
    columns = [_column(key, column, style) for key, column in zip(keys, table.columns, strict=True)]
    return ("{" + "".join(parts) + "}" for parts in zip(*columns, strict=True))


def writer(kind: pa.DataType, style: JsonStyle) -> Write:
    """From a value of an Arrow type to its JSON text; NULL is null at every depth."""
    write = _writer(kind, style)
    return lambda value: "null" if value is None else write(value)


def moment_text(value: datetime, between: str) -> str:
    """A timestamp without its zone, with as many digits as it needs: none, three or six."""
    return value.replace(tzinfo=None).isoformat(between, _precision(value.microsecond))


def number_text(value: float) -> str | None:
    """The shortest text that reads back as the number; none where JSON has no such number."""
    return repr(value) if math.isfinite(value) else None


def _column(key: str, column: pa.ChunkedArray, style: JsonStyle) -> list[str]:
    null = f"{key}null"
    return [null if text is None else key + text for text in column_texts(column, style)]


def column_texts(column: pa.ChunkedArray, style: JsonStyle) -> list[str | None]:
    """The JSON text of each value; none for NULL."""
    write = _writer(column.type, style)
    try:
        return [None if value is None else write(value) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        # What Python cannot hold: a year outside 1 to 9999, or text that is not UTF-8.
        return [_far_text(value, style) for value in column]


def _far_text(value: Any, style: JsonStyle) -> str | None:
    if not value.is_valid:
        return None
    if types.is_timestamp(value.type):
        return f'"{far_moment_text(value.value, value.type.unit).replace("T", style.between)}"'
    return json.dumps(scalar_form(value), ensure_ascii=False)


def _writer(kind: pa.DataType, style: JsonStyle) -> Write:
    if types.is_boolean(kind):
        return lambda value: "true" if value else "false"
    if types.is_integer(kind):
        return str
    if types.is_floating(kind):
        return _single if types.is_float32(kind) else lambda value: number_text(value) or "null"
    if types.is_decimal(kind):
        return _quoted_decimal if style.quoted_decimals else lambda value: f"{value:f}"
    if types.is_timestamp(kind):
        return lambda value: f'"{moment_text(value, style.between)}"'
    if types.is_date(kind):
        return lambda value: f'"{value.isoformat()}"'
    if types.is_time(kind):
        return _time
    if types.is_duration(kind):
        return _duration
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_writer(writer(kind.value_type, style))
    if types.is_map(kind):
        return _map_writer(writer(kind.item_type, style))
    if types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return _struct_writer([(field.name, writer(field.type, style)) for field in fields])
    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: f'"{base64.b64encode(value).decode("ascii")}"'
    return lambda value: encode_basestring(str(value))


def _quoted_decimal(value: Decimal) -> str:
    return f'"{value:f}"'


def _single(value: float) -> str:
    """A 32-bit number by the digits it has, not by those of the double that holds it."""
    for digits in (6, 7, 8, 9):
        text = f"{value:.{digits}g}"
        if pa.scalar(float(text), pa.float32()).as_py() == value:
            return number_text(float(text)) or "null"
    return "null"


def _time(value: time) -> str:
    return f'"{value.isoformat(_precision(value.microsecond))}"'


def _duration(value: timedelta) -> str:
    """An ISO 8601 duration, which pandas and our own intake read."""
    whole = abs(value)
    seconds = (
        f"{whole.seconds}.{whole.microseconds:06}".rstrip("0").rstrip(".") if whole.microseconds else whole.seconds
    )
    return f'"{"-" if value < timedelta(0) else ""}P{whole.days}DT{seconds}S"'


def _precision(microsecond: int) -> str:
    if microsecond == 0:
        return "seconds"
    return "microseconds" if microsecond % 1000 else "milliseconds"


def _list_writer(write: Write) -> Write:
    return lambda values: "[" + ",".join(map(write, values)) + "]"


def _map_writer(write: Write) -> Write:
    def write_map(pairs: Sequence[tuple[Any, Any]]) -> str:
        return "{" + ",".join(f"{encode_basestring(_key(key))}:{write(value)}" for key, value in pairs) + "}"

    return write_map


def _struct_writer(fields: Sequence[tuple[str, Write]]) -> Write:
    keys = [(name, f"{encode_basestring(name)}:", write) for name, write in fields]
    return lambda value: "{" + ",".join(key + write(value[name]) for name, key, write in keys) + "}"


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=str)
