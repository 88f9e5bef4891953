"""Event stores and event types of a project: made, or held against those that a home has."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.catalog.catalog import Catalog, Table
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import ProjectError
from headrace.events.define import checked_type, is_registered, refuse_taken, register_type, tables_of, types_of
from headrace.events.schemas import EventType
from headrace.events.tables import beside, store_table
from headrace.project.definitions import Definition, Definitions
from headrace.sql.statements import CreateEventStore, CreateEventType


def refuse_other_store(core: Core, statement: CreateEventStore, definitions: Definitions) -> None:
    """Refuse a store that the home has otherwise, or whose tables would have the name of something else."""
    wanted = tables_of(statement)[0]
    named = {one.name for one in (*definitions.tables, *definitions.views, *definitions.stores)}
    refuse_taken(statement, named - {statement.name})
    held = core.catalog.relations.get(statement.name)
    if held is None:
        refuse_taken(statement, core.catalog.relations)
        return
    found = store_table(core.catalog, statement.name)
    if found.events != wanted.events:
        listed = ", ".join(f"{name} = {_shown(value)}" for name, value in sorted((found.events or {}).items()))
        raise ProjectError(
            f"event store {found.name} has other options in the home",
            detail=f"There they are {listed}.",
            hint="options of a store stay as they are: write those, or give the store another name",
        )


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value).upper()


def type_of(catalog: Catalog, statement: CreateEventType) -> EventType:
    """The version of an event type that a statement registers, or what is wrong with it."""
    store = store_table(catalog, statement.store)
    return checked_type(
        store, statement.event_type, statement.schema, statement.version, statement.encrypted, statement.subject
    )


def with_stores(catalog: Catalog, definitions: Definitions) -> Catalog:
    """The catalog with the stores of a project, as far as its event types need them."""
    return catalog.having(*(one for definition in definitions.stores for one in new_tables(catalog, definition)))


def new_tables(catalog: Catalog, definition: Definition) -> list[Table]:
    """The tables of a store that the home does not have yet."""
    statement = definition.statement
    if not isinstance(statement, CreateEventStore) or statement.name in catalog:
        return []
    return tables_of(statement)


def is_known(core: Core, statement: CreateEventType, wanted: EventType) -> bool:
    """Whether the home has an event type; refused, if it has it otherwise."""
    name = beside(statement.store, "types")
    return name in core.catalog and is_registered(types_of(core.newest_of_names([name]), statement.store), wanted)


def register_types(loop: Loop, statements: Sequence[CreateEventType]) -> Receipt | None:
    """Register event types that the home does not have; the receipt of the last epoch, if there was one."""
    receipt: Receipt | None = None
    for one in statements:
        receipt = register_type(loop, one.store, one.event_type, one.schema, one.version, one.encrypted, one.subject)
    return receipt
