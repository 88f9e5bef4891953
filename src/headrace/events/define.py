"""CREATE and DROP EVENT STORE, and types of events: what each checks, and what it takes into the home."""

from __future__ import annotations

import json
import logging
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headrace.catalog.catalog import Feed, Table
from headrace.definitions.adopt import adopt, restore_names
from headrace.definitions.delivered import dropped_feeds, feeds_to_drop
from headrace.epoch.batch import Batch, WorkedOut
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work
from headrace.errors import EventTypeRefused, EventTypeTaken, RelationNameError, StatementError
from headrace.events.erasure import Keys
from headrace.events.event import NAME_LENGTH
from headrace.events.schemas import EventType, Types, checked_schema
from headrace.events.tables import beside, store_table, store_tables
from headrace.interrupts import interrupts_held
from headrace.reading.queries import Relations
from headrace.sql.syntax import CreateEventStore, DropEventStore, OptionValue
from headrace.state.run import Run
from headrace.state.snapshot import Snapshot
from headrace.state.state import State

_log = logging.getLogger("headrace.events")
_OPTIONS: Mapping[str, OptionValue] = {
    "data": "json",
    "unknown_types": True,
    "snapshot_events": 1000,
    "snapshot_seconds": 0,
}


def create_event_store(core: Core, statement: CreateEventStore) -> None:
    """Make a store that is not there yet, with the tables that are kept beside it."""
    made = tables_of(statement)
    existing = core.catalog.relations.get(statement.name)
    if existing is not None:
        if statement.if_not_exists and isinstance(existing, Table) and existing.events is not None:
            return
        raise RelationNameError(f"{statement.name} exists already", hint="choose another name, or write IF NOT EXISTS")
    refuse_taken(statement, core.catalog.relations)
    # Of a store of this name that was dropped, where the process ended before its keys were gone.
    Keys(core.path, statement.name).forget_all()
    adopt(core, made)


def tables_of(statement: CreateEventStore) -> list[Table]:
    """The tables of the store that a statement makes: its events first; or what is wrong with its options."""
    return store_tables(statement.name, _options(statement))


def refuse_taken(statement: CreateEventStore, names: Container[str]) -> None:
    """Refuse a store that would keep a table under a name that something else has."""
    for one in tables_of(statement):
        if one.name in names:
            raise RelationNameError(
                f"{one.name} exists already",
                detail=f"An event store {statement.name} keeps a table of that name.",
                hint="choose another name for the store, or drop that relation",
            )


def drop_event_store(core: Core, statement: DropEventStore) -> list[Feed]:
    """Drop a store with all of its events, which no view may read, and the keys of what they encrypt.

    Return the changefeeds that were dropped with it.
    """
    if statement.if_exists and statement.name not in core.catalog:
        return []
    store = store_table(core.catalog, statement.name)
    tables = [store, *(one for one in core.catalog.tables() if one.kept_for == store.name)]
    _refuse_read(core, tables)
    names = [one.name for one in tables]
    feeds = feeds_to_drop(core.catalog, names, f"DROP EVENT STORE {store.name}", statement.cascade)
    drop_tables(core, tables, feeds)
    try:
        Keys(core.path, store.name).forget_all()
    except OSError as error:
        # The drop is committed. The next store of that name deletes them before it is made.
        _log.warning("keys of the dropped event store %s are still there: %s", store.name, error)
    return feeds


def _refuse_read(core: Core, tables: Sequence[Table]) -> None:
    users = sorted({view.name for one in tables for view in core.catalog.users(one.name)})
    if users:
        raise RelationNameError(
            f"{tables[0].name} is in use",
            detail=f"It is read by {', '.join(users)}.",
            hint=f"drop {'them' if len(users) > 1 else 'it'} first",
        )


def drop_tables(core: Core, tables: Sequence[Table], feeds: Sequence[Feed] = ()) -> None:
    """Drop tables, which no view may read, and changefeeds together, in one epoch."""
    _refuse_read(core, tables)
    left = core.catalog
    for one in tables:
        left = left.without(one.name)
    with interrupts_held():
        work = Work({}, core.settings.small_bound)
        core.commit(work, core.tick(), {"drop": [one.name for one in tables], **dropped_feeds(feeds)}, left)
        restore_names(core, tables, left.relations)


