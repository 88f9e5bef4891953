"""/v1/events, /v1/event-types and /v1/commands over a store in memory: digits, keys, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from headrace.errors import OwnerLost
from headrace.serving import commands, events, problems
from headrace.serving.access import ACCESS
from headrace.serving.arrivals import Arrivals
from headrace.serving.limits import Pushes
from headrace.serving.statement_runner import StatementRunner
from headrace.serving.submissions import Submissions
from headrace.settings import Settings
from tests.small_events import SmallStore, event

_COMMANDS = """
import headrace
@headrace.command("Customer")
def note(state, customer_id: str, details: dict):
    return {"event_type": "Noted", "event_data": details}
@headrace.command("Customer")
def typed(state, customer_id: str, amount: float, n: int = 0):
    return {"event_type": "Typed", "event_data": {"amount": amount, "n": n}}
"""


class Client:
    """Asks the routes of events of a small store."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.store = SmallStore(folder, **options)
        module = folder / "some_commands.py"
        module.write_text(_COMMANDS)
        metrics: Any = SimpleNamespace(refuse=lambda _: None, count=lambda _: None)
        self.submissions = Submissions(self.store.loop, metrics)
        self._app = FastAPI()
        problems.install(self._app)
        self._app.include_router(events.router)
        home: Any = SimpleNamespace(events=lambda name=None: self.store)
        commands.install(self._app, home, [str(module)])
        self._app.state.service = SimpleNamespace(
            home=home,
            settings=Settings(serve_definitions=True),
            arrivals=Arrivals(),
            pushes=Pushes(10, 1_000_000, 10_000_000),
            submissions=self.submissions,
            statements=StatementRunner(4),
        )

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """One request; a body that is text goes as it is."""
        access = SimpleNamespace(is_unlimited=True, who="a test", may_write=lambda _: True)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await self._app({**scope, ACCESS: access}, receive, send)

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
                content = body if isinstance(body, str | None) else json.dumps(body)
                sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
                return await client.request(method, path, content=content, headers=sent)

        return asyncio.run(ask())


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"event_type": "Known", "json_schema": {"type": "object", "required": ["b"]}}, 409),
        ({"event_type": "X", "json_schema": {"$ref": "http://127.0.0.1:1/x"}}, 422),
        ({"event_type": "X", "json_schema": {"$ref": "file:///etc/passwd"}}, 422),
        ({"event_type": "X", "json_schema": {"pattern": "("}}, 422),
        ({"event_type": "X", "json_schema": {"type": "nothing"}}, 422),
        ({"event_type": "X", "encrypted": ["a.b"]}, 422),
    ],
)
def test_an_event_type_that_is_refused_is_no_failure_of_the_server(client: Client, sent: Any, status: int) -> None:
    assert client.ask("POST", "/v1/event-types", {"event_type": "Known"}).status_code == 200
    found = client.ask("POST", "/v1/event-types", sent)
    assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json"), found.text
    assert found.json()["code"].startswith("event_type_")


def test_encrypted_fields_of_a_map_are_refused_by_the_request(tmp_path: Path) -> None:
    found = Client(tmp_path, data="map").ask("POST", "/v1/event-types", {"event_type": "X", "encrypted": ["a"]})
    assert found.status_code == 422, found.text


@pytest.mark.parametrize("number", ["12345678901234567890.123456789", "1E-999999999", "1E+400", "9.50", "3"])
def test_numbers_are_answered_with_their_digits(client: Client, number: str) -> None:
    sent = f'{{"event_type": "Paid", "event_data": {{"amount": {number}}}}}'
    assert client.ask("POST", "/v1/events/A/a", sent).status_code == 200
    for path in ("/v1/events", "/v1/events/A/a", "/v1/events/A/a/state"):
        assert f'"amount":{number}}}' in client.ask("GET", path).text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/events/a/%ff"),
        ("GET", "/v1/events/%C3/a"),
        ("GET", "/v1/events/a/%ff/state"),
        ("GET", "/v1/events?aggregate_type=%ff"),
    ],
)
def test_names_that_are_no_text_are_refused(client: Client, method: str, path: str) -> None:
    found = client.ask(method, path, event("x") if method == "POST" else None)
    assert (found.status_code, found.json()["code"]) == (400, "unreadable")
    assert len(client.store.read()) == 0
    assert client.ask("POST", "/v1/events/a/%C3%A9", event("x")).status_code == 200
    assert client.store.read().to_pylist()[0]["aggregate_id"] == "é"


def test_a_key_is_of_one_aggregate_and_one_body(client: Client) -> None:
    first = client.ask("POST", "/v1/events/A/a", [event("x"), event("y")], Idempotency_Key="k").json()
    again = client.ask("POST", "/v1/events/A/a", [event("x"), event("y")], Idempotency_Key="k").json()
    assert (again["epoch"], again["version"]) == (first["epoch"], 2)
    other = client.ask("POST", "/v1/events/A/a", [event("x")], Idempotency_Key="k")
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert client.ask("POST", "/v1/events/A/b", [event("x")], Idempotency_Key="k").json()["version"] == 1


def test_commands_are_given_the_numbers_that_were_sent(client: Client) -> None:
    body = '{"customer_id": "a", "details": {"amount": 1.50, "n": 2, "big": 1e400}}'
    assert client.ask("POST", "/v1/commands/note", body).status_code == 200
    kept = client.store.read().to_pylist()[0]["event_data"]
    assert kept == '{"amount":1.50,"n":2,"big":1E+400}'
    typed = client.ask("POST", "/v1/commands/typed", '{"customer_id": "b", "amount": 1.5, "n": 2}')
    assert typed.status_code == 200, typed.text
    assert client.store.state("Customer", "b") == {"amount": 1.5, "n": 2}


def test_a_command_of_one_who_lost_the_home_tells_that_it_is_lost(client: Client) -> None:
    def lost() -> None:
        raise OwnerLost("another owns it")

    client.store.host.before_commit = lost
    found = client.ask("POST", "/v1/commands/note", {"customer_id": "a", "details": {}})
    assert found.status_code == 503
    assert client.submissions.lost is not None


def test_a_store_that_is_dropped_right_after_does_not_take_the_answer(tmp_path: Path) -> None:
    client = Client(tmp_path, snapshot_events=10)

    def drop(*_: Any) -> None:
        client.store.host.catalog = client.store.host.catalog.without("events")

    client.store.loop.ran = drop
    assert client.ask("POST", "/v1/events/A/a", event("x")).json()["version"] == 1
