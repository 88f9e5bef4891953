"""SQL of the largest size that a server takes: read in little time, and never by the Spark of the epochs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI

from headrace.errors import StatementError
from headrace.query_processes.pool import Stop
from headrace.query_processes.queries import ServedQueries
from headrace.query_processes.question import Question
from headrace.serving import problems, query
from headrace.serving.auth import Guarded
from headrace.serving.statement_runner import StatementRunner
from headrace.settings import Settings
from headrace.sql.statements import parse
from headrace.statements.changes import work_out
from tests.costs import cost_of
from tests.small_engine import catalog_of, table
from tests.thinned import thinned

LARGEST = Settings().serve_sql_characters
SUMS = "+".join(["1"] * (LARGEST // 2 - 100))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sql_of",
    thinned(
        [
            lambda size: "SELECT " + "+".join(["1"] * (size // 2 - 100)),
            lambda size: "SELECT a FROM t VERSION AS OF 1 WHERE " + "+".join(["1"] * (size // 2 - 100)),
            lambda size: "SELECT * FROM " + ",".join(["t VERSION AS OF 1"] * (size // 20)),
            lambda size: "INSERT INTO t (" + ",".join(f"c{i}" for i in range(size // 7)) + ") VALUES (1)",
            lambda size: "UPDATE t SET " + ",".join(f"c{i} = 1" for i in range(size // 11)),
            lambda size: "CREATE VIEW v (" + ",".join(f"c{i}" for i in range(size // 7)) + ") AS SELECT 1",
            lambda size: "CREATE TABLE t (" + ",".join(f"c{i} INT" for i in range(size // 11)) + ")",
        ],
        3,
    ),
    ids=["select", "as of", "join", "insert", "update", "view", "table"],
)
def test_it_is_read_in_a_time_that_grows_with_it(sql_of: Callable[[int], str]) -> None:
    """To compare each name with all before it would cost 64 times as much where the text is eight times as long."""
    long, short = sql_of(LARGEST), sql_of(LARGEST // 8)
    assert LARGEST // 2 < len(long) <= LARGEST
    # A text is parsed once: each try has a text of its own.
    spaces = count()
    assert cost_of(lambda: parse(long + " " * next(spaces))) < 32 * cost_of(lambda: parse(short + " " * next(spaces)))


def test_types_without_end_are_refused() -> None:
    with pytest.raises(StatementError, match="nested too deeply"):
        parse("CREATE TABLE t (a " + "STRUCT<a:" * 10_000 + "INT" + ">" * 10_000 + ")")


class Processes:
    """Query processes that note what they are asked."""

    allowance = SimpleNamespace(bytes=1_000)

    def __init__(self) -> None:
        self.wanted: list[Question] = []

    def rows(self, question: Question, _: Stop) -> pa.Table:
        self.wanted.append(question)
        return pa.table({f"c{i}": pa.array([], pa.int64()) for i in range(len(question.types))})


class Owner:
    """A home whose own Spark reads constants, and no other SQL."""

    definitions = 0

    def __init__(self) -> None:
        self.read: list[str] = []
        self.catalog = catalog_of(table("t"))
        queries = SimpleNamespace(literals=SimpleNamespace(rows=self._constants))
        # It has no way to parse.
        catalyst = SimpleNamespace(java_type=lambda kind: SimpleNamespace(sql=kind.simpleString))
        self.sessions = SimpleNamespace(frames=None, queries=queries, catalyst=catalyst)

    def newest(self) -> tuple[int, dict[str, Any]]:
        return 1, {}

    def _constants(self, sql: str, types: Any) -> pa.Table:
        self.read.append(sql)
        return pa.table({f"c{i}": pa.array([], pa.int64()) for i in range(len(types))})


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM t WHERE n = 1",
        f"DELETE FROM t WHERE n = {SUMS}",
        f"UPDATE t SET n = {SUMS} WHERE n > 0",
        "INSERT INTO t SELECT id, n FROM t",
        "INSERT INTO t VALUES " + ",".join(["(1, 1)"] * (LARGEST // 8)),
    ],
    ids=lambda sql: sql[:24],
)
def test_what_changes_rows_is_read_in_a_query_process(sql: str) -> None:
    """The Spark of the epochs has no time limit, and would end with all views when many send the largest."""
    home: Any = Owner()
    processes: Any = Processes()
    work_out(home, parse(sql)[0], ServedQueries(home, processes).rows_to_change(Stop()))  # type: ignore[arg-type]
    assert [one.kind for one in processes.wanted] == ["changes"]
    assert home.read == []


def test_a_few_constants_are_read_where_they_are_inserted() -> None:
    home: Any = Owner()
    processes: Any = Processes()
    statement: Any = parse("INSERT INTO t VALUES (1, 2)")[0]
    work_out(home, statement, ServedQueries(home, processes).rows_to_change(Stop()))
    assert (home.read, processes.wanted) == (["VALUES (1, 2)"], [])


def _app(settings: Settings) -> FastAPI:
    app = FastAPI()
    app.state.service = SimpleNamespace(settings=settings, statements=StatementRunner(settings.serve_queries))
    problems.install(app)
    app.include_router(query.router)
    app.add_middleware(Guarded)
    return app


async def _ask(app: FastAPI, sql: str, address: str = "127.0.0.1") -> httpx.Response:
    transport = httpx.ASGITransport(app, client=(address, 123))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.post("/v1/query", json={"sql": sql})


def test_longer_sql_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "parse", lambda _: pytest.fail("it was read"))
    answer = asyncio.run(_ask(_app(Settings(serve_sql_characters=1_000)), "x" * 1_001))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "HEADRACE_SERVE_SQL_CHARACTERS" in answer.json()["hint"]


@pytest.mark.parametrize(("sql", "most"), [(" " * 20_000 + ";", 1), (";", 2)], ids=["long", "short"])
def test_long_ones_are_read_one_after_the_other(sql: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once would take turns with the epochs for the interpreter; short ones wait for none of them."""
    lock, together, seen, both = threading.Lock(), 0, list[int](), threading.Barrier(2)

    def read(text: str) -> list[Any]:
        nonlocal together
        with lock:
            together += 1
            seen.append(together)
        if most == 2:
            both.wait(90)
        else:
            time.sleep(0.5)
        with lock:
            together -= 1
        return parse(text)

    monkeypatch.setattr(query, "parse", read)

    async def ask() -> list[httpx.Response]:
        app = _app(Settings())
        return list(await asyncio.gather(_ask(app, sql), _ask(app, sql)))

    assert [one.json()["code"] for one in asyncio.run(ask())] == ["one_statement"] * 2
    assert max(seen) == most


