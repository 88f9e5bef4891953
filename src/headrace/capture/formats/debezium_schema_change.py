"""Messages of Debezium's schema change topic: which tables have come, have other columns, or have gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

from headrace.capture.described import DescribedColumn, DescribedTable
from headrace.capture.formats.debezium_origin import number, origin_of, text
from headrace.capture.formats.native_types import native_type
from headrace.capture.messages import SchemaChange, Undecodable
from headrace.intake.reasons import shown

_QUOTED = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')
_WHAT: dict[str, Literal["came", "changed", "went"]] = {"CREATE": "came", "ALTER": "changed", "DROP": "went"}
MOST_TABLES = 10_000


def is_schema_change(payload: Mapping[str, Any]) -> bool:
    """Whether a record is one of the schema change topic."""
    return "tableChanges" in payload or ("ddl" in payload and "databaseName" in payload)


def schema_change(payload: Mapping[str, Any]) -> SchemaChange:
    """What a record of the schema change topic says."""
    origin = origin_of(payload)
    changes = payload.get("tableChanges") or []
    if not isinstance(changes, list) or len(cast("list[Any]", changes)) > MOST_TABLES:
        raise Undecodable(f"tableChanges is no list, but {shown(changes)}")
    tables = [_table(change, origin.connector) for change in cast("list[Any]", changes)]
    ddl = payload.get("ddl")
    return SchemaChange(tuple(tables), ddl if type(ddl) is str else "", origin)


def _table(change: Any, connector: str) -> DescribedTable:
    content = _object(change)
    what = _WHAT.get(text(content.get("type")).upper())
    identity = content.get("id")
    if what is None or type(identity) is not str or not identity:
        raise Undecodable(f"a change of a table is {shown(change)}")
    # A renamed table has both names, the old one first.
    names = [_plain_name(part) for part in _names(identity)]
    table = content.get("table")
    if table is None:
        return DescribedTable(names[-1], (), (), what, names[0] if len(names) > 1 else "")
    described = _object(table)
    key = described.get("primaryKeyColumnNames") or []
    columns = described.get("columns") or []
    if not isinstance(key, list) or not all(type(name) is str for name in cast("list[Any]", key)):
        raise Undecodable(f"the key of table {names[-1][:60]} is {shown(key)}")
    if not isinstance(columns, list):
        raise Undecodable(f"the columns of table {names[-1][:60]} are {shown(columns)}")
    listed = [_object(column) for column in cast("list[Any]", columns)]
    listed.sort(key=lambda column: number(column.get("position")) or 0)
    return DescribedTable(
        names[-1],
        tuple(_column(column, connector) for column in listed),
        tuple(cast("list[str]", key)),
        what,
        names[0] if len(names) > 1 else "",
    )


def _column(column: Mapping[str, Any], connector: str) -> DescribedColumn:
    name = column.get("name")
    if type(name) is not str or not name:
        raise Undecodable(f"a column of a table has the name {shown(name)}")
    kind = text(column.get("typeExpression")) or text(column.get("typeName"))
    length, scale = number(column.get("length")), number(column.get("scale"))
    data_type = native_type(kind, connector, length, scale, number(column.get("jdbcType")))
    return DescribedColumn(name, data_type, column.get("optional") is not False)


def _names(identity: str) -> list[str]:
    """One name, or the old and the new one of a renamed table; a comma inside quotes is a part of a name."""
    names = [""]
    quoted = False
    for sign in identity:
        quoted ^= sign == '"'
        if sign == "," and not quoted:
            names.append("")
        else:
            names[-1] += sign
    return names[:1] + names[-1:] if len(names) > 1 else names


def _plain_name(identity: str) -> str:
    parts = [(quoted.replace('""', '"') or plain).strip() for quoted, plain in _QUOTED.findall(identity)]
    return ".".join(part for part in parts if part) or identity


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Undecodable(f"a part of a schema change is no object, but {shown(value)}")
    return cast("dict[str, Any]", value)
