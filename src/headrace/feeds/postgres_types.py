"""How columns and values of a relation are written in PostgreSQL: its types, and the text that COPY reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.json_forms import date_text, is_readable, json_column, moment_text
from headrace.state.arrow_compute import pc

_TYPES: Mapping[type[DataType], str] = {
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    DecimalType: "numeric",
    BooleanType: "boolean",
    StringType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamp with time zone",
    TimestampNTZType: "timestamp without time zone",
    TimeType: "time without time zone",
    DayTimeIntervalType: "interval",
    # Only NULL is in such a column.
    NullType: "text",
    ArrayType: "jsonb",
    MapType: "jsonb",
    StructType: "jsonb",
}
# What a column that somebody else has made may be, beside the type itself: all values fit, or are refused one by one.
_ALSO: Mapping[str, tuple[str, ...]] = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying", "citext", "uuid", "json", "jsonb"),
    "jsonb": ("json", "text"),
}

# Julian day 0, of which PostgreSQL's calendar begins, and the last day that it has, from 1970.
_FIRST_DAY, _LAST_DAY = -2_440_588, 2_145_042_905
# The years that are written with four digits alone: 1 to 9999.
_PLAIN_DAYS = (-719_162, 2_932_896)
_DAY = 86_400_000_000
_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

# Rows by their index, each with the reason.
Faults = dict[int, str]


def postgres_type(kind: DataType) -> str:
    """The type of a column that holds all that PostgreSQL can hold of a type."""
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return _TYPES[type(kind)]


def takes(found: str, kind: DataType, *, is_enum: bool = False) -> bool:
    """Whether a column of a type, as PostgreSQL writes it, takes the values of a column of ours."""
    wanted = postgres_type(kind)
    if found == wanted or (is_enum and wanted == "text"):
        return True
    name, _, parameters = found.partition("(")
    if name == "numeric" and isinstance(kind, DecimalType):
        if not parameters:
            return True
        precision, scale = (int(part) for part in parameters.rstrip(")").split(","))
        return scale >= kind.scale and precision - scale >= kind.precision - kind.scale
    return name in _ALSO.get(wanted, ()) and not (name == "numeric" and parameters)


def copy_text(column: pa.ChunkedArray, kind: DataType) -> tuple[pa.Array, Faults]:
    """The values of a column as COPY reads them, NULL where they are, and which of them PostgreSQL has not."""
    faults: Faults = {}
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    checked = _CHECKED.get(type(kind))
    return _PLAIN.get(type(kind), _as_it_is)(whole) if checked is None else checked(whole, faults), faults


def _as_it_is(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_string())


def _text(values: pa.Array, faults: Faults) -> pa.Array:
    if not is_readable(pa.chunked_array([values])):
        broken = [index for index, value in enumerate(values) if value.is_valid and not _is_text(value)]
        faults.update(dict.fromkeys(broken, "its text is not UTF-8"))
        values = _without(values, broken)
    held = pc.match_substring(values, "\x00")
    if pc.any(held).as_py():
        found = np.flatnonzero(held.fill_null(False)).tolist()
        faults.update(dict.fromkeys(found, "its text has a NUL, which PostgreSQL does not store"))
        values = _without(values, found)
    return _escaped(values.cast(pa.large_string()))


def _bytes(values: pa.Array) -> pa.Array:
    return _made(None if value is None else "\\\\x" + value.hex() for value in values.to_pylist())


def _date(values: pa.Array, faults: Faults) -> pa.Array:
    days = values.cast(pa.int32())
    return _in_years(values, days, 1, faults, lambda value: _year(date_text(value)), "date")


def _timestamp(values: pa.Array, faults: Faults) -> pa.Array:
    zone = "" if values.type.tz is None else "+00"
    ticks = values.cast(pa.int64())
    return _in_years(
        values, ticks, _DAY, faults, lambda value: _year(moment_text(value).replace("T", " "), zone), "timestamp"
    )


def _in_years(
    values: pa.Array, counts: pa.Array, day: int, faults: Faults, written: Callable[[int], str], name: str
) -> pa.Array:
    """Days or ticks of one, as they are written; those before or after the four-digit years one by one."""
    least, most = pc.min_max(counts).as_py().values()
    first, last = _PLAIN_DAYS[0] * day, (_PLAIN_DAYS[1] + 1) * day - 1
    if least is None or (least >= first and most <= last):
        return values.cast(pa.large_string())
    texts: list[str | None] = []
    for index, count in enumerate(counts.to_pylist()):
        if count is not None and not _FIRST_DAY * day <= count <= (_LAST_DAY + 1) * day - 1:
            faults[index] = f"its {name} is outside of PostgreSQL's calendar, which begins with 4714-11-24 BC"
            count = None
        texts.append(None if count is None else written(count))
    return _made(texts)


def _year(text: str, zone: str = "") -> str:
    """A time in ISO 8601, with a year as PostgreSQL writes those before 1 and after 9999."""
    sign = text[0] if text[0] in "+-" else ""
    year, _, rest = text.removeprefix(sign).partition("-")
    number = -int(year) if sign == "-" else int(year)
    if number > 0:
        return f"{year}-{rest}{zone}"
    return f"{1 - number:04}-{rest}{zone} BC"


def _interval(values: pa.Array) -> pa.Array:
    micros = values.cast(pa.int64()).cast(pa.large_string())
    unit, space = (pa.scalar(text, pa.large_string()) for text in ("microseconds", " "))
    return pc.binary_join_element_wise(micros, unit, space)


def _json(values: pa.Array, faults: Faults) -> pa.Array:
    texts: list[str | None] = []
    # Equal maps are equal texts, whatever the order of their entries: PostgreSQL takes them for one key.
    for index, value in enumerate(json_column(pa.chunked_array([values]))):
        text = None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if text is not None and "\\u0000" in text and _NUL_IN_JSON.search(text):
            faults[index] = "its text has a NUL, which PostgreSQL does not store"
            text = None
        texts.append(text)
    return _escaped(_made(texts))


def _null(values: pa.Array) -> pa.Array:
    return pa.nulls(len(values), pa.large_string())


def _escaped(values: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(values, r"[\\\n\r\t]")).as_py():
        for found, written in _ESCAPES:
            values = pc.replace_substring(values, found, written)
    return values


def _without(values: pa.Array, rows: Iterable[int]) -> pa.Array:
    kept = np.ones(len(values), dtype=bool)
    kept[list(rows)] = False
    return pc.if_else(pa.array(kept), values, pa.scalar(None, values.type))


def _made(texts: Iterable[str | None]) -> pa.Array:
    return pa.array(list(texts), pa.large_string())


def _is_text(value: pa.Scalar) -> bool:
    try:
        value.as_buffer().to_pybytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_PLAIN: Mapping[type[DataType], Callable[[pa.Array], pa.Array]] = {
    BinaryType: _bytes,
    DayTimeIntervalType: _interval,
    NullType: _null,
}
_CHECKED: Mapping[type[DataType], Callable[[pa.Array, Faults], pa.Array]] = {
    StringType: _text,
    DateType: _date,
    TimestampType: _timestamp,
    TimestampNTZType: _timestamp,
    ArrayType: _json,
    MapType: _json,
    StructType: _json,
}
