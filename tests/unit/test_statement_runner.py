"""Statements on their way have their slots for as long as their threads, and are stopped wherever they are."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import QueryStopped
from headrace.query_processes.child import Allowance
from headrace.query_processes.pool import QueryProcesses, Stop
from headrace.query_processes.queries import ServedQueries
from headrace.serving import statement_runner as module
from headrace.serving.problems import Refusal
from headrace.serving.statement_runner import PreparedStatement, StatementRunner
from headrace.sql.statements import Query, parse


class Sender:
    """A request whose sender waits for ever."""

    client = None

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}


def test_a_statement_has_its_place_until_its_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GIVE_UP_SECONDS", 0.3)
    monkeypatch.setattr(module, "_STOP_AGAIN_SECONDS", 0.05)
    statements, end = StatementRunner(slots=1), threading.Event()
    request: Any = Sender()

    async def ask() -> None:
        for status in (400, 429):
            with pytest.raises(Refusal) as refusal:
                await statements.answer(
                    request, 0.1, Stop(), lambda: PreparedStatement(lambda: end.wait(600), changes=False)
                )
            assert refusal.value.status == status
            await asyncio.sleep(0.5)
        assert statements.under_way == 1
        end.set()
        async with asyncio.timeout(90):
            while statements.under_way:
                await asyncio.sleep(0.1)
        assert await statements.answer(request, 60, Stop(), lambda: PreparedStatement(lambda: 7, changes=False)) == 7

    asyncio.run(ask())


def test_a_place_that_has_no_thread_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    statements = StatementRunner(slots=1)
    request: Any = Sender()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "Thread", type("NoThread", (threading.Thread,), {"start": refuse}))
    with pytest.raises(RuntimeError):
        asyncio.run(statements.answer(request, 1, Stop(), lambda: PreparedStatement(lambda: 7, changes=False)))
    assert statements.under_way == 0


def test_an_earlier_epoch_is_not_worked_out_for_one_who_has_gone() -> None:
    stop = Stop()
    given: list[Any] = []

    def relations_at(epoch: int, go_on: Any) -> dict[str, Any]:
        given.append(go_on)
        return {}

    catalog, sessions = SimpleNamespace(relations={}), SimpleNamespace(frames=None)
    newest: tuple[int, dict[str, Any]] = (9, {})
    home: Any = SimpleNamespace(sessions=sessions, relations_at=relations_at, catalog=catalog, newest=lambda: newest)
    processes = QueryProcesses(Allowance("64m", 10**6, 1, Path("/nowhere")), 1, ("/nowhere/python",))
    (query,) = parse("SELECT count(*) FROM a VERSION AS OF 3")
    assert isinstance(query, Query)
    stop.stop()
    with pytest.raises(QueryStopped):
        ServedQueries(home, processes).run(query, None, 10, stop)
    with pytest.raises(QueryStopped):
        given[0]()
