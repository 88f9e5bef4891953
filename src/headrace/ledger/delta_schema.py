"""Columns in Delta's own notation, and what a reader of them must know."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from headrace.state.arrow_types import arrow_type
from headrace.types import CARRIED

NO_ZONE = "timestamp_ntz"


def delta_schema(schema: pa.Schema) -> str:
    """An Arrow schema in Delta's own notation."""
    return json.dumps({"type": "struct", "fields": [_field(one) for one in schema]})


def stored_type(kind: pa.DataType) -> pa.DataType:
    """How a type lies in a Delta table: what Delta lacks is kept as a near type."""
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, stored_type(one.type), True) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(stored_type(kind.value_type))
    return kind


def _field(one: pa.Field) -> dict[str, Any]:
    return {"name": one.name, "type": _type(stored_type(one.type)), "nullable": True, "metadata": {}}


_NAMES = {arrow_type(one.kind()): one.delta for one in CARRIED if one.delta}


def _type(kind: pa.DataType) -> Any:
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else NO_ZONE
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(one) for one in kind]}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type),
            "valueType": _type(kind.item_type),
            "valueContainsNull": True,
        }
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": True}
    raise AssertionError(f"no Delta type for {kind}")


def protocol(schema_string: str) -> dict[str, Any]:
    if NO_ZONE not in schema_string:
        return {"minReaderVersion": 1, "minWriterVersion": 4}
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["appendOnly", "invariants", "changeDataFeed", "timestampNtz"],
    }
