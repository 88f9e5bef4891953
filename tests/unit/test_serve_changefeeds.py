"""/v1/changefeeds: the twins of the statements, over HTTP, and what Prometheus is told; without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.access.audit import Audit
from headrace.serving import changefeeds, problems
from headrace.serving.feed_metrics import FeedMetrics
from headrace.serving.statement_runner import StatementRunner
from headrace.settings import Settings
from tests.bare_home import BareHome
from tests.feed_receiver import Receiver
from tests.waiting import until

COLUMNS = StructType([StructField("id", IntegerType(), False), StructField("n", IntegerType())])


@pytest.fixture
def home(tmp_path: Path, receiver: Receiver) -> Iterator[Any]:
    one = BareHome(tmp_path / "home")
    one.create_table("t", COLUMNS, ("id",))
    yield one
    one.close()


class Client:
    """Asks an application, one request after the other."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    def _ask(self, method: str, path: str, json: Any = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, json=json)

        return asyncio.run(ask())

    def get(self, path: str) -> httpx.Response:
        return self._ask("GET", path)

    def post(self, path: str, json: Any = None) -> httpx.Response:
        return self._ask("POST", path, json)

    def patch(self, path: str, json: Any = None) -> httpx.Response:
        return self._ask("PATCH", path, json)

    def delete(self, path: str) -> httpx.Response:
        return self._ask("DELETE", path)


def client_of(home: Any, definitions: bool = True, locations: tuple[str, ...] | None = None) -> Client:
    app = FastAPI()
    problems.install(app)
    app.include_router(changefeeds.router)
    settings = Settings(serve_definitions=definitions, serve_source_locations=locations)
    app.state.service = SimpleNamespace(engine=home.engine, settings=settings, statements=StatementRunner(8))
    return Client(app)


def test_a_feed_from_the_first_to_the_last(home: Any, receiver: Receiver) -> None:
    client = client_of(home)
    sent = {"name": "f", "table": "t", "sink": "webhook", "location": "https://x/", "options": {"flush_interval_ms": 1}}
    answer = client.post("/v1/changefeeds", json=sent)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["name"], answer.json()["state"]) == ("f", "Running")
    assert "exists already" in client.post("/v1/changefeeds", json=sent).text
    home.apply({"t": [{"insert": {"id": 1, "n": 1}}]})
    until(lambda: client.get("/v1/changefeeds/F").json()["last_sequence"] == 1)
    assert [one["events_delivered"] for one in client.get("/v1/changefeeds").json()] == [1]
    assert client.post("/v1/changefeeds/f/pause").json()["state"] == "Paused"
    altered = client.patch("/v1/changefeeds/f", json={"options": {"batch_size": 7}, "unset": ["flush_interval_ms"]})
    assert altered.json()["options"] == '{"batch_size": 7}'
    assert client.post("/v1/changefeeds/f/resume").json()["state"] == "Running"
    client.post("/v1/changefeeds/f/resync")
    until(lambda: len(receiver.events()) == 3)
    registry = CollectorRegistry()
    registry.register(FeedMetrics(home.engine))
    told = generate_latest(registry).decode()
    assert 'headrace_changefeed_events_total{changefeed="f"} 3.0' in told
    assert 'headrace_changefeed_state{changefeed="f",state="Running"} 1.0' in told
    assert 'headrace_changefeed_state{changefeed="f",state="Retrying"} 0.0' in told
    receiver.down, receiver.retry_after = True, 0.01
    home.apply({"t": [{"insert": {"id": 2, "n": 1}}]})
    until(lambda: client.get("/v1/changefeeds/f").json()["retries"] > 0)
    told = generate_latest(registry).decode()
    assert 'headrace_changefeed_state{changefeed="f",state="Running"} 1.0' in told
    assert 'headrace_changefeed_state{changefeed="f",state="Retrying"} 1.0' in told
    assert client.delete("/v1/changefeeds/f").status_code == 204
    assert client.get("/v1/changefeeds/f").status_code == 404
    assert client.delete("/v1/changefeeds/f").status_code == 404


