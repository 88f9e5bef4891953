"""Tables and views as the client knows them: a Feldera program's inputs and outputs."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as types


def relation(name: str, columns: pa.Schema) -> dict[str, Any]:
    """One table or view; everything in a home can be queried, which there is called materialized."""
    return {
        "name": name,
        "case_sensitive": False,
        "materialized": True,
        "fields": [_field(column) for column in columns],
        "properties": {},
    }


def _field(column: pa.Field) -> dict[str, Any]:
    # The client lowers the names that are not case-sensitive before it looks for them in a row.
    return {
        "name": column.name,
        "case_sensitive": column.name != column.name.lower(),
        "columntype": _column_type(column),
        "lateness": None,
        "default": None,
        "watermark": None,
        "unused": False,
    }


def _column_type(column: pa.Field) -> dict[str, Any]:
    kind = column.type
    described: dict[str, Any] = {"type": _type_name(kind), "nullable": column.nullable}
    if types.is_decimal(kind):
        described |= {"precision": kind.precision, "scale": kind.scale}
    elif types.is_list(kind) or types.is_large_list(kind):
        described["component"] = _column_type(kind.value_field)
    elif types.is_map(kind):
        described |= {"key": _column_type(kind.key_field), "value": _column_type(kind.item_field)}
    elif types.is_struct(kind):
        described["fields"] = [_field(kind.field(i)) for i in range(kind.num_fields)]
    return described


def _type_name(kind: pa.DataType) -> str:
    for matches, name in _NAMES:
        if matches(kind):
            return name
    return "VARCHAR"


_NAMES = (
    (types.is_boolean, "BOOLEAN"),
    (types.is_int8, "TINYINT"),
    (types.is_int16, "SMALLINT"),
    (types.is_int32, "INTEGER"),
    (types.is_int64, "BIGINT"),
    (types.is_float32, "REAL"),
    (types.is_float64, "DOUBLE"),
    (types.is_decimal, "DECIMAL"),
    (types.is_timestamp, "TIMESTAMP"),
    (types.is_date, "DATE"),
    (types.is_time, "TIME"),
    (types.is_duration, "INTERVAL"),
    (types.is_list, "ARRAY"),
    (types.is_large_list, "ARRAY"),
    (types.is_map, "MAP"),
    (types.is_struct, "STRUCT"),
    (types.is_binary, "VARBINARY"),
    (types.is_large_binary, "VARBINARY"),
)
