"""Queries of other processes, as a server runs them: bounded, and stopped in time; without a JVM."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import QueryError, ResultTooLarge, StatementError
from headrace.query_processes import for_others
from headrace.query_processes.for_others import query_verb, served
from headrace.query_processes.pool import Stop
from headrace.sql.syntax import Query


class Queries:
    """Answers as the query processes of a server do, with so many rows, or not before it is stopped."""

    def __init__(self, rows: int = 3, error: Exception | None = None) -> None:
        self._rows, self._error = rows, error
        self.asked: list[tuple[str, int | None, int]] = []

    def run(self, query: Query, epoch: int | None, rows: int, stop: Stop) -> tuple[pa.Table, int]:
        self.asked.append((query.plain_sql, epoch, rows))
        if self._error is not None:
            raise self._error
        if "endless" in query.plain_sql:
            stop.wanted.result(90)
            stop.refuse()
        return pa.table({"x": range(min(rows, self._rows))}), 7


def asked(queries: Queries, sql: str, epoch: int | None = None, seconds: float = 60) -> Any:
    answer = query_verb(served(queries), seconds)(sql=sql, epoch=epoch)  # pyright: ignore[reportArgumentType]
    rows = answer.get("rows")
    return answer if rows is None else pa.ipc.open_stream(base64.b64decode(rows)).read_all().column(0).to_pylist()


def test_a_query_is_run_as_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_others, "MOST_ROWS", 3)
    queries = Queries()
    assert asked(queries, "SELECT x FROM t", 5) == [0, 1, 2]
    assert queries.asked == [("SELECT x FROM t", 5, 4)]
    with pytest.raises(StatementError, match="one SELECT"):
        asked(queries, "SELECT 1; SELECT 2")
    with pytest.raises(StatementError, match="one SELECT"):
        asked(queries, "DELETE FROM t")
    with pytest.raises(QueryError, match="not so"):
        asked(Queries(error=QueryError("not so")), "SELECT 1")


def test_what_is_too_much_is_left_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_others, "MOST_ROWS", 3)
    assert asked(Queries(rows=4), "SELECT x FROM t").keys() == {"left"}
    assert asked(Queries(error=ResultTooLarge("too many bytes")), "SELECT 1") == {"left": "too many bytes"}
    monkeypatch.setattr(for_others, "MOST_BYTES", 20)
    assert asked(Queries(rows=3), "SELECT x FROM t").keys() == {"left"}


def test_what_takes_too_long_is_stopped_and_left_to_who_asks() -> None:
    assert asked(Queries(), "SELECT endless", seconds=0.2).keys() == {"left"}
