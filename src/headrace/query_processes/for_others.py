"""What other processes read of a home that this one has open, so that they need no Spark of their own.

What would take this process too long, or too much of its memory, is left to who asks: {"left": why}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from headrace.epoch.core import Core
from headrace.errors import QueryStopped, ResultTooLarge
from headrace.owner.control import Verb
from headrace.query_processes.pool import Stop
from headrace.query_processes.queries import ServedQueries, key_of
from headrace.reading.as_of import relations_of
from headrace.reading.explain import Explanation
from headrace.reading.plain_read import plain_read, read_plainly
from headrace.reading.stoppable import Stoppable
from headrace.spark.time_limit import stopped_after
from headrace.sql.syntax import Query
from headrace.statements.answers import Result, to_answer
from headrace.statements.run import only_query

MOST_ROWS = 100_000
MOST_BYTES = 16 * 1024 * 1024

# The rows of a query of an epoch, at most so many within so many seconds.
RunQuery = Callable[[Query, int | None, int, float], pa.Table]


class OpenHome(Protocol):
    """The verbs that others may have run here."""

    core: Core

    def changes(self, name: str, since: int, until: int | None, most_bytes: int | None) -> pa.Table: ...

    def explain(self, name: str) -> Explanation: ...

    def execute(self, sql: str) -> Result: ...


def reading_verbs(home: OpenHome) -> dict[str, Verb]:
    """The verbs by which others read a home."""

    def changes(name: str, since: int = 0, until: int | None = None) -> Mapping[str, Any]:
        return _bounded(lambda: home.changes(name, since, until, MOST_BYTES))

    def explain(name: str) -> Mapping[str, Any]:
        found = home.explain(name)
        return {"name": found.name, "incremental": found.incremental, "reasons": found.reasons, "text": found.text}

    def relations() -> Mapping[str, Any]:
        kinds = ("tables", "views", "sources", "changefeeds")
        listed = {kind: to_answer(home.execute(f"SHOW {kind}"))["rows"] for kind in kinds}
        return {"epoch": home.core.epoch, **listed}

    query = query_verb(partial(_run_here, home.core), home.core.settings.serve_query_time.total_seconds())
    return {"query": query, "changes": changes, "explain": explain, "relations": relations}


def query_verb(run: RunQuery, seconds: float) -> Verb:
    """The verb by which others have a query run."""

    def query(sql: str, epoch: int | None = None) -> Mapping[str, Any]:
        statement = only_query(sql)
        return _bounded(lambda: run(statement, epoch, MOST_ROWS + 1, seconds))

    return query


def served(queries: ServedQueries) -> RunQuery:
    """Run a query where those of a server run."""

    def run(query: Query, epoch: int | None, rows: int, seconds: float) -> pa.Table:
        stop = Stop()
        with stopped_after(seconds, stop.stop):
            return queries.run(query, epoch, rows, stop)[0]

    return run


def _run_here(core: Core, query: Query, epoch: int | None, rows: int, seconds: float) -> pa.Table:
    """Run a query as one of this process."""
    core.refuse_closed()
    queries = core.sessions.queries
    _, relations = relations_of(core, query, epoch, lambda sql: queries.run(sql, {}))
    plain = plain_read(query)
    found = None if plain is None else read_plainly(plain, relations, partial(key_of, core), rows)
    if found is not None:
        return found
    with core.spark.working():
        stoppable = Stoppable(core.sessions.catalyst.session.sparkContext)
        with stopped_after(seconds, stoppable.stop), stoppable.working():
            return core.sessions.queries.run(query.plain_sql, relations, query.line, query.column, rows)


def _bounded(read: Callable[[], pa.Table]) -> Mapping[str, Any]:
    """What is read, or that it is left to who asks."""
    try:
        rows = read()
    except (QueryStopped, ResultTooLarge) as error:
        return {"left": error.message}
    if rows.num_rows > MOST_ROWS or rows.nbytes > MOST_BYTES:
        return {"left": f"it has {rows.num_rows} rows of {rows.nbytes} bytes, or more"}
    return to_answer(rows)
