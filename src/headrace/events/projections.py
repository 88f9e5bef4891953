"""CREATE PROJECTION as the view that it stands for: the newest value of each field, by position.

Of each field the struct of position and value is kept whose position is the greatest; MAX of it is followed by a rule
whose cost is that of the change. Values of before the last deletion count no more, as in the state of an aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.sql.names import quoted
from headrace.sql.syntax import CreateProjection, CreateView, ProjectedField

_Path = tuple[str, ...]


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
    documents = _documents(statement.fields)
    fields = [_field(one, documents[one.path[:-1]], deleted) for one in statement.fields]
    columns = ",\n  ".join(
        [
            "aggregate_id",
            *fields,
            "max(event_version) AS version",
            "max(position) AS position",
            "max(created_at) AS updated_at",
        ]
    )
    return (
        f"SELECT {columns}\nFROM (\n{_read(statement, documents, as_map)}\n)\n"
        f"GROUP BY aggregate_id\nHAVING max(position) > {deleted}"
    )


def _documents(fields: Sequence[ProjectedField]) -> dict[_Path, str]:
    """The names of the columns that hold the documents in which fields stand, by their paths, the outermost first."""
    paths = {path[:depth] for path in (one.path for one in fields) for depth in range(len(path))}
    ordered = sorted(paths | {()}, key=lambda path: (len(path), path))
    return {path: f"data_{index}" if index else "data" for index, path in enumerate(ordered)}


def _read(statement: CreateProjection, documents: Mapping[_Path, str], as_map: bool) -> str:
    """The events, with each document read once for all fields in it; what is no text stays as its JSON."""
    kept = "aggregate_id, event_type, event_version, position, created_at"
    data = "event_data" if as_map else _map_of("event_data")
    query = (
        f"  SELECT {kept}, {data} AS data\n"
        f"  FROM {quoted(statement.store)} WHERE aggregate_type = {_text(statement.aggregate_type)}"
    )
    for depth in range(1, max(map(len, documents)) + 1):
        held = [name for path, name in documents.items() if len(path) < depth]
        read = [
            f"{_map_of(f'{documents[path[:-1]]}[{_text(path[-1])}]')} AS {name}"
            for path, name in documents.items()
            if len(path) == depth
        ]
        query = f"  SELECT {', '.join([kept, *held, *read])}\n  FROM (\n{query}\n  )"
    return query


def _map_of(document: str) -> str:
    return f"from_json({document}, 'MAP<STRING, STRING>')"


def _field(field: ProjectedField, document: str, deleted: str) -> str:
    name = _text(field.path[-1])
    # A field that is there with the value null counts: it was set to nothing.
    there = f"map_contains_key({document}, {name})"
    value = f"{document}[{name}]"
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
