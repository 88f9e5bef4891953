"""CREATE PROJECTION as the view that it stands for: the newest value of each field, by position.

Of each field the struct of position and value is kept whose position is the greatest; MAX of it is followed by a rule
whose cost is that of the change. Values of before the last deletion count no more, as in the state of an aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.sql.names import quoted
from headrace.sql.syntax import CreateProjection, CreateView, ProjectedField


def projection_view(statement: CreateProjection, options: Mapping[str, Any]) -> CreateView:
    """The view that a projection over a store of these options is."""
    return CreateView(
        sql=statement.sql,
        line=statement.line,
        column=statement.column,
        name=statement.name,
        spelled=statement.spelled,
        query=projection_query(statement, options["data"] == "map"),
        query_line=statement.line,
        query_column=statement.column,
        materialized=True,
        or_replace=statement.or_replace,
        if_not_exists=statement.if_not_exists,
        policy="auto",
        columns=(),
        columns_spelled=(),
        comment=None,
    )


def projection_query(statement: CreateProjection, as_map: bool) -> str:
    """The query of a projection."""
    deleted = "0"
    if statement.deleted_by:
        deleted = f"coalesce(max(CASE WHEN {_is_one_of(statement.deleted_by)} THEN position END), 0)"
    inside = _inside(statement.fields)
    fields = [_field(one, as_map, inside, deleted) for one in statement.fields]
    columns = ",\n  ".join(
        [
            "aggregate_id",
            *fields,
            "max(event_version) AS version",
            "max(position) AS position",
            "max(created_at) AS updated_at",
        ]
    )
    kept = "aggregate_id, event_type, event_version, position, created_at"
    return (
        f"SELECT {columns}\nFROM (\n"
        f"  SELECT {', '.join([kept, *_documents(statement.fields, as_map)])}\n"
        f"  FROM {quoted(statement.store)} WHERE aggregate_type = {_text(statement.aggregate_type)}\n)\n"
        f"GROUP BY aggregate_id\nHAVING max(position) > {deleted}"
    )


def _documents(fields: Sequence[ProjectedField], as_map: bool) -> list[str]:
    """What fields are found in, each read once for all of them: a VARIANT, whose numbers have all of their digits."""
    if not as_map:
        return ["try_parse_json(event_data) AS data"]
    inside = [f"try_parse_json(event_data[{_text(name)}]) AS {column}" for name, column in _inside(fields).items()]
    return ["event_data AS data", *inside]


def _inside(fields: Sequence[ProjectedField]) -> dict[str, str]:
    """The first names of the paths that lead further, and the columns of the documents under them."""
    names = dict.fromkeys(one.path[0] for one in fields if len(one.path) > 1)
    return {name: f"data_{index}" for index, name in enumerate(names)}


def _field(field: ProjectedField, as_map: bool, inside: Mapping[str, str], deleted: str) -> str:
    first, *rest = field.path
    # A field that is there with the value null counts: it was set to nothing.
    if as_map and not rest:
        there, value = f"map_contains_key(data, {_text(first)})", f"data[{_text(first)}]"
    else:
        document, path = (inside[first], rest) if as_map else ("data", field.path)
        steps = _text("".join(["$", *(f'["{name}"]' for name in path)]))
        there = f"try_variant_get({document}, {steps}, 'VARIANT') IS NOT NULL"
        value = f"try_variant_get({document}, {steps}, 'STRING')"
    if field.type_text.strip().upper() != "STRING":
        value = f"try_cast({value} AS {field.type_text})"
    if field.of_types:
        there = f"{there} AND {_is_one_of(field.of_types)}"
    newest = f"max(CASE WHEN {there} THEN named_struct('position', position, 'value', {value}) END)"
    return f"CASE WHEN {newest}.position > {deleted} THEN {newest}.value END AS {quoted(field.spelled)}"


def _is_one_of(types: tuple[str, ...]) -> str:
    return f"event_type IN ({', '.join(map(_text, types))})"


def _text(value: str) -> str:
    """A string as Spark SQL reads it back."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
