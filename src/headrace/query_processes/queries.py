"""Queries of a server: over one epoch of a home, in processes apart from its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.catalog.catalog import Table
from headrace.epoch.core import Core
from headrace.query_processes.child import Allowance
from headrace.query_processes.contents import Contents
from headrace.query_processes.pool import QueryProcesses, Stop
from headrace.query_processes.question import Kind, Question
from headrace.query_processes.refusals import too_many_bytes
from headrace.reading.as_of import relations_of
from headrace.reading.frames import Content
from headrace.reading.plain_read import plain_read, read_plainly
from headrace.reading.queries import Relations
from headrace.reading.readings import Readings
from headrace.settings import Settings
from headrace.spark.jvm import heap_bytes
from headrace.sql.names import quoted
from headrace.sql.statements import parse
from headrace.sql.syntax import Query
from headrace.sql.tokens import quoted_value, scan
from headrace.state.arrow_types import conform
from headrace.state.state import State
from headrace.statements.changes import ChangeQuery, ReadRows

# Constants of so many characters the Spark of the epochs reads itself: it takes less than to ask a query process.
_CONSTANTS_CHARACTERS = 64 * 1024
# What a JVM and its Python take beside the heap: classes, compiled code, buffers, the rows of an answer.
_BESIDE_HEAP = 3 * 1024**3 // 2


def read_plain_text(core: Core, sql: str, epoch: int | None) -> pa.Table | None:
    """The rows of a query that needs no Spark; None if it is another."""
    statements = parse(sql)
    query = statements[0] if len(statements) == 1 else None
    plain = plain_read(query) if isinstance(query, Query) else None
    if plain is None or not isinstance(query, Query):
        return None
    # Only a version may be named in it, which is a number: nothing is left to be evaluated.
    _, relations = relations_of(core, query, epoch, lambda sql: core.sessions.queries.run(sql, {}))
    return read_plainly(plain, relations, partial(key_of, core))


def key_of(readings: Readings, name: str) -> tuple[str, ...]:
    """The columns by which a relation's rows are looked up."""
    relation = readings.catalog.relations.get(name)
    return () if relation is None else relation.contract.key if isinstance(relation, Table) else relation.key


class ServedQueries:
    """Answers queries about a home without work for its own Spark."""

    def __init__(self, core: Core, processes: QueryProcesses) -> None:
        self._core = core
        self._contents = Contents(core.sessions.frames)
        self._processes = processes

    def run(
        self, query: Query, epoch: int | None, rows: int, stop: Stop, readings: Readings | None = None
    ) -> tuple[pa.Table, int]:
        """The rows of a query, at most so many, and the epoch that it read; of other readings, where they are given."""
        home = readings or self._core

        def evaluate(sql: str) -> pa.Table:
            return self._processes.rows(Question("rows", sql, {}, rows=1), stop)

        read, relations = relations_of(home, query, epoch, evaluate, stop.refuse)
        plain = plain_read(query)
        found = None if plain is None else read_plainly(plain, relations, partial(key_of, home), rows)
        if found is not None:
            if found.nbytes > self._processes.allowance.bytes:
                raise too_many_bytes(self._processes.allowance.bytes)
            return found, read
        return self._processes.rows(self._question("rows", query, relations, rows), stop), read

    def rehearse(self) -> None:
        """Have a query process there, and one query compiled, before somebody asks."""
        _, relations = self._core.newest()
        name = min(relations, key=lambda one: relations[one][0].size)
        (query,) = parse(f"SELECT count(*) AS n FROM {quoted(name)}")
        assert isinstance(query, Query)
        self._processes.rows(self._question("rows", query, relations, 1), Stop())

    def rows_to_change(self, stop: Stop, names: Callable[[str], str | None] | None = None) -> ReadRows:
        """How the statements of one asker have their rows, until they are stopped.

        `names` tells by a name what is read in its place, or None where there is nothing for this asker.
        """

        def read(query: ChangeQuery, relations: Relations) -> pa.Table:
            if query.values and len(query.sql) <= _CONSTANTS_CHARACTERS:
                constants = self._core.sessions.queries.literals.rows(query.sql, query.types)
                if constants is not None:
                    return constants
            contents = self._named(query.sql, relations if names is None else _Renamed(relations, names))
            made_of = query.types, query.pieces, query.values
            asked = Question("changes", query.sql, contents, query.line, query.column, None, *made_of)
            return conform(self._processes.rows(asked, stop), query.types)

        return read

    def plan(self, query: Query, stop: Stop, readings: Readings | None = None) -> tuple[pa.Table, int]:
        """Spark's plan of a query, line by line, and the epoch whose relations it would read."""
        epoch, relations = (readings or self._core).newest()
        lines = self._processes.plan(self._question("plan", query, relations, None), stop).splitlines()
        return pa.table({"plan": pa.array(lines, type=pa.string())}), epoch

    def _question(self, kind: Kind, query: Query, relations: Relations, rows: int | None) -> Question:
        contents = self._named(query.plain_sql, relations)
        return Question(kind, query.plain_sql, contents, query.line, query.column, rows)

    def _named(self, sql: str, relations: Relations) -> dict[str, tuple[Content, StructType]]:
        """The contents of all relations that a query may name."""
        named = {name: relations[name] for name in words(sql).intersection(relations)}
        return {name: (self._contents.of(snapshot), schema) for name, (snapshot, schema) in named.items()}


class _Renamed(Mapping[str, tuple[State, StructType]]):
    """Relations by the names that one asker has for them."""

    def __init__(self, relations: Relations, names: Callable[[str], str | None]) -> None:
        self._relations = relations
        self._names = names

    def __getitem__(self, name: str) -> tuple[State, StructType]:
        other = self._names(name)
        if other is None:
            raise KeyError(name)
        return self._relations[other]

    def __iter__(self) -> Iterator[str]:
        # A name whose stand-in is not there stands for nothing, and never for the relation itself.
        held = set(self._relations)
        return (name for name in self._relations if self._names(name) in held)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def processes_for(settings: Settings) -> QueryProcesses:
    """The query processes of a server; none is started before it is needed."""
    allowance = Allowance(
        settings.serve_query_memory,
        settings.serve_query_bytes,
        settings.spark_cores or os.cpu_count() or 1,
        settings.jars,
        resident=heap_bytes(settings.serve_query_memory) + _BESIDE_HEAP,
    )
    return QueryProcesses(allowance, settings.serve_query_processes)


def words(sql: str) -> set[str]:
    """Every word of a text that may be the name of a relation."""
    return {(quoted_value(one) if one.kind == "quoted" else one.text).lower() for one in scan(sql)}