def test_what_cannot_be_is_refused(home: Any) -> None:
    client = client_of(home)
    sent = {"name": "f", "table": "t", "sink": "webhook", "location": "https://x/"}
    for wrong, status in (
        ({"sink": "nowhere"}, 422),
        ({"name": "a b"}, 422),
        ({"location": " "}, 422),
        ({"table": "nothing"}, 404),
        ({"options": {"batchsize": 1}}, 400),
        ({"options": {"a": 1, "A": 2}}, 422),
    ):
        answer = client.post("/v1/changefeeds", json={**sent, **wrong})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    # A secret is no fault: it lies in a file, and the answer has the reference to it.
    made = client.post("/v1/changefeeds", json={**sent, "name": "kept", "location": "https://me:hunter22@x/"})
    assert (made.status_code, "hunter22" in made.text, "file:" in made.text) == (201, False, True)
    assert client.patch("/v1/changefeeds/f", json={}).status_code == 422
    listed = client_of(home, locations=("https://x/",))
    assert listed.post("/v1/changefeeds", json={**sent, "location": "https://y/"}).status_code == 403
    assert listed.post("/v1/changefeeds", json={**sent, "location": "env:HOME"}).status_code == 403
    strict = client_of(home, definitions=False)
    assert strict.post("/v1/changefeeds", json=sent).status_code == 403
    assert strict.delete("/v1/changefeeds/f").status_code == 403


def test_parked_events_are_listed_replayed_and_let_go(home: Any, receiver: Receiver, tmp_path: Path) -> None:
    home.engine = replace(home.engine, audit=Audit(tmp_path))
    client = client_of(home)
    receiver.refuses = lambda event: "no" if event["key"]["id"] < 3 else None
    options = {"flush_interval_ms": 1, "max_retries": 0}
    sent = {"name": "f", "table": "t", "sink": "webhook", "location": "https://x/", "options": options}
    assert client.post("/v1/changefeeds", json=sent).status_code == 201
    home.apply({"t": [{"insert": {"id": one, "n": one}} for one in range(4)]})
    until(lambda: len(client.get("/v1/changefeeds/f/parked").json()) == 3)
    first, second, third = client.get("/v1/changefeeds/f/parked").json()
    assert (first["feed"], first["reason"], first["attempts"]) == ("f", "no", 1)
    assert client.post("/v1/changefeeds/f/parked/replay", json={}).status_code == 422
    assert client.post("/v1/changefeeds/f/parked/discard", json={"sequences": [999]}).status_code == 404
    answer = client.post("/v1/changefeeds/f/parked/discard", json={"sequences": [first["sequence"]]})
    assert answer.status_code == 200, answer.text
    receiver.refuses = lambda _: None
    answer = client.post("/v1/changefeeds/f/parked/replay", json={"all": True})
    assert answer.json()["applied"] == {"parked_events": 2}
    assert {one["sequence"] for one in receiver.events()} >= {second["sequence"], third["sequence"]}
    assert client.get("/v1/changefeeds/f/parked").json() == []
    noted = [(one["what"], one["outcome"]) for one in Audit(tmp_path).entries() if "PARKED" in one["what"]]
    assert noted == [
        ("PARKED ACTION verb=discard", "name_error"),
        ("PARKED ACTION verb=discard", "done"),
        ("PARKED ACTION verb=replay", "done"),
    ]


@pytest.mark.parametrize("rest", ["hook?sig=hunter22&a&n=1%202#x", "services/T0/B0/hunter22", "?hunter22", "#hunter22"])
def test_what_stands_behind_the_host_of_a_webhook_is_not_shown(home: Any, receiver: Receiver, rest: str) -> None:
    client = client_of(home)
    sent = {"name": "f", "table": "t", "sink": "webhook", "location": f"https://x:8443/{rest}"}
    answer = client.post("/v1/changefeeds", json=sent)
    assert (answer.status_code, answer.json()["location"]) == (201, "https://x:8443/***")
    assert "hunter22" not in client.get("/v1/changefeeds").text + client.get("/v1/changefeeds/f").text
    assert "hunter22" not in str(home.execute("SHOW CHANGEFEEDS").to_pylist())
    # It is told there nevertheless.
    until(lambda: [one.location for one in receiver.targets][:1] == [sent["location"]])
