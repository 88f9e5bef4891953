"""Changes over HTTP: whatever becomes of the thread that runs their epochs, what a sender hears is so."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import ChangesRejected, HeadraceError, Rejection, WorkFailed
from headrace.serving import epochs, ingress, problems
from headrace.serving.arrivals import Arrivals
from headrace.serving.auth import Guarded
from headrace.serving.completions import Completions
from headrace.serving.ingress import with_lines
from headrace.serving.limits import Pushes
from headrace.serving.metrics import Metrics
from headrace.serving.problems import problem_of
from headrace.serving.submissions import Submissions
from headrace.settings import Settings
from tests.small_engine import Host, rows, table


class Home:
    """A home of one table without a key, in memory."""

    def __init__(self) -> None:
        self.host = Host(table("t", key=()))
        self.loop = Loop(self.host)
        self.core, self.receipt_of, self.withdraw = self.host, self.loop.receipt_of, self.loop.withdraw
        self.on_enter: Callable[[], object] = lambda: None

    @property
    def epoch(self) -> int:
        return self.host.epoch

    def call(self, changes: Any, key: str | None = None, digest: str = "") -> Call:
        return Call(changes, key, digest)

    def enter(self, call: Call) -> Call:
        self.loop.enter(call)
        self.on_enter()
        return call

    def held(self) -> dict[int, int]:
        return {row[0]: times for row, times in rows(self.host.stores["t"].snapshot()).items()}


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.fixture
def submissions(home: Home) -> Iterator[Submissions]:
    hr: Any = home
    metrics: Any = SimpleNamespace(count=lambda _: None, refuse=lambda _: None)
    made = Submissions(hr, metrics)
    yield made
    made.close()


def insert(number: int) -> dict[str, list[object]]:
    return {"t": [{"insert": {"id": number, "n": 0}}]}


class Slot:
    """A slot that tells how often it was released."""

    released = 0

    def release(self) -> None:
        self.released += 1


def test_a_refused_push_keeps_nothing_of_its_body(home: Home, submissions: Submissions) -> None:
    """A token is known for long after its push was refused; what it was refused for is all that is kept of it."""

    class Row(dict[str, Any]):
        pass

    bodies: list[weakref.ref[Row]] = []
    completions, tokens = Completions(), list[str]()
    for lines in (None, [1, 2]):
        good, bad = Row(id=1, n=1), Row(id=1, n="none")
        bodies += [weakref.ref(good), weakref.ref(bad)]
        explain = partial(with_lines, lines=lines) if lines else None
        changes: dict[str, list[object]] = {"t": [{"insert": good}, {"insert": bad}]}
        submission = submissions.submit(changes, **({"explain": explain} if explain else {}))
        del good, bad, changes
        assert isinstance(submission.exception(20), HeadraceError)
        tokens.append(completions.issue(submission))
        del submission
    home.loop.submit(Call(insert(2)))
    gc.collect()
    assert [body() for body in bodies] == [None] * 4
    told = [problem_of(completions.ask(token).error or ValueError()) for token in tokens]
    assert [(one["status"], one["code"], one["rejected"]) for one in told] == [(422, "changes_rejected", 1)] * 2
    assert [one["rejections"][0].get("line", one["rejections"][0].get("index")) for one in told] == [1, 2]


def test_what_refusals_say_is_bounded_too() -> None:
    """A thousand reasons each, and a hundred thousand tokens, would be more than the memory holds."""
    completions = Completions(kept=100_000, kept_bytes=100_000)
    tokens = list[str]()
    for _ in range(50):
        refused = Future[Receipt]()
        refused.set_exception(ChangesRejected([Rejection("t", i, "why" * 10) for i in range(100)]))
        tokens.append(completions.issue(refused))
    states = [completions.ask(token).state for token in tokens]
    assert states == sorted(states, reverse=True)
    assert 5 <= states.count("failed") <= 20


def test_one_who_sends_the_same_twice_is_counted_once(home: Home) -> None:
    hr: Any = home
    metrics = Metrics(hr)
    submissions = Submissions(hr, metrics)
    with home.loop.turn:
        # Both are in line before their epoch begins.
        twins = [submissions.submit(insert(1), "k", digest="d") for _ in range(2)]
    later = submissions.submit(insert(1), "k", digest="d")
    assert {one.result(90).epoch for one in (*twins, later)} == {1}
    submissions.close()
    assert home.held() == {1: 1}
    counted = metrics.registry.get_sample_value("headrace_changes_total", {"table": "t", "outcome": "applied"})
    assert counted == 1


@pytest.mark.parametrize("path", ["/v1/ingress/t", "/v1/epochs"])
def test_an_epoch_may_wait_for_whoever_is_sending(home: Home, submissions: Submissions, path: str) -> None:
    arrivals, expected = Arrivals(), list[bool]()
    app = FastAPI()
    app.state.service = SimpleNamespace(
        readings=home.host,
        submissions=submissions,
        pushes=Pushes(2, 1000, 100_000),
        arrivals=arrivals,
        settings=Settings(),
    )
    app.include_router(ingress.router)
    app.include_router(epochs.router)
    app.add_middleware(Guarded)

    async def sent() -> AsyncIterator[bytes]:
        # Looked at while the body is being read.
        expected.append(arrivals.expected())
        yield b'{"t": [{"insert": {"id": 1, "n": 0}}]}' if path == "/v1/epochs" else b'{"insert": {"id": 1, "n": 0}}'

    async def push() -> int:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.post(f"{path}?wait=true", content=sent())).status_code

    assert asyncio.run(push()) == 200
    assert expected == [True]
    assert not arrivals.expected()


def test_a_row_of_no_weight_is_held_to_the_table(home: Home, submissions: Submissions) -> None:
    app = FastAPI()
    app.state.service = SimpleNamespace(
        readings=home.host,
        submissions=submissions,
        pushes=Pushes(2, 1000, 100_000),
        arrivals=Arrivals(),
        settings=Settings(),
    )
    problems.install(app)
    app.include_router(ingress.router)
    app.add_middleware(Guarded)

    async def push(row: str) -> httpx.Response:
        transport, path = httpx.ASGITransport(app), "/v1/ingress/t?wait=true&update_format=weighted"
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.post(
                path, content=f'{{"weight": 1, "data": {{"id": 1}}}}\n{{"weight": 0, "data": {row}}}'
            )

    told = asyncio.run(push('{"id": "no", "q": 1}'))
    assert (told.status_code, [one["line"] for one in told.json()["rejections"]]) == (422, [2])
    assert home.held() == {}
    assert asyncio.run(push('{"id": 2}')).status_code == 200
    assert home.held() == {1: 1}


def test_changes_that_no_thread_can_carry_are_not_in_a_later_epoch(home: Home, submissions: Submissions) -> None:
    slot: Any = Slot()
    submissions.close()
    with pytest.raises(WorkFailed) as told:
        submissions.submit(insert(1), slot=slot)
    assert told.value.transient
    assert slot.released == 1
    home.loop.submit(Call(insert(2)))
    assert home.held() == {2: 1}


def test_changes_that_another_took_meanwhile_have_its_verdict(home: Home, submissions: Submissions) -> None:
    slot: Any = Slot()
    submissions.close()
    home.on_enter = lambda: home.loop.submit(Call(insert(2)))
    submission: Future[Any] = submissions.submit(insert(1), slot=slot)
    assert submission.result(90).epoch == 1
    assert slot.released == 1
    assert home.held() == {1: 1, 2: 1}
