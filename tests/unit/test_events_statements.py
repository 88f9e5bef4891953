"""Statements about events: the fields of a projection, and the query of an audit log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import StatementError
from headrace.events.audit import audit_query
from headrace.events.projections import projection_query
from headrace.events.tables import store_tables
from headrace.sql.statements import CreateProjection, parse
from tests.small_engine import catalog_of, table
from tests.small_events import OPTIONS


def projection(fields: str) -> CreateProjection:
    (found,) = parse(f"CREATE PROJECTION p FOR EVENT STORE events AGGREGATE TYPE 'A' ({fields})")
    assert isinstance(found, CreateProjection)
    return found


def test_a_name_is_a_field_whatever_is_in_it() -> None:
    found = projection("`a.b` INT, `it's` INT, c INT FROM '$.d.e'")
    assert [one.path for one in found.fields] == [("a.b",), ("it's",), ("d", "e")]
    assert '$["a.b"]' in projection_query(found, as_map=False)


def test_a_name_with_a_quote_is_refused_where_it_stands() -> None:
    with pytest.raises(StatementError, match="quote in its name") as refused:
        projection('`a"b` INT')
    assert refused.value.line == 1
    assert [one.path for one in projection("`a\"b` INT FROM '$.a'").fields] == [("a",)]


def test_the_audit_log_tells_the_key_of_a_captured_row() -> None:
    source: Any = SimpleNamespace(table="t")
    tables = [*store_tables("events", OPTIONS), table("t"), table("s_raw")]
    catalog: Any = catalog_of(*tables)
    known = SimpleNamespace(relations=catalog.relations, tables=catalog.tables, sources={"s": source})
    holder: Any = type("Known", (), {"__contains__": lambda _, name: name in catalog, **vars(known)})()
    query = audit_query(holder, "events", ["s"])
    assert r"coalesce(get_json_object(coalesce(after, before), '$[\'id\']'), event_id), operation" in query
