"""CREATE TABLE, CREATE VIEW and DROP: what each checks, and what it takes into the home."""

from __future__ import annotations

from headrace.catalog.catalog import Table, View, ViewDefinition
from headrace.catalog.make import make_table, table_contract
from headrace.definitions.adopt import adopt, restore_names
from headrace.epoch.core import Core
from headrace.epoch.work import Work
from headrace.errors import RelationNameError
from headrace.interrupts import interrupts_held
from headrace.sources.system_tables import refuse_drop
from headrace.sql.syntax import CreateTable, CreateView, Drop


def create_table(core: Core, statement: CreateTable) -> None:
    """Make a table that is not there yet."""
    if statement.name in core.catalog:
        if statement.if_not_exists:
            return
        raise RelationNameError(f"{statement.name} exists already", hint="choose another name, or write IF NOT EXISTS")
    adopt(core, [make_table(table_contract(core.sessions.catalyst, statement))])


def view_of(core: Core, statement: CreateView) -> ViewDefinition:
    """The definition that a statement gives, under the columns that the next epoch knows."""
    return ViewDefinition(
        statement.name,
        statement.query,
        statement.columns_spelled,
        statement.materialized,
        statement.policy,
        statement.query_line,
        statement.query_column,
        core.epoch + 1,
    )


def create_view(core: Core, statement: CreateView) -> None:
    """Make a view, or replace one."""
    existing = core.catalog.relations.get(statement.name)
    if existing is not None:
        if isinstance(existing, Table):
            raise RelationNameError(f"{statement.name} is a table", hint="choose another name for the view")
        if statement.if_not_exists:
            return
        if not statement.or_replace:
            raise RelationNameError(
                f"{statement.name} exists already", hint="write CREATE OR REPLACE VIEW to change it"
            )
    adopt(core, views=[view_of(core, statement)])


def drop(core: Core, statement: Drop) -> None:
    """Drop a relation that nothing needs."""
    relation = core.catalog.relations.get(statement.name)
    if relation is None:
        if statement.if_exists:
            return
        core.catalog.get(statement.name)
        return
    kind = "table" if isinstance(relation, Table) else "view"
    if (statement.kind == "table") != (kind == "table"):
        raise RelationNameError(f"{statement.name} is a {kind}", hint=f"write DROP {kind.upper()} {statement.name}")
    if isinstance(relation, Table):
        refuse_drop(core.catalog, relation)
    users = [view.name for view in core.catalog.users(statement.name)]
    sources = [source.name for source in core.catalog.sources.values() if source.table == statement.name]
    if sources:
        raise RelationNameError(
            f"{statement.name} is in use",
            detail=f"Its rows come from source {', '.join(sources)}.",
            hint=f"write DROP SOURCE {sources[0]} first",
        )
    if users:
        raise RelationNameError(
            f"{statement.name} is in use",
            detail=f"It is read by {', '.join(users)}.",
            hint=f"drop {'them' if len(users) > 1 else 'it'} first",
        )
    left = core.catalog.without(statement.name)
    with interrupts_held():
        core.commit(Work({}, core.settings.small_bound), core.tick(), {"drop": [statement.name]}, left)
        restore_names(core, [relation], left.relations)
        if isinstance(relation, View):
            relation.context.clear()