def test_no_more_are_read_at_once_than_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading takes the interpreter from the epochs: who is one too many is refused before anything is read."""
    go_on, reading = threading.Event(), threading.Semaphore(0)

    def read(sql: str) -> list[Any]:
        reading.release()
        assert go_on.wait(90)
        return parse(sql)

    monkeypatch.setattr(query, "parse", read)

    async def ask() -> list[httpx.Response]:
        app = _app(Settings(serve_queries=2))
        # No statement, so that nothing is asked once it is read.
        first = [asyncio.ensure_future(_ask(app, ";")) for _ in range(2)]
        for _ in first:
            assert await asyncio.to_thread(reading.acquire, timeout=90)
        assert app.state.service.statements.under_way == 2
        third = await asyncio.wait_for(_ask(app, ";"), 90)
        go_on.set()
        answers = [third, *(await asyncio.gather(*first)), await _ask(app, ";")]
        assert app.state.service.statements.under_way == 0
        return answers

    assert [one.json()["code"] for one in asyncio.run(ask())] == ["too_busy", *["one_statement"] * 3]


def test_one_asker_leaves_a_quarter_of_the_slots_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Semaphore(0), threading.Event()

    def read(sql: str) -> list[Any]:
        reading.release()
        assert go_on.wait(90)
        return parse(sql)

    monkeypatch.setattr(query, "parse", read)

    async def ask() -> list[httpx.Response]:
        app = _app(Settings(serve_queries=4))
        first = [asyncio.ensure_future(_ask(app, ";")) for _ in range(3)]
        for _ in first:
            assert await asyncio.to_thread(reading.acquire, timeout=90)
        refused = await asyncio.wait_for(_ask(app, ";"), 90)
        other = asyncio.ensure_future(_ask(app, ";", "127.0.0.2"))
        assert await asyncio.to_thread(reading.acquire, timeout=90)
        go_on.set()
        return [refused, await other, *(await asyncio.gather(*first))]

    refused, *answered = asyncio.run(ask())
    assert (refused.status_code, refused.json()["code"]) == (429, "too_busy")
    assert "3 of them have this key and address" in refused.json()["detail"]
    assert [one.json()["code"] for one in answered] == ["one_statement"] * 4
