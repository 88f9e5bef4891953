"""The routes of the data API over states in memory: what is asked and answered, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI

from headrace.catalog.catalog import Catalog, Table
from headrace.reading.following import Newest
from headrace.serving import problems
from headrace.serving.auth import Guarded
from headrace.serving.data import openapi, routes
from headrace.serving.sessions import Sessions
from headrace.settings import Settings
from headrace.state.delta import consolidate, weights_of
from tests.small_engine import table


class Readings:
    """One epoch after the other, in memory."""

    def __init__(self, *tables: Table) -> None:
        self.catalog = Catalog().having(*tables)
        self.epoch = 0
        self.changed_at: dict[str, int] = {}

    def change(self, name: str, rows: list[tuple[int, int | None]], weight: int = 1) -> None:
        store = self.catalog.table(name).store
        columns = [pa.array([row[i] for row in rows], store.schema.field(i).type) for i in range(2)]
        store.apply(consolidate(pa.table(columns, schema=store.schema), weights_of([weight] * len(rows))))
        self.epoch += 1
        self.changed_at[name] = self.epoch

    def newest_of(self, name: str) -> Newest:
        one = self.catalog.relations.get(name)
        content = None if one is None else one.store.snapshot()
        changed = self.changed_at.get(name, self.epoch)
        return Newest(self.epoch, self.catalog.history, one, content, changed)


class Api:
    """An application over readings, asked in this thread."""

    def __init__(self, readings: Readings, **settings: Any) -> None:
        chosen = Settings(**settings)
        self.app = FastAPI(openapi_url=None)
        self.app.state.service = SimpleNamespace(readings=readings, settings=chosen)
        self.app.state.data = routes.data_api(chosen)
        problems.install(self.app)
        self.app.include_router(routes.router)
        self.app.include_router(openapi.router)
        self.app.add_middleware(Guarded, keys=(), sessions=Sessions())

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.get(path, headers=dict(headers or {}))

        return asyncio.run(ask())


@pytest.fixture
def readings() -> Readings:
    found = Readings(table("t"), table("bag", key=()), table("pair", key=("id", "n")))
    found.change("t", [(i, i % 10) for i in range(100)])
    return found


def ids(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [row["id"] for row in answer.json()["data"]]


def test_pages_by_cursor_and_by_offset(readings: Readings) -> None:
    api = Api(readings)
    found: list[int] = []
    path = "/v1/data/T?limit=30"
    while path:
        answer = api.get(path)
        found += ids(answer)
        cursor = answer.json()["next_cursor"]
        path = f"/v1/data/t?limit=30&cursor={cursor}" if cursor else ""
    assert found == list(range(100))
    assert ids(api.get("/v1/data/t?limit=3&offset=98")) == [98, 99]
    assert ids(api.get("/v1/data/t?limit=3&offset=100")) == []
    assert ids(api.get("/v1/data/t?order=id.desc&limit=2")) == [99, 98]
    assert ids(api.get("/v1/data/t?id=gt.5&id=lte.7")) == [6, 7]
    assert api.get("/v1/data/t?select=n&id=5").json()["data"] == [{"n": 5}]


def test_a_large_relation_is_only_asked_by_an_index(readings: Readings) -> None:
    api = Api(readings, data_scan_rows=50)
    refused = api.get("/v1/data/t?n=eq.3")
    assert (refused.status_code, refused.json()["code"]) == (400, "not_indexed")
    assert refused.headers["content-type"] == "application/problem+json"
    indexed = Api(readings, data_scan_rows=50, data_indexes={"t": "n, id DESC"})
    assert ids(indexed.get("/v1/data/t?n=eq.3&limit=3")) == [93, 83, 73]
    assert ids(indexed.get("/v1/data/t?n=eq.3&order=id&limit=2")) == [3, 13]
    assert ids(indexed.get("/v1/data/t?n=eq.3&id=lt.20")) == [13, 3]
    assert ids(Api(readings).get("/v1/data/t?n=eq.3&limit=2")) == [3, 13]


def test_rows_by_key(readings: Readings) -> None:
    readings.change("pair", [(1, 2), (1, None)])
    api = Api(readings)
    assert api.get("/v1/data/t/42").json() == {"data": {"id": 42, "n": 2}, "epoch": 2}
    assert api.get("/v1/data/pair/1,2").json()["data"] == {"id": 1, "n": 2}
    codes = [("/v1/data/t/1000", 404), ("/v1/data/t/x", 400), ("/v1/data/pair/1", 400), ("/v1/data/bag/1", 404)]
    codes += [("/v1/data/none", 404), ("/v1/data/t/1?limit=2", 400), ("/v1/data/t/1?select=x", 400)]
    for path, status in codes:
        answer = api.get(path)
        assert (answer.status_code, answer.json()["status"]) == (status, status), path


def test_a_key_that_is_only_said_to_be_one_is_held_to_it(readings: Readings) -> None:
    readings.change("bag", [(1, 1), (2, 5), (2, 6)])
    api = Api(readings, data_keys={"bag": "id"})
    assert api.get("/v1/data/bag/1").json()["data"] == {"id": 1, "n": 1}
    assert (api.get("/v1/data/bag/2").status_code, api.get("/v1/data/bag/2").json()["code"]) == (409, "key_not_unique")


def test_tags_and_freshness(readings: Readings) -> None:
    api = Api(readings)
    first = api.get("/v1/data/t/1")
    known = {"If-None-Match": f'"other", {first.headers["etag"]}'}
    assert first.headers["headrace-epoch"] == "1"
    assert first.headers["cache-control"] == "private, no-cache"
    readings.change("bag", [(1, 1)])
    again = api.get("/v1/data/t/1", known)
    assert (again.status_code, again.content, again.headers["headrace-epoch"]) == (304, b"", "2")
    readings.change("t", [(1, 1)], -1)
    assert api.get("/v1/data/t/1", known).status_code == 404
    assert api.get("/v1/data/t", {"If-None-Match": first.headers["etag"]}).status_code == 200


def test_the_document_has_the_relations(readings: Readings) -> None:
    document = Api(readings, data_keys={"bag": "id"}).get("/openapi.json").json()
    assert {"/v1/data/t", "/v1/data/t/{key}", "/v1/data/bag/{key}", "/v1/data/pair/{key}"} <= set(document["paths"])
    assert set(document["components"]["schemas"]["data.t"]["properties"]) == {"id", "n"}


def test_what_a_sender_may_not_read_is_neither_answered_nor_described(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_t(_: object, relation: str) -> bool:
        return relation == "t"

    monkeypatch.setattr(routes, "may_read", only_t)
    monkeypatch.setattr(openapi, "may_read", only_t)
    api = Api(readings)
    assert api.get("/v1/data/t").status_code == 200
    assert (api.get("/v1/data/bag").status_code, api.get("/v1/data/bag").json()["code"]) == (403, "forbidden")
    assert "/v1/data/bag" not in api.get("/openapi.json").json()["paths"]


def test_a_relation_that_is_replaced_is_shown_with_its_new_columns(readings: Readings) -> None:
    api = Api(readings)
    assert ids(api.get("/v1/data/t?limit=1")) == [0]
    readings.catalog = readings.catalog.having(table("t", key=()))
    assert ids(api.get("/v1/data/t")) == []
    assert api.get("/v1/data/t/1").json()["code"] == "no_key"


def test_the_rate_is_held(readings: Readings) -> None:
    api = Api(readings, data_rate=0.01, data_burst=2)
    assert [api.get("/v1/data/t?limit=1").status_code for _ in range(3)] == [200, 200, 429]
