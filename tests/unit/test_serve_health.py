"""Whether a server is ready: told at once, from what is known, however busy everything else is."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import anyio.to_thread
import httpx
import pytest
from fastapi import FastAPI

from headrace.errors import HomeBroken, OwnerLost
from headrace.serving import health, problems
from headrace.serving.auth import Guarded
from headrace.serving.rehearsal import Rehearsal
from headrace.serving.service import Service
from tests.waiting import until

HERE = "http://127.0.0.1:8080"


def _home(**parts: Any) -> Any:
    """What /readyz looks at of a home that is well, but for these parts."""
    renewal = parts.pop("renewal", SimpleNamespace(under_way=False, has_ended=False, failure=None))
    well = {"closed": False, "broken": None, "epoch": 7, "is_lost": False}
    return SimpleNamespace(core=SimpleNamespace(**{**well, **parts}), renewal=renewal)


def _app(
    home: Any, lost: OwnerLost | None = None, keys: tuple[str, ...] = (), rehearsal: Rehearsal | None = None
) -> FastAPI:
    app = FastAPI()
    parts: Any = {"home": home, "submissions": SimpleNamespace(lost=lost), "rehearsal": rehearsal or Rehearsal()}
    app.state.service = Service(**{field.name: None for field in fields(Service)} | parts)
    problems.install(app)
    app.include_router(health.router)
    app.add_middleware(Guarded, keys=keys)
    return app


async def _ready(app: FastAPI) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE) as client:
        return await client.get("/readyz")


def test_who_asks_often_while_it_is_not_ready_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert asyncio.run(_ready(_app(_home(closed=True)))).status_code == 503
    assert [one for one in caplog.records if one.exc_info] == []
    assert caplog.text == ""


def test_it_is_told_while_every_thread_of_the_server_is_taken() -> None:
    async def ask() -> list[httpx.Response]:
        go_on = threading.Event()
        limiter = anyio.to_thread.current_default_thread_limiter()
        async with anyio.create_task_group() as taking:
            for _ in range(int(limiter.total_tokens)):
                taking.start_soon(anyio.to_thread.run_sync, go_on.wait)
            try:
                while limiter.available_tokens:
                    await asyncio.sleep(0.01)
                async with asyncio.timeout(90):
                    return [await _ready(_app(_home())), await _ready(_app(_home(closed=True)))]
            finally:
                go_on.set()

    ready, closed = asyncio.run(ask())
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "epoch": 7})
    assert closed.status_code == 503


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"closed": True}, "closed"),
        ({"broken": HomeBroken(8, OSError("full"))}, "could not take in"),
        ({"renewal": SimpleNamespace(under_way=True, has_ended=True, failure=None)}, "another is being started."),
        (
            {"renewal": SimpleNamespace(under_way=True, has_ended=False, failure="no space left")},
            "The last attempt failed: no space left",
        ),
        ({"renewal": SimpleNamespace(under_way=False, has_ended=True, failure=None)}, "Spark has stopped"),
    ],
)
def test_what_makes_a_home_unready_is_named(parts: dict[str, Any], told: str) -> None:
    answer = asyncio.run(_ready(_app(_home(**parts))))
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert told in answer.json()["detail"]


def test_why_spark_is_not_there_yet_is_told_to_those_who_may_use_the_server() -> None:
    waiting = _home(renewal=SimpleNamespace(under_way=True, has_ended=True, failure="[Errno 28] /home/ann"))
    answer = asyncio.run(_ready(_app(waiting, keys=("a-key-of-theirs",))))
    assert answer.status_code == 503
    assert answer.json()["detail"] == (
        "Spark has ended, and another is being started. The last attempt failed and is repeated."
    )


def test_a_home_that_another_process_took_over_is_not_ready() -> None:
    answer = asyncio.run(_ready(_app(_home(), OwnerLost("taken over"))))
    assert "took the home over" in answer.json()["detail"]
    # Also where nobody has sent anything since: the heartbeat has found it.
    answer = asyncio.run(_ready(_app(_home(is_lost=True))))
    assert (answer.status_code, "took the home over" in answer.json()["detail"]) == (503, True)


def test_it_is_ready_once_everything_is_rehearsed() -> None:
    rehearsal, go_on, begun = Rehearsal(), threading.Event(), threading.Event()

    def fail() -> None:
        raise RuntimeError("nothing to try")

    def wait() -> None:
        begun.set()
        assert go_on.wait(90)

    app = _app(_home(), rehearsal=rehearsal)
    assert asyncio.run(_ready(app)).status_code == 200
    rehearsal.begin([wait, fail])
    assert begun.wait(90)
    told = asyncio.run(_ready(app))
    assert (told.status_code, told.json()["detail"]) == (503, "The first epoch and the first query are rehearsed.")
    go_on.set()
    until(lambda: not rehearsal.under_way)
    assert asyncio.run(_ready(app)).status_code == 200


def test_a_server_is_ready_also_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    rehearsal = Rehearsal()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    rehearsal.begin([lambda: None, lambda: None])
    assert not rehearsal.under_way
