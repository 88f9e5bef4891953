"""Check a project without running it: everything is read and resolved, in a home that is thrown away."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.catalog.catalog import Catalog
from headrace.catalog.make import make_table, table_contract
from headrace.definitions.sources import open_reading
from headrace.epoch.core import Core
from headrace.errors import HeadraceError
from headrace.events.define import tables_of
from headrace.face import home_of, open_home
from headrace.feeds.define import planned_feed
from headrace.project.definitions import Definition, Definitions, Problem
from headrace.project.event_stores import refuse_other_store, type_of
from headrace.sources.define import following_source, is_read_whole
from headrace.sql.resolve import register
from headrace.sql.statements import (
    CreateEventStore,
    CreateEventType,
    CreateFeed,
    CreateSource,
    CreateTable,
    CreateView,
)
from headrace.statements.create import view_of


@dataclass
class Findings:
    """What is wrong with a project, and what is worth knowing."""

    problems: list[Problem] = field(default_factory=list[Problem])
    notes: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        """Whether the project can be run."""
        return not self.problems


def check_definitions(definitions: Definitions, spark: SparkSession | None = None) -> Findings:
    """Everything that is wrong, all at once."""
    findings = Findings(list(definitions.problems))
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as folder, open_home(Path(folder), spark=spark) as hr:
        failed: set[str] = set()
        core = home_of(hr).core
        catalog = core.catalog
        for definition in definitions.all:
            try:
                catalog = _resolved(core, catalog, definition, definitions, findings)
            except HeadraceError as error:
                if not _follows_from(definition, failed):
                    findings.problems.append(definitions.problem(definition, error))
                failed.add(definition.name)
    findings.problems.sort(key=lambda one: (one.file, one.line, one.column))
    return findings


def _resolved(
    core: Core, catalog: Catalog, definition: Definition, definitions: Definitions, findings: Findings
) -> Catalog:
    """The catalog with a definition, as far as those that follow need it."""
    statement = definition.statement
    if isinstance(statement, CreateSource):
        _look_at(catalog, statement, findings)
        return catalog
    if isinstance(statement, CreateFeed):
        planned_feed(core, catalog, statement)
        return catalog
    if isinstance(statement, CreateEventType):
        type_of(catalog, statement)
        return catalog
    if isinstance(statement, CreateEventStore):
        refuse_other_store(core, statement, definitions)
        tables = tables_of(statement)
        for one in tables:
            register(core.sessions.catalyst, one.name, one.schema)
        return catalog.having(*tables)
    if isinstance(statement, CreateTable):
        made = make_table(table_contract(core.sessions.catalyst, statement))
    else:
        made = core.make_view(view_of(core, statement), catalog)
        if not made.incremental:
            findings.notes.append(f"view {made.name} is not incremental: {'; '.join(made.reasons)}")
    register(core.sessions.catalyst, made.name, made.schema)
    return catalog.having(made)


def _look_at(catalog: Catalog, statement: CreateSource, findings: Findings) -> None:
    """A source's columns must fit; that it is not there yet is no fault of the project."""
    if not is_read_whole(statement):
        following_source(catalog, statement)
        return
    if not Path(statement.location).exists() and "://" not in statement.location:
        catalog.table(statement.table)
        findings.notes.append(f"source {statement.name} is not there yet: {statement.location}")
        return
    open_reading(catalog, statement)


def _follows_from(definition: Definition, failed: set[str]) -> bool:
    """Whether a fault is only that something read was faulty itself."""
    statement = definition.statement
    if isinstance(statement, CreateSource | CreateFeed):
        return statement.table in failed
    if isinstance(statement, CreateEventType):
        return statement.store in failed
    return isinstance(statement, CreateView) and bool(failed.intersection(definition.words))
