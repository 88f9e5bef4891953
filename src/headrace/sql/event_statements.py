"""CREATE EVENT STORE, CREATE EVENT TYPE, CREATE PROJECTION, and DROP EVENT STORE."""

from __future__ import annotations

from headrace.errors import StatementError
from headrace.sql.column_types import read_type
from headrace.sql.reader import Reader
from headrace.sql.source_statements import read_options
from headrace.sql.syntax import (
    CreateEventStore,
    CreateEventType,
    CreateProjection,
    DropEventStore,
    ProjectedField,
)

STORE_FORM = "CREATE EVENT STORE [IF NOT EXISTS] s [WITH (data = 'json' | 'map', snapshot_events = 1000, ...)]"
TYPE_FORM = "CREATE EVENT TYPE 'CustomerCreated' [VERSION n] FOR EVENT STORE s [SCHEMA '{...}'] [ENCRYPTED ('a', ...)]"
PROJECTION_FORM = (
    "CREATE [OR REPLACE] PROJECTION [IF NOT EXISTS] p FOR EVENT STORE s AGGREGATE TYPE 'Customer' "
    "(field TYPE [FROM '$.path'] [OF 'EventType', ...], ...) [DELETED BY 'EventType', ...]"
)
_MADE = ("aggregate_id", "version", "position", "updated_at")


def read_create_event(reader: Reader, sql: str, line: int, column: int) -> CreateEventStore | CreateEventType:
    """What stands after CREATE EVENT."""
    if reader.accept("TYPE"):
        return _read_create_type(reader, sql, line, column)
    reader.form = STORE_FORM
    if not reader.accept("STORE"):
        raise reader.expected("STORE", "TYPE")
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.relation("event store", new=True).name
    options = read_options(reader) if reader.accept("WITH") else {}
    reader.expect_end()
    listed = tuple(sorted(options.items()))
    return CreateEventStore(sql=sql, line=line, column=column, name=name, options=listed, if_not_exists=if_not_exists)


def read_drop_event_store(reader: Reader, sql: str, line: int, column: int) -> DropEventStore:
    """What stands after DROP EVENT."""
    reader.form = "DROP EVENT STORE [IF EXISTS] s [RESTRICT | CASCADE]"
    reader.expect("STORE")
    if_exists = reader.accept("IF", "EXISTS")
    name = reader.relation("event store").name
    cascade = reader.accept_cascade()
    reader.expect_end()
    return DropEventStore(sql=sql, line=line, column=column, name=name, if_exists=if_exists, cascade=cascade)


def _read_create_type(reader: Reader, sql: str, line: int, column: int) -> CreateEventType:
    reader.form = TYPE_FORM
    event_type = reader.string("the name of an event type, as a string")
    version = 1
    if reader.accept("VERSION"):
        token = reader.peek()
        if token is None or token.kind != "number" or not token.text.isdigit() or len(token.text) > 9:
            raise reader.expected("a whole number")
        version = int(token.text)
        reader.index += 1
    store = _read_store(reader)
    schema = reader.string("a JSON Schema, as a string") if reader.accept("SCHEMA") else None
    encrypted = _bracketed(reader, "the name of a field") if reader.accept("ENCRYPTED") else ()
    subject = reader.string("the name of a field") if reader.accept("SUBJECT") else ""
    reader.expect_end()
    return CreateEventType(
        sql=sql,
        line=line,
        column=column,
        store=store,
        event_type=event_type,
        version=version,
        schema=schema,
        encrypted=encrypted,
        subject=subject,
    )


def _read_store(reader: Reader) -> str:
    reader.expect("FOR")
    if not reader.accept("EVENT", "STORE"):
        raise reader.expected("EVENT STORE")
    return reader.relation("event store").name


def _bracketed(reader: Reader, what: str) -> tuple[str, ...]:
    reader.expect_symbol("(")
    listed = _strings(reader, what)
    if not reader.accept_symbol(")"):
        raise reader.expected("','", "')'")
    return listed


def _strings(reader: Reader, what: str) -> tuple[str, ...]:
    listed = [reader.string(f"{what}, as a string")]
    while reader.at_symbol(",") and (token := reader.peek(1)) is not None and token.kind == "string":
        reader.index += 1
        listed.append(reader.string(what))
    return tuple(listed)


def read_create_projection(reader: Reader, sql: str, line: int, column: int, *, or_replace: bool) -> CreateProjection:
    """What stands after PROJECTION."""
    reader.form = PROJECTION_FORM
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise reader.fail("OR REPLACE and IF NOT EXISTS exclude each other", hint="keep one of the two")
    name = reader.relation("projection", new=True)
    store = _read_store(reader)
    reader.expect("AGGREGATE", "TYPE")
    aggregate_type = reader.string("the type of aggregates, as a string")
    reader.expect_symbol("(")
    fields: list[ProjectedField] = []
    while True:
        fields.append(_read_field(reader, [*_MADE, *(one.name for one in fields)]))
        if not reader.accept_symbol(","):
            break
    if not reader.accept_symbol(")"):
        raise reader.expected("','", "')'", "FROM", "OF")
    deleted_by = _strings(reader, "the name of an event type") if reader.accept("DELETED", "BY") else None
    reader.expect_end()
    return CreateProjection(
        sql=sql,
        line=line,
        column=column,
        name=name.name,
        spelled=name.spelled,
        store=store,
        aggregate_type=aggregate_type,
        fields=tuple(fields),
        deleted_by=(f"{aggregate_type}Deleted",) if deleted_by is None else deleted_by,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
    )


def _read_field(reader: Reader, taken: list[str]) -> ProjectedField:
    name = reader.column(new=True)
    if name.name in taken:
        raise StatementError(
            f"the projection has a column {name.spelled} already",
            hint=f"call it otherwise and name its field by FROM; {', '.join(_MADE)} are always there",
            line=name.line,
            column=name.column,
        )
    type_text = read_type(reader)
    # A name is a field, also one with a point in it.
    path: tuple[str, ...] = (name.spelled,)
    if reader.accept("FROM"):
        line, column = reader.position()
        text = reader.string("a path such as '$.address.city'")
        path = _steps(text)
        if not path:
            raise StatementError(
                f"{text!r} is no path of fields", hint="write '$.city' or '$.address.city'", line=line, column=column
            )
    elif '"' in name.spelled:
        raise StatementError(
            f"no field with a quote in its name can be projected, as {name.spelled[:60]} has",
            hint="call the column otherwise, and name its field by FROM",
            line=name.line,
            column=name.column,
        )
    of_types = _strings(reader, "the name of an event type") if reader.accept("OF") else ()
    return ProjectedField(name=name.name, spelled=name.spelled, type_text=type_text, path=path, of_types=of_types)


def _steps(path: str) -> tuple[str, ...]:
    """The names that a path goes through; none if it is no such path."""
    begin, *names = path.split(".")
    plain = all(name and not set(name) & set("[]*'\"`\\") for name in names)
    return tuple(names) if begin == "$" and names and plain else ()
