"""CREATE TABLE, CREATE VIEW and DROP: what each checks, and what it takes into the home."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from headrace.catalog.catalog import Feed, Relation, Table, View, ViewDefinition
from headrace.catalog.make import make_table, table_contract
from headrace.definitions.adopt import adopt, restore_names
from headrace.definitions.delivered import dropped_feeds, feeds_to_drop
from headrace.epoch.core import Core
from headrace.epoch.work import Work
from headrace.errors import QueryError, RelationNameError, StatementError
from headrace.feeds.parked import refuse_drop as refuse_drop_of_parked
from headrace.interrupts import interrupts_held
from headrace.sources.system_tables import raw_name, refuse_drop
from headrace.sql.flows import AutoCdc
from headrace.sql.syntax import CreateTable, CreateView, Drop, DropFlow
from headrace.statements.flow_errors import refuse_unknown, told_of


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
        statement.flow,
    )


def create_view(core: Core, statement: CreateView) -> None:
    """Make a view, or replace one."""
    existing = core.catalog.relations.get(statement.name)
    if statement.flow is not None and not (statement.if_not_exists and isinstance(existing, View)):
        _refuse_flow(core, statement.flow, existing)
    if existing is not None:
        if isinstance(existing, Table):
            raise RelationNameError(f"{statement.name} is a table", hint="choose another name for the view")
        if statement.if_not_exists:
            return
        if existing.definition.flow is not None:
            raise _is_target(existing.definition.flow)
        if not statement.or_replace:
            raise RelationNameError(
                f"{statement.name} exists already", hint="write CREATE OR REPLACE VIEW to change it"
            )
    if statement.flow is None:
        adopt(core, views=[view_of(core, statement)])
        return
    refuse_unknown(core, statement.flow)
    try:
        adopt(core, views=[view_of(core, statement)])
    except (QueryError, StatementError) as error:
        raise told_of(core, statement.flow, error, statement.line, statement.column) from error


def drop(core: Core, statement: Drop) -> list[Feed]:
    """Drop a relation that no source fills and no view reads; return the changefeeds that were dropped with it."""
    relation = core.catalog.relations.get(statement.name)
    if relation is None:
        if statement.if_exists:
            return []
        relation = core.catalog.get(statement.name)
    kind = "table" if isinstance(relation, Table) else "view"
    if (statement.kind == "table") != (kind == "table"):
        raise RelationNameError(f"{statement.name} is a {kind}", hint=f"write DROP {kind.upper()} {statement.name}")
    if isinstance(relation, Table):
        refuse_drop(core.catalog, relation)
        refuse_drop_of_parked(core.catalog, relation)
        _refuse_store(relation)
    if isinstance(relation, View) and relation.definition.flow is not None:
        raise _is_target(relation.definition.flow)
    return _drop_unused(core, relation, f"DROP {statement.kind.upper()} {relation.name}", statement.cascade)


def _drop_unused(core: Core, relation: Relation, written: str, cascade: bool) -> list[Feed]:
    _refuse_used(core, relation.name)
    feeds = feeds_to_drop(core.catalog, [relation.name], written, cascade)
    drop_relation(core, relation, feeds)
    return feeds


def _refuse_store(table: Table) -> None:
    """An event store goes whole, with what is kept beside it."""
    store = table.name if table.events is not None else table.kept_for
    if store:
        raise RelationNameError(
            f"{table.name} {'is an' if store == table.name else 'is kept for the'} event store"
            f"{'' if store == table.name else f' {store}'}",
            detail="It is dropped with all that is kept beside it.",
            hint=f"write DROP EVENT STORE {store}",
        )


def drop_flow(core: Core, statement: DropFlow) -> list[Feed]:
    """Drop a flow with its target, which no view may read; return the changefeeds that were dropped with it."""
    flows = {flow.name: target for flow, target in core.catalog.flows()}
    target = flows.get(statement.name)
    if target is not None:
        return _drop_unused(core, target, f"DROP FLOW {statement.name}", statement.cascade)
    if not statement.if_exists:
        near = get_close_matches(statement.name, list(flows), n=1)
        raise RelationNameError(
            f"there is no flow {statement.name}",
            hint=f"did you mean {near[0]}?" if near else "SHOW FLOWS lists what there is",
        )
    return []


def _refuse_flow(core: Core, flow: AutoCdc, existing: Relation | None) -> None:
    """One flow has one name and makes one target."""
    if any(one.name == flow.name for one, _ in core.catalog.flows()):
        raise RelationNameError(f"flow {flow.name} exists already", hint="choose another name, or drop it first")
    if existing is not None:
        raise RelationNameError(
            f"{flow.target} exists already",
            detail="A flow makes its target, which takes changes from nowhere else.",
            hint="choose another name for the target, or drop the relation first",
        )


def _is_target(flow: AutoCdc) -> RelationNameError:
    return RelationNameError(f"{flow.target} is the target of flow {flow.name}", hint=f"write DROP FLOW {flow.name}")


def drop_empty_raw(core: Core, source: str) -> None:
    """Drop what a source that is gone kept of all that came, if nothing is in it and nobody reads it."""
    kept = core.catalog.relations.get(raw_name(source))
    if not isinstance(kept, Table) or not kept.system or not kept.store.snapshot().is_empty:
        return
    if not core.catalog.users(kept.name) and all(feed.table != kept.name for feed in core.catalog.feeds.values()):
        drop_relation(core, kept)


def _refuse_used(core: Core, name: str) -> None:
    """Raise an error where a source fills a relation or a view reads it."""
    users = [view.name for view in core.catalog.users(name)]
    sources = [source.name for source in core.catalog.sources.values() if source.table == name]
    if sources:
        raise RelationNameError(
            f"{name} is in use",
            detail=f"Its rows come from source {', '.join(sources)}.",
            hint=f"write DROP SOURCE {sources[0]} first",
        )
    if users:
        raise RelationNameError(
            f"{name} is in use",
            detail=f"It is read by {', '.join(users)}.",
            hint=f"drop {'them' if len(users) > 1 else 'it'} first",
        )


def drop_relation(core: Core, relation: Relation, feeds: Sequence[Feed] = ()) -> None:
    """Drop a relation that no source fills and no view reads, and changefeeds in the same epoch."""
    left = core.catalog.without(relation.name)
    head = {"drop": [relation.name], **dropped_feeds(feeds)}
    with interrupts_held():
        core.commit(Work({}, core.settings.small_bound), core.tick(), head, left)
        restore_names(core, [relation], left.relations)
        if isinstance(relation, View):
            relation.context.clear()