def _options(statement: CreateEventStore) -> dict[str, Any]:
    options: dict[str, Any] = dict(_OPTIONS)
    for name, value in statement.options:
        if name not in options:
            raise _bad_option(statement, f"an event store has no option {name}", f"there are {', '.join(_OPTIONS)}")
        if isinstance(_OPTIONS[name], str):
            value = str(value).lower()
        elif type(value) is not type(_OPTIONS[name]):
            kind = "TRUE or FALSE" if isinstance(_OPTIONS[name], bool) else "a whole number"
            raise _bad_option(statement, f"the option {name} is {kind}", f"write {name} = {kind}")
        options[name] = value
    if options["data"] == "variant":
        raise _bad_option(
            statement,
            "no column of Headrace is a VARIANT",
            "write data = 'json': parse_json(event_data) makes a VARIANT of it in any query and view",
        )
    if options["data"] not in ("json", "map"):
        raise _bad_option(statement, f"there is no form {options['data']} of data", "write data = 'json' or 'map'")
    return options


def _bad_option(statement: CreateEventStore, message: str, hint: str) -> StatementError:
    return StatementError(message, hint=hint, line=statement.line, column=statement.column)


def register_type(
    loop: Loop,
    store: str,
    event_type: str,
    schema: object = None,
    version: int = 1,
    encrypted: Sequence[str] = (),
    subject: str = "",
) -> Receipt:
    """Take one version of an event type into a store: from the next append on its events are checked.

    What is registered stays as it is: events that were checked against it are there. The same again is no error.
    """
    table = store_table(loop.core.catalog, store)
    wanted = checked_type(table, event_type, schema, version, encrypted, subject)
    if is_registered(types_of(loop.core.relations(), table.name), wanted):
        return Receipt(loop.core.epoch)
    loop.core.refuse_closed()
    loop.core.refuse_read_only()
    row = {
        "event_type": event_type,
        "schema_version": version,
        "json_schema": wanted.schema,
        "encrypted": json.dumps(wanted.encrypted) if wanted.encrypted else None,
        "subject": subject or None,
        "registered_at": loop.core.tick(),
    }
    name = beside(table.name, "types")
    note = (name, event_type, str(version))

    def within(batch: Batch) -> WorkedOut:
        # Looked at again in its turn: another may have registered the version meanwhile.
        known = dict(types_in(batch.before(name)))
        noted = batch.notes.get(note)
        if isinstance(noted, EventType):
            known[event_type, version] = noted
        if is_registered(known, wanted):
            return WorkedOut({}, {}, {})
        return WorkedOut({name: [{"insert": row}]}, {}, {note: wanted})

    return loop.submit(Call({}, quiet=True, within=within))


def checked_type(
    table: Table,
    event_type: str,
    schema: object = None,
    version: int = 1,
    encrypted: Sequence[str] = (),
    subject: str = "",
) -> EventType:
    """One version of an event type, as a store could register it."""
    if not event_type or len(event_type) > NAME_LENGTH:
        raise EventTypeRefused(f"an event type has a name of 1 to {NAME_LENGTH} letters", hint="name it")
    if isinstance(version, bool) or not 1 <= version < 2**31:
        raise EventTypeRefused("the version of an event type is a whole number from 1", hint="begin with 1")
    text = None if schema is None else checked_schema(schema)
    listed = tuple(sorted(set(encrypted)))
    if any(not one or "." in one or one.startswith("$") for one in listed):
        raise EventTypeRefused("encrypted fields are names on the first level of event_data", hint="name such fields")
    if listed and (table.events or {}).get("data") == "map":
        raise EventTypeRefused(
            "encrypted fields need a store whose data are JSON",
            hint="write CREATE EVENT STORE ... WITH (data = 'json')",
        )
    return EventType(event_type, version, text, listed, subject)


def is_registered(known: Types, wanted: EventType) -> bool:
    """Whether a version of an event type is registered; refused, if it is otherwise."""
    held = known.get((wanted.event_type, wanted.schema_version))
    if held is None or held == wanted:
        return held is not None
    raise EventTypeTaken(
        f"{wanted.event_type} version {wanted.schema_version} is registered already, otherwise",
        detail="Events that were checked against it may be there.",
        hint=f"register version {wanted.schema_version + 1}, and an upcaster that leads to it",
    )


def types_of(relations: Relations, store: str) -> Types:
    """The event types of a store, by name and version."""
    return types_in(relations[beside(store, "types")][0])


def types_in(state: State) -> Types:
    """The same of the table that they are kept in, which is read again only when it has changed."""
    return _types_of_runs(state.schema, state.runs) if isinstance(state, Snapshot) else _read_types(state)


@lru_cache(maxsize=64)
def _types_of_runs(schema: pa.Schema, runs: tuple[Run, ...]) -> Types:
    return _read_types(Snapshot(schema, runs))


def _read_types(state: State) -> Types:
    held = state.all()
    columns = [column.to_pylist() for column in held.rows.columns]
    found: dict[tuple[str, int], EventType] = {}
    for kind, version, schema, encrypted, subject, _ in zip(*columns, strict=True):
        found[kind, version] = EventType(
            kind, version, schema, tuple(json.loads(encrypted)) if encrypted else (), subject or ""
        )
    return found
