"""/openapi.json: every route, and of the data API a path for each relation, with the columns that it has now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.catalog.catalog import Table
from headrace.errors import HeadraceError
from headrace.serving.data.answers import MEDIA_TYPE
from headrace.serving.data.parameters import RESERVED
from headrace.serving.data.routes import DataApi, data_of
from headrace.serving.data.shown import Shown
from headrace.serving.openapi import refusals
from headrace.serving.rights import reads_itself
from headrace.serving.service import Service, service_of

router = APIRouter(include_in_schema=False)

_FLOAT = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_PLAIN: Mapping[type[DataType], dict[str, Any]] = {
    ByteType: {"type": "integer", "minimum": -128, "maximum": 127},
    ShortType: {"type": "integer", "minimum": -32768, "maximum": 32767},
    IntegerType: {"type": "integer", "format": "int32"},
    LongType: {"type": "integer", "format": "int64"},
    DoubleType: _FLOAT,
    FloatType: _FLOAT,
    BooleanType: {"type": "boolean"},
    StringType: {"type": "string"},
    BinaryType: {"type": "string", "contentEncoding": "base64"},
    DateType: {"type": "string", "format": "date"},
    TimestampType: {"type": "string", "format": "date-time"},
    DecimalType: {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"},
}
_HEADERS = {
    "ETag": {"description": "The same as long as the relation has not changed.", "schema": {"type": "string"}},
    "Headrace-Epoch": {"description": "The newest epoch that the rows hold whole.", "schema": {"type": "integer"}},
    "Headrace-Lag": {"description": "The age in seconds of the first change after it.", "schema": {"type": "number"}},
    "Headrace-Parked": {"description": "Changes that PostgreSQL refused, if any.", "schema": {"type": "integer"}},
}
_WORDS = {
    "select": ("string", "Columns, with commas between them; all without it."),
    "order": ("string", "Columns along an index, each with .asc or .desc, with commas between them."),
    "limit": ("integer", "Rows of the page."),
    "offset": ("integer", "Rows that are passed over."),
    "cursor": ("string", "next_cursor of the page before."),
}


@router.get("/openapi.json")
async def document(
    request: Request,
    service: Annotated[Service, Depends(service_of)],
    data: Annotated[DataApi, Depends(data_of)],
) -> Response:
    """The document, with the relations that the sender may read."""
    made: dict[str, Any] = request.app.openapi()
    paths, schemas = dict(made["paths"]), dict(made.get("components", {}).get("schemas", {}))
    catalog = service.readings.catalog
    for name in data.shown.names(catalog):
        # Of one for which a view stands in, the columns are the view's, which has a path of its own.
        if not reads_itself(request, name):
            continue
        try:
            shown = data.shown.get(catalog, name)
        except HeadraceError:
            # One that cannot be asked for has no path.
            continue
        schemas[f"data.{name}"] = row_schema(shown, catalog.get(name))
        paths |= _paths(shown, service.settings.data_page_rows)
    components = {**made.get("components", {}), "schemas": schemas}
    return Response(orjson.dumps({**made, "paths": paths, "components": components}), media_type=MEDIA_TYPE)


def row_schema(shown: Shown, relation: object) -> dict[str, Any]:
    """The JSON schema of a relation's rows."""
    required = relation.contract.schema if isinstance(relation, Table) else StructType([])
    never_null = {one.name for one in required.fields if not one.nullable}
    properties = {
        one.name: value_schema(one.dataType, nullable=one.name not in never_null) for one in shown.schema.fields
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def value_schema(kind: DataType, *, nullable: bool = True) -> dict[str, Any]:
    """The JSON schema of a column's values."""
    match kind:
        case ArrayType():
            found: dict[str, Any] = {"type": "array", "items": value_schema(kind.elementType)}
        case MapType() if isinstance(kind.keyType, (StringType, ByteType, ShortType, IntegerType, LongType)):
            found = {"type": "object", "additionalProperties": value_schema(kind.valueType)}
        case MapType():
            found = {"type": "array", "items": {"type": "array"}}
        case StructType():
            found = {"type": "object", "properties": {one.name: value_schema(one.dataType) for one in kind.fields}}
        case _:
            found = dict(_PLAIN.get(type(kind), {"type": "string"}))
    found["x-sql-type"] = kind.simpleString()
    if nullable:
        return {"anyOf": [found, {"type": "null"}]}
    return found


def _paths(shown: Shown, most_rows: int) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/data.{shown.name}"}
    page = {
        "type": "object",
        "required": ["data", "next_cursor", "has_more", "epoch"],
        "properties": {
            "data": {"type": "array", "items": reference},
            "next_cursor": {"type": ["string", "null"]},
            "has_more": {"type": "boolean"},
            "epoch": {"type": "integer"},
        },
    }
    one = {"type": "object", "properties": {"data": reference, "epoch": {"type": "integer"}}}
    select = _parameter("select")
    paths: dict[str, Any] = {
        f"/v1/data/{shown.name}": {
            "get": {
                "tags": ["data"],
                "summary": f"A page of {shown.name}",
                "operationId": f"data_{shown.name}",
                "parameters": [*_columns(shown), *map(_parameter, RESERVED)],
                "responses": _answers(page, f"At most {most_rows} rows.", 400, 429, 503),
            }
        }
    }
    if shown.key:
        key = {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}}
        key["description"] = f"The value of {shown.key[0]}." if len(shown.key) == 1 else f"{','.join(shown.key)}."
        paths[f"/v1/data/{shown.name}/{{key}}"] = {
            "get": {
                "tags": ["data"],
                "summary": f"The row of a key of {shown.name}",
                "operationId": f"data_{shown.name}_row",
                "parameters": [key, select],
                "responses": _answers(one, "The row.", 400, 404, 409, 429, 503),
            }
        }
    return paths


def _columns(shown: Shown) -> list[dict[str, Any]]:
    """The columns that stand first in the key or an index, and those behind them."""
    names = dict.fromkeys([*shown.key, *(one.name for index in shown.indexes for one in index)])
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"eq., gt., gte., lt. or lte. and a value ({shown.schema[name].dataType.simpleString()})",
            "schema": {"type": "string"},
        }
        for name in names
        if name.lower() not in RESERVED
    ]


def _parameter(name: str) -> dict[str, Any]:
    kind, said = _WORDS[name]
    return {"name": name, "in": "query", "required": False, "description": said, "schema": {"type": kind}}


def _answers(schema: dict[str, Any], said: str, *statuses: int) -> dict[str, Any]:
    told = {str(status): answer for status, answer in refusals(*statuses).items()}
    return {
        "200": {"description": said, "headers": _HEADERS, "content": {MEDIA_TYPE: {"schema": schema}}},
        "304": {"description": "Nothing has changed since the answer that If-None-Match names."},
        **told,
    }
