"""Bring a home to what a project defines: what is missing is made, what changed is replaced, the rest is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.capture.delta import open_snapshot
from headrace.engine.catalog import Table
from headrace.engine.define import table_contract
from headrace.engine.receipt import Receipt
from headrace.engine.sources import open_reading, read_sources, source_of
from headrace.engine.statements import run_statement
from headrace.errors import HeadraceError, ProjectError, SourceError
from headrace.home import Headrace
from headrace.intake.table import TableContract
from headrace.project.definitions import Definition, Definitions, Problem, refuse_problems
from headrace.sql.statements import CreateSource, CreateTable, CreateView
from headrace.sql.tokens import scan

Deed = Literal["created", "replaced", "read", "unchanged"]


@dataclass(frozen=True)
class Done:
    """What became of one definition."""

    deed: Deed
    kind: Literal["table", "view", "source"]
    name: str


@dataclass
class Outcome:
    """What a run did, in order; the receipt is that of the epoch that the sources were read into."""

    done: list[Done] = field(default_factory=list[Done])
    receipt: Receipt | None = None

    def count(self, deed: Deed) -> int:
        """How many definitions met this."""
        return sum(one.deed == deed for one in self.done)


def run_project(home: Headrace, definitions: Definitions) -> Outcome:
    """Make all that is missing or changed; if anything of it cannot be, nothing is touched."""
    refuse_problems([*definitions.problems, *_conflicts(home, definitions)])
    outcome = Outcome()

    def did(deed: Deed, kind: Literal["table", "view", "source"], name: str) -> None:
        outcome.done.append(Done(deed, kind, name))

    for definition in definitions.tables:
        known = definition.name in home.catalog
        if not known:
            _placed(definition, lambda one=definition: run_statement(home, one.statement))
        did("unchanged" if known else "created", "table", definition.name)
    for definition in definitions.views:
        did(_make_view(home, definition), "view", definition.name)
    fresh = [one for one in definitions.sources if one.name not in home.catalog.sources]
    if fresh:
        outcome.receipt = _read(home, fresh)
    for definition in definitions.sources:
        did("read" if definition in fresh else "unchanged", "source", definition.name)
    return outcome


def _make_view(home: Headrace, definition: Definition) -> Deed:
    statement = definition.statement
    assert isinstance(statement, CreateView)
    existing = home.catalog.relations.get(statement.name)
    if existing is not None:
        held = home.catalog.view(statement.name).definition
        same = (_essence(held.sql), held.columns, held.policy, held.materialized) == (
            _essence(statement.query),
            statement.columns_spelled,
            statement.policy,
            statement.materialized,
        )
        if same:
            return "unchanged"
    _placed(definition, lambda: run_statement(home, replace(statement, or_replace=existing is not None)))
    return "created" if existing is None else "replaced"


def _essence(sql: str) -> list[str]:
    """A query without its comments and white space."""
    return [token.text for token in scan(sql)]


def _read(home: Headrace, fresh: list[Definition]) -> Receipt | None:
    statements = [one.statement for one in fresh if isinstance(one.statement, CreateSource)]
    try:
        return read_sources(home, statements)
    except SourceError as error:
        guilty = next((one for one in fresh if one.name == error.source), None)
        if guilty is None:
            raise
        raise _at(guilty, error) from error


def _placed(definition: Definition, make: Callable[[], object]) -> None:
    try:
        make()
    except HeadraceError as error:
        raise _at(definition, error) from error


def _at(definition: Definition, error: HeadraceError) -> ProjectError:
    """The error with its place in the project."""
    problem = definition.problem(error)
    return ProjectError(str(problem), detail=problem.detail, hint=problem.hint)


def _conflicts(home: Headrace, definitions: Definitions) -> list[Problem]:
    """Everything of a project that the home cannot be brought to."""
    problems: list[Problem] = []
    for definition in (*definitions.tables, *definitions.views, *definitions.sources):
        try:
            _refuse_conflict(home, definition, {one.name for one in definitions.tables})
        except HeadraceError as error:
            problems.append(definition.problem(error))
    return problems


def _refuse_conflict(home: Headrace, definition: Definition, tables: set[str]) -> None:
    statement = definition.statement
    existing = home.catalog.relations.get(statement.name)
    if isinstance(statement, CreateTable):
        contract = table_contract(home.catalyst, statement)
        if existing is not None:
            _refuse_other_table(home.catalog.table(statement.name).contract, contract)
    elif isinstance(statement, CreateView):
        if isinstance(existing, Table):
            home.catalog.view(statement.name)
    elif statement.name in home.catalog.sources:
        _refuse_other_source(home, statement)
    elif statement.table in home.catalog:
        open_reading(home, statement)
    elif statement.table not in tables:
        home.catalog.table(statement.table)


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
        hint="; ".join(f"ALTER TABLE {held.name} {step}" for step in steps)
        or f"NOT NULL and the order of columns stay as they are: write {_columns(held)}",
    )


def _columns(contract: TableContract) -> str:
    return ", ".join(
        f"{field.name} {field.dataType.simpleString().upper()}{'' if field.nullable else ' NOT NULL'}"
        for field in contract.schema.fields
    )


def _refuse_other_source(home: Headrace, statement: CreateSource) -> None:
    held, wanted = home.catalog.sources[statement.name], source_of(statement)
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


def _is_same_table(location: str, table_id: object) -> bool:
    """Whether a table that was moved is still the one that was read."""
    try:
        return open_snapshot(location).table_id == table_id
    except SourceError:
        return False
