"""Keys with fewer rights and event stores: which store a request means, and what it may do with it, on every route."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from headrace.access.grants import Access, read_grant
from headrace.epoch.loop import Loop
from headrace.events.open_store import OpenStore
from headrace.events.parts import parts_for
from headrace.events.store import EventStore
from headrace.events.tables import store_tables
from headrace.serving import commands, events, problems
from headrace.serving.access import ACCESS, refusal_of_path
from headrace.serving.arrivals import Arrivals
from headrace.serving.limits import Pushes
from headrace.serving.problems import respond
from headrace.serving.submissions import Submissions
from headrace.settings import Settings
from tests.small_engine import table
from tests.small_events import OPTIONS, EventHost, event

COMMANDS = """
import headrace

@headrace.command("Customer", store="events")
def create(state, customer_id: str):
    return [{"event_type": "CustomerCreated"}]

@headrace.command("Customer", store="secret_events")
def create_in_secret(state, customer_id: str):
    return [{"event_type": "CustomerCreated"}]
"""


class Door:
    """The routes of events and commands over two stores in memory, asked by whoever has some grants."""

    def __init__(self, folder: Path) -> None:
        self.host = EventHost(*store_tables("secret_events", OPTIONS), table("orders"))
        core: Any = self.host
        loop = Loop(core)
        parts = {name: parts_for(folder / name, name, ThreadPoolExecutor(1)) for name in ("events", "secret_events")}

        def store(name: str | None) -> EventStore:
            return EventStore(OpenStore(loop, name or "events", parts[name or "events"]))

        counted: Any = SimpleNamespace(count=lambda _: None, refuse=lambda _: None)
        self.submissions = Submissions(loop, counted)
        self._app = FastAPI()
        self._app.state.service = SimpleNamespace(
            home=SimpleNamespace(core=core, events=store),
            arrivals=Arrivals(),
            pushes=Pushes(8, 1 << 20, 1 << 24),
            submissions=self.submissions,
            settings=Settings(serve_definitions=True),
        )
        problems.install(self._app)
        self._app.include_router(events.router)
        file = folder / "commands.py"
        file.write_text(COMMANDS)
        given: Any = None
        commands.install(self._app, given, [str(file)])

    async def ask(self, grants: list[str], method: str, path: str, **sent: Any) -> httpx.Response:
        access = Access("somebody", tuple(map(read_grant, grants)))

        async def judged(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = refusal_of_path(access, scope["method"], scope["path"])
            if refusal is not None:
                await respond(refusal)(scope, receive, send)
                return
            scope[ACCESS] = access
            await self._app(scope, receive, send)

        transport = httpx.ASGITransport(judged)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **sent)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path)
    yield made
    made.submissions.close()


NOTED = [event("Noted", ssn="123")]
APPENDER, READER = ["write:events", "write:orders"], ["read:events"]


@pytest.mark.anyio
async def test_a_key_appends_reads_and_commands_by_the_name_of_its_store(door: Door) -> None:
    # The store that is meant is the one that the key may append to.
    first = await door.ask(APPENDER, "POST", "/v1/events/Customer/c1", json=NOTED)
    assert (first.status_code, first.json().get("version")) == (200, 1), first.text
    both = {"events": NOTED, "changes": {"orders": [{"insert": {"id": 7, "n": 7}}]}}
    second = await door.ask(APPENDER, "POST", "/v1/events/Customer/c1", json=both, params={"store": "EVENTS"})
    assert (second.status_code, second.json().get("version")) == (200, 2), second.text
    for grants in (APPENDER, READER, ["admin:*"]):
        everything = await door.ask(grants, "GET", "/v1/events")
        assert len(everything.json()["events"]) == 2
        aggregate = await door.ask(grants, "GET", "/v1/events/Customer/c1", params={"store": "events"})
        assert len(aggregate.json()["events"]) == 2
        state = await door.ask(grants, "GET", "/v1/events/Customer/c1/state")
        assert state.json()["state"] == {"ssn": "123"}
    listed = await door.ask(APPENDER, "GET", "/v1/commands")
    assert [one["name"] for one in listed.json()] == ["create"]
    assert len((await door.ask(["write:*"], "GET", "/v1/commands")).json()) == 2
    assert (await door.ask(READER, "GET", "/v1/commands")).json() == []
    done = await door.ask(APPENDER, "POST", "/v1/commands/create", json={"customer_id": "c2"})
    assert (done.status_code, done.json().get("version")) == (200, 1), done.text
    assert (await door.ask(["admin:*"], "POST", "/v1/commands/absent", json={})).status_code == 404


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("POST", "/v1/events/Customer/c9", {"params": {"store": "secret_events"}, "json": NOTED}),
        ("POST", "/v1/events/Customer/c9", {"params": {"store": "absent"}, "json": NOTED}),
        ("POST", "/v1/events/Customer/c9", {"params": {"store": "orders"}, "json": NOTED}),
        ("POST", "/v1/events/Customer/c9", {"params": {"store": "events_aggregates"}, "json": NOTED}),
        ("POST", "/v1/events/Customer/c9", {"json": {"events": NOTED, "changes": {"people": []}}}),
        ("GET", "/v1/events", {"params": {"store": "secret_events"}}),
        ("GET", "/v1/events/Customer/c1", {"params": {"store": "absent"}}),
        ("GET", "/v1/events/Customer/c1/state", {"params": {"store": "secret_events"}}),
        ("POST", "/v1/commands/create_in_secret", {"json": {"customer_id": "c9"}}),
        ("POST", "/v1/commands/absent", {"json": {}}),
        ("POST", "/v1/event-types", {"json": {"event_type": "CustomerCreated"}}),
        ("DELETE", "/v1/events", {}),
    ],
)
async def test_all_else_is_refused_alike_and_nothing_is_told(
    door: Door, method: str, path: str, sent: dict[str, Any]
) -> None:
    for grants in (APPENDER, READER, ["read:*"], ["observe"], ["write:orders"], []):
        answer = await door.ask(grants, method, path, **sent)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (grants, answer.text)
        named = str(sent.get("params", {}).get("store", path))
        assert "secret_events" not in answer.text.replace(named, "")
    assert door.host.epoch == 0


@pytest.mark.anyio
async def test_parts_of_rows_that_are_hidden_are_not_changed_beside_events(door: Door) -> None:
    grants = [*APPENDER, "read:orders=public_orders"]
    for changes, status in (
        ({"orders": [{"insert": {"id": 7, "n": 7}}]}, 200),
        ({"orders": [{"update": {"id": 7, "n": 8}}]}, 403),
        ({"ORDERS": [{"insert": {"id": 9, "n": 9}}, {"update": {"id": 7, "n": 8}}]}, 403),
        ({"orders": {"update": {"id": 7, "n": 8}}}, 422),
        ({"orders": 5}, 422),
    ):
        sent = {"events": NOTED, "changes": changes}
        answer = await door.ask(grants, "POST", "/v1/events/Customer/c1", json=sent)
        assert answer.status_code == status, answer.text
    sent = {"events": NOTED, "changes": {"orders": [{"update": {"id": 7, "n": 8}}]}}
    assert (await door.ask(APPENDER, "POST", "/v1/events/Customer/c1", json=sent)).status_code == 200


@pytest.mark.anyio
async def test_a_store_is_read_by_its_name_and_never_past_a_view_that_stands_in(door: Door) -> None:
    await door.ask(APPENDER, "POST", "/v1/events/Customer/c1", json=NOTED)
    for grants in (["read:*"], ["read:events=public_events"], ["write:*"], ["observe"], []):
        for path in ("/v1/events", "/v1/events/Customer/c1", "/v1/events/Customer/c1/state"):
            answer = await door.ask(grants, "GET", path, params={"store": "events"})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (grants, answer.text)
    # To append, a pattern is enough; of several stores the one called events is meant.
    appended = await door.ask(["write:*"], "POST", "/v1/events/Customer/c1", json=NOTED)
    assert (appended.status_code, appended.json().get("version")) == (200, 2), appended.text
