"""Bring a home to what a project defines: what is missing is made, what changed is replaced, the rest is left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.capture.delta import open_snapshot
from headrace.catalog.catalog import Feed, Table, ViewDefinition
from headrace.catalog.make import make_table, table_contract
from headrace.definitions.adopt import adopt
from headrace.definitions.sources import open_reading, source_of
from headrace.epoch.core import Core
from headrace.epoch.receipt import Receipt
from headrace.errors import HeadraceError, ProjectError, SourceError
from headrace.face import Headrace, home_of
from headrace.feeds.define import kept_tables, location_of, look_up, planned_feed, warnings_of
from headrace.feeds.target import shown_location
from headrace.intake.table import TableContract
from headrace.project.definitions import Definition, Definitions, Problem, makes_followed, refuse_problems
from headrace.project.drift import find_drift, left_over
from headrace.project.event_stores import is_known, new_tables, refuse_other_store, register_types, type_of, with_stores
from headrace.sources.define import is_read_whole, plan_sources
from headrace.sql.statements import (
    CreateEventStore,
    CreateEventType,
    CreateFeed,
    CreateSource,
    CreateTable,
    CreateView,
)
from headrace.sql.tokens import scan
from headrace.statements.create import view_of

Action = Literal["created", "replaced", "read", "unchanged"]


@dataclass(frozen=True)
class Done:
    """What became of one definition."""

    action: Action
    kind: Literal["table", "view", "source", "changefeed", "event store", "event type"]
    name: str


@dataclass
class Outcome:
    """What a run did, and what is worth knowing; the receipt is that of its last epoch, if there was one."""

    done: list[Done] = field(default_factory=list[Done])
    receipt: Receipt | None = None
    notes: list[str] = field(default_factory=list[str])
    # Event types that are still to be registered.
    types: list[CreateEventType] = field(default_factory=list[CreateEventType])

    def count(self, action: Action) -> int:
        """How many definitions met this."""
        return sum(one.action == action for one in self.done)


def run_project(hr: Headrace, definitions: Definitions) -> Outcome:
    """Make all that is missing or changed, in one epoch; if anything of it cannot be, nothing is touched.

    Event types that are new are registered after it, each in an epoch of its own, for they are rows of their store.
    A view whose text is the same but now gives other columns, such as SELECT * of a table that was altered, is replaced
    too: the home is then as a new one made from the project would be.
    """
    loop = home_of(hr).loop
    core = loop.core
    refuse_problems([*definitions.problems, *_conflicts(core, definitions)])
    for definition in definitions.feeds:
        if isinstance(definition.statement, CreateFeed):
            look_up(core, definition.statement)
    with core.sessions.catalyst.active():
        outcome = loop.define(lambda: _adopt(core, definitions))
    outcome.receipt = register_types(loop, outcome.types) or outcome.receipt
    outcome.notes.extend(left_over(core.catalog, definitions))
    return outcome


def has_followed(definitions: Definitions) -> bool:
    """Whether a project has a source or a feed that needs a process that stays, as one that serves the home does."""
    return makes_followed(one.statement for one in (*definitions.sources, *definitions.feeds))


def _adopt(core: Core, definitions: Definitions) -> Outcome:
    outcome = Outcome()
    tables: list[Table] = []
    views: list[ViewDefinition] = []
    sources: list[CreateSource] = []
    feeds: list[CreateFeed] = []
    for definition in definitions.all:
        statement = definition.statement
        if isinstance(statement, CreateEventStore):
            made = new_tables(core.catalog, definition)
            tables.extend(made)
            outcome.done.append(Done("created" if made else "unchanged", "event store", statement.name))
        elif isinstance(statement, CreateEventType):
            known = is_known(core, statement, type_of(with_stores(core.catalog, definitions), statement))
            outcome.types.extend([] if known else [statement])
            outcome.done.append(Done("unchanged" if known else "created", "event type", definition.name))
        elif isinstance(statement, CreateTable):
            action: Action = "unchanged" if statement.name in core.catalog else "created"
            if action != "unchanged":
                tables.append(make_table(table_contract(core.sessions.catalyst, statement)))
            outcome.done.append(Done(action, "table", statement.name))
        elif isinstance(statement, CreateView):
            view = view_of(core, statement)
            action = _action(core, view)
            if action == "unchanged":
                drift = find_drift(core, definition)
                outcome.notes.extend(drift.notes)
                action = "replaced" if drift.columns else "unchanged"
            if action != "unchanged":
                views.append(view)
            outcome.done.append(Done(action, "view", view.name))
        elif isinstance(statement, CreateFeed):
            action = "unchanged" if statement.name in core.catalog.feeds else "created"
            if action != "unchanged":
                feeds.append(statement)
            outcome.done.append(Done(action, "changefeed", statement.name))
        else:
            action = "read" if is_read_whole(statement) else "created"
            action = "unchanged" if statement.name in core.catalog.sources else action
            if action != "unchanged":
                sources.append(statement)
            outcome.done.append(Done(action, "source", statement.name))
    try:
        if tables or views or sources:
            planned = plan_sources(core.catalog.having(*tables), sources)
            outcome.receipt = adopt(core, [*tables, *planned.tables], views, planned.whole, planned.following)
        if feeds:
            # Of relations that are there by now.
            made = [_planned_feed(core, one) for one in feeds]
            outcome.receipt = adopt(core, kept_tables(core.catalog), feeds=made)
            outcome.notes.extend(warnings_of(core.catalog, made))
    except HeadraceError as error:
        raise _placed(definitions, error) from error
    return outcome


def _planned_feed(core: Core, statement: CreateFeed) -> Feed:
    try:
        return planned_feed(core, core.catalog, statement)
    except HeadraceError as error:
        error.about = error.about or statement.name
        raise


def _action(core: Core, view: ViewDefinition) -> Action:
    if view.name not in core.catalog:
        return "created"
    held = core.catalog.view(view.name).definition
    same = (_essence(held.sql), held.columns, held.policy, held.materialized) == (
        _essence(view.sql),
        view.columns,
        view.policy,
        view.materialized,
    )
    return "unchanged" if same else "replaced"


def _essence(sql: str) -> list[str]:
    """A query without its comments and white space."""
    return [token.text for token in scan(sql)]


def _placed(definitions: Definitions, error: HeadraceError) -> HeadraceError:
    """The error with its position in the project, where it is about a definition."""
    for definition in (*definitions.views, *definitions.sources, *definitions.feeds):
        if error.about == definition.name:
            problem = definitions.problem(definition, error)
            return ProjectError(str(problem), detail=problem.detail, hint=problem.hint)
    return error


def _conflicts(core: Core, definitions: Definitions) -> list[Problem]:
    """Everything of a project that the home cannot be brought to."""
    problems: list[Problem] = []
    for definition in definitions.all:
        try:
            _refuse_conflict(core, definition, definitions)
        except HeadraceError as error:
            problems.append(definition.problem(error))
    return problems


def _refuse_conflict(core: Core, definition: Definition, definitions: Definitions) -> None:
    statement = definition.statement
    existing = core.catalog.relations.get(definition.name)
    if isinstance(statement, CreateEventStore):
        refuse_other_store(core, statement, definitions)
    elif isinstance(statement, CreateEventType):
        is_known(core, statement, type_of(with_stores(core.catalog, definitions), statement))
    elif isinstance(statement, CreateTable):
        contract = table_contract(core.sessions.catalyst, statement)
        if existing is not None:
            _refuse_other_table(core.catalog.table(statement.name).contract, contract)
    elif isinstance(statement, CreateView):
        if isinstance(existing, Table):
            core.catalog.view(statement.name)
    elif isinstance(statement, CreateFeed):
        if statement.name in core.catalog.feeds:
            _refuse_other_feed(core.catalog.feeds[statement.name], statement)
    elif statement.name in core.catalog.sources:
        _refuse_other_source(core, statement)
    elif not is_read_whole(statement):
        return
    elif statement.table in core.catalog:
        open_reading(core.catalog, statement)
    elif statement.table not in {one.name for one in definitions.tables}:
        core.catalog.table(statement.table)


def _refuse_other_table(held: TableContract, wanted: TableContract) -> None:
    if held == wanted:
        return
    if (held.key, held.sequence) != (wanted.key, wanted.sequence):
        raise ProjectError(
            f"table {held.name} has another key or sequence in the home",
            detail=f"There the key is ({', '.join(held.key)}) and the sequence {held.sequence or 'none'}.",
            hint="neither can be altered: give the table another name, or drop it and let it be made again",
        )
    before = {field.name: field for field in held.schema.fields}
    after = {field.name: field for field in wanted.schema.fields}
    steps = [
        *(f"ADD COLUMN {name} {after[name].dataType.simpleString().upper()}" for name in after if name not in before),
        *(f"DROP COLUMN {name}" for name in before if name not in after),
        *(
            f"ALTER COLUMN {name} TYPE {after[name].dataType.simpleString().upper()}"
            for name in after
            if name in before and before[name].dataType != after[name].dataType
        ),
    ]
    raise ProjectError(
        f"table {held.name} has other columns in the home",
        detail=f"There they are {_columns(held)}.",
        hint="write these in the project, or change the home: "
        + "; ".join(f"ALTER TABLE {held.name} {step}" for step in steps)
        if steps
        else f"NOT NULL and the order of columns stay as they are: write {_columns(held)}",
    )


def _columns(contract: TableContract) -> str:
    return ", ".join(
        f"{field.name} {field.dataType.simpleString().upper()}{'' if field.nullable else ' NOT NULL'}"
        for field in contract.schema.fields
    )


def _refuse_other_source(core: Core, statement: CreateSource) -> None:
    held, wanted = core.catalog.sources[statement.name], source_of(statement)
    same = (held.table, held.connector, held.mode, held.options) == (
        wanted.table,
        wanted.connector,
        wanted.mode,
        wanted.options,
    )
    if same and (held.location == wanted.location or _is_same_table(wanted.location, held.position.get("table_id"))):
        return
    raise ProjectError(
        f"source {held.name} is another one in the home",
        detail=f"There it is read from {held.location} into {held.table}, as of epoch {held.epoch}.",
        hint=f"give it another name, or write DROP SOURCE {held.name}, which keeps the rows, and run the project again",
    )


def _refuse_other_feed(held: Feed, wanted: CreateFeed) -> None:
    if (held.table, held.sink, held.location, dict(held.options)) != (
        wanted.table,
        wanted.sink,
        location_of(wanted),
        dict(wanted.options),
    ):
        raise ProjectError(
            f"changefeed {held.name} is another one in the home",
            detail=f"There it goes from {held.table} into {held.sink.upper()} {shown_location(held)}.",
            hint=f"write ALTER CHANGEFEED {held.name} SET (...) for other options; or DROP CHANGEFEED {held.name}, and "
            "run the project again",
        )


def _is_same_table(location: str, table_id: object) -> bool:
    """Whether a table that was moved is still the one that was read."""
    try:
        return open_snapshot(location).table_id == table_id
    except SourceError:
        return False
