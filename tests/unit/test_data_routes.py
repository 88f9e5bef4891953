"""The routes of the data API over states in memory: what is asked and answered, without Spark."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headrace.access.grants import read_grant
from headrace.access.keys import create_key
from headrace.access.ring import KeyRing
from headrace.serving.auth import Credentials
from tests.data_api import Api, Readings
from tests.small_engine import table


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


def test_a_star_is_all_columns_and_refusals_say_what_can_be_asked(readings: Readings) -> None:
    api = Api(readings)
    assert api.get("/v1/data/t/5?select=*").json()["data"] == {"id": 5, "n": 5}
    hints = {
        "page=2": "the columns are id, n; what else is asked by is select, order, limit, offset, cursor",
        "n=neq.3": "there are eq, gt, gte, lt, lte; any other condition is asked with POST /v1/query",
        "select=m": "the columns are id, n; * is all of them",
        "order=n.down": "the columns are id, n; an order is column.asc or column.desc",
    }
    for asked, hint in hints.items():
        refused = api.get(f"/v1/data/t?{asked}")
        assert (refused.status_code, refused.json()["hint"]) == (400, hint)


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


def test_what_a_sender_may_not_read_is_neither_answered_nor_described(readings: Readings, tmp_path: Path) -> None:
    _, only_t = create_key(tmp_path, "only t", [read_grant("read:t")], "test")
    _, masked = create_key(tmp_path, "masked", [read_grant("read:t=bag")], "test")
    api = Api(readings, credentials=Credentials((), KeyRing(tmp_path)))
    key = {"X-API-Key": only_t}
    assert api.get("/v1/data/t").status_code == 401
    assert api.get("/v1/data/t", key).status_code == 200
    for path in ("/v1/data/bag", "/v1/data/absent", "/v1/data/bag/1"):
        assert (api.get(path, key).status_code, api.get(path, key).json()["code"]) == (403, "forbidden")
    assert {"/v1/data/bag"}.isdisjoint(api.get("/openapi.json", key).json()["paths"])
    # The bag stands in for t here, and is empty.
    assert ids(api.get("/v1/data/t", {"X-API-Key": masked})) == []
    assert "/v1/data/t" not in api.get("/openapi.json", {"X-API-Key": masked}).json()["paths"]


def test_a_relation_that_is_replaced_is_shown_with_its_new_columns(readings: Readings) -> None:
    api = Api(readings)
    assert ids(api.get("/v1/data/t?limit=1")) == [0]
    readings.catalog = readings.catalog.having(table("t", key=()))
    assert ids(api.get("/v1/data/t")) == []
    assert api.get("/v1/data/t/1").json()["code"] == "no_key"


def test_the_rate_is_held(readings: Readings) -> None:
    api = Api(readings, data_rate=0.01, data_burst=2)
    assert [api.get("/v1/data/t?limit=1").status_code for _ in range(3)] == [200, 200, 429]
