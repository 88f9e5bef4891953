"""The data API over a real server: pages, keys, freshness, refusals, and the document that describes it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import httpx

from tests.e2e.conftest import Served
from tests.waiting import PATIENCE


def fill(server: Served, count: int) -> None:
    lines = "\n".join(
        json.dumps({"insert": {"id": i, "name": f"part {i % 5}", "price": f"{i}.50"}}) for i in range(count)
    )
    assert server.push("parts", lines).status_code == 200


def pages(client: httpx.Client, path: str) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    while True:
        answer = client.get(path + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status_code == 200, answer.text
        found += answer.json()["data"]
        cursor = answer.json()["next_cursor"]
        assert (cursor is not None) == answer.json()["has_more"]
        if cursor is None:
            return found


def test_a_relation_is_read_page_by_page_and_by_key(server: Served) -> None:
    fill(server, 25)
    found = pages(server.client, "/v1/data/PARTS?limit=10")
    assert found == sorted(server.rows("parts"), key=lambda row: row["id"])
    assert found[3] == {"id": 3, "name": "part 3", "price": "3.50"}
    backwards = server.client.get("/v1/data/parts?order=id.desc&limit=2&offset=1&select=ID").json()
    assert backwards["data"] == [{"id": 23}, {"id": 22}]
    some = server.client.get("/v1/data/parts?id=gte.5&id=lt.8").json()
    assert [row["id"] for row in some["data"]] == [5, 6, 7]
    one = server.client.get("/v1/data/parts/7?select=name")
    assert one.json() == {"data": {"name": "part 2"}, "epoch": server.hr.epoch}
    # A small relation is read whole for what no index serves.
    by_name = server.client.get("/v1/data/parts?name=part 2&order=price.desc").json()
    assert [row["id"] for row in by_name["data"]] == [22, 17, 12, 7, 2]
    missing = server.client.get("/v1/data/parts/99")
    assert (missing.status_code, missing.json()["code"]) == (404, "no_such_row")
    assert missing.headers["content-type"] == "application/problem+json"
    assert server.client.get("/v1/data/nothing").status_code == 404
    assert server.client.get("/v1/data/dead_letters").status_code == 404


def test_views_are_read_as_tables_are(server: Served) -> None:
    server.push("items", '{"insert": {"id": 1, "name": "a", "price": "1.50"}}\n{"insert": {"id": 2, "name": "a"}}')
    totals = server.client.get("/v1/data/totals/a").json()["data"]
    assert totals == {"name": "a", "n": 2, "total": "1.50"}
    assert server.client.get("/v1/data/totals?name=eq.b").json()["data"] == []


def test_rows_without_a_key_are_told_as_often_as_they_are_there(server: Served) -> None:
    rows = [{"a": 1, "b": "x"}] * 3 + [{"a": None, "b": "y"}] * 2 + [{"a": 0, "b": None}]
    server.push("notes", "\n".join(json.dumps({"insert": row}) for row in rows))
    found = pages(server.client, "/v1/data/notes?limit=2")
    assert found == [{"a": 0, "b": None}, *[{"a": 1, "b": "x"}] * 3, *[{"a": None, "b": "y"}] * 2]
    assert server.client.get("/v1/data/notes/1").json()["code"] == "no_key"


def test_an_answer_says_how_fresh_it_is_and_holds_until_the_relation_changes(server: Served) -> None:
    fill(server, 3)
    first = server.client.get("/v1/data/parts?limit=2")
    assert first.headers["headrace-epoch"] == str(server.hr.epoch) == str(first.json()["epoch"])
    assert float(first.headers["headrace-lag"]) == 0
    known = {"If-None-Match": first.headers["etag"]}
    server.push("notes", '{"insert": {"a": 1}}')
    again = server.client.get("/v1/data/parts?limit=2", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["headrace-epoch"] == str(server.hr.epoch)
    assert server.client.get("/v1/data/parts?limit=3", headers=known).status_code == 200
    server.push("parts", '{"insert": {"id": 1, "name": "other"}}')
    changed = server.client.get("/v1/data/parts?limit=2", headers=known)
    assert changed.status_code == 200
    assert changed.json()["data"][1]["name"] == "other"


def test_pages_go_on_where_they_ended_while_rows_come_and_go(server: Served) -> None:
    fill(server, 40)
    first = server.client.get("/v1/data/parts?limit=10").json()
    server.push("parts", '{"delete": {"id": 9}}\n{"delete": {"id": 12}}\n{"insert": {"id": 5, "name": "new"}}')
    server.push("parts", '{"insert": {"id": -1, "name": "before"}}\n{"insert": {"id": 100, "name": "behind"}}')
    rest: list[Any] = []
    cursor = first["next_cursor"]
    while cursor:
        page = server.client.get(f"/v1/data/parts?limit=10&cursor={cursor}").json()
        rest += page["data"]
        cursor = page["next_cursor"]
    assert [row["id"] for row in rest] == [*(i for i in range(10, 40) if i != 12), 100]
    other = server.client.get(f"/v1/data/parts?order=id.desc&cursor={first['next_cursor']}")
    assert (other.status_code, other.json()["code"]) == (400, "bad_cursor")


def test_large_relations_are_asked_by_their_indexes_only(server_with: Callable[..., Any]) -> None:
    settings = {"data_scan_rows": 5, "data_indexes": {"parts": "name, price DESC"}, "data_page_rows": 20}
    with server_with(**settings) as served:
        fill(served, 25)
        found = served.client.get("/v1/data/parts?name=eq.part 3&select=id").json()["data"]
        assert [row["id"] for row in found] == [23, 18, 13, 8, 3]
        ranged = served.client.get("/v1/data/parts?name=eq.part 3&price=gt.8.50&price=lte.18.5&order=price").json()
        assert [row["id"] for row in ranged["data"]] == [13, 18]
        refused = served.client.get("/v1/data/parts?price=gt.3")
        assert (refused.status_code, refused.json()["code"]) == (400, "not_indexed")
        assert "name, price DESC" in refused.json()["detail"]
        assert served.client.get("/v1/data/parts?limit=21").status_code == 400
        assert len(pages(served.client, "/v1/data/parts?order=name,price.desc&limit=7")) == 25
        document = served.client.get("/openapi.json").json()
        names = [one["name"] for one in document["paths"]["/v1/data/parts"]["get"]["parameters"]]
        assert names == ["id", "name", "price", "select", "order", "limit", "offset", "cursor"]


def test_too_many_requests_of_one_key_are_refused_and_others_are_not(server_with: Callable[..., Any]) -> None:
    # Of the requests that may come at once, none is given back while this test runs.
    with server_with(data_rate=0.0001, data_burst=3, api_keys=("first-key", "other-key")) as served:
        answers = [served.client.get("/v1/data/parts") for _ in range(4)]
        assert [one.status_code for one in answers] == [200, 200, 200, 429]
        assert int(answers[3].headers["retry-after"]) >= 1
        assert answers[0].headers["ratelimit"].startswith('"data";r=2')
        other = httpx.get(f"{served.url}/v1/data/parts", headers={"X-API-Key": "other-key"}, timeout=PATIENCE)
        assert other.status_code == 200
        assert httpx.get(f"{served.url}/v1/data/parts", timeout=PATIENCE).status_code == 401
        assert served.client.get("/v1/completion?token=x").status_code == 410


def test_a_page_of_large_rows_has_fewer_of_them(server_with: Callable[..., Any]) -> None:
    with server_with(data_page_bytes=1_000) as served:
        lines = "\n".join(json.dumps({"insert": {"id": i, "name": "x" * 300}}) for i in range(7))
        served.push("parts", lines)
        first = served.client.get("/v1/data/parts").json()
        assert len(first["data"]) == 3
        assert [row["id"] for row in pages(served.client, "/v1/data/parts?limit=5")] == list(range(7))
        served.push("parts", json.dumps({"insert": {"id": -1, "name": "x" * 2000}}))
        refused = served.client.get("/v1/data/parts")
        assert (refused.status_code, refused.json()["code"]) == (400, "row_too_large")


def test_the_document_has_each_relation_with_its_columns_as_they_are_now(server: Served) -> None:
    before = server.client.get("/openapi.json").json()
    row = before["components"]["schemas"]["data.parts"]["properties"]
    assert row["price"]["anyOf"][0]["type"] == "string"
    assert row["id"] == {"type": "integer", "format": "int32", "x-sql-type": "int"}
    assert {"/v1/data/parts", "/v1/data/parts/{key}", "/v1/data/totals/{key}", "/v1/data/notes"} <= set(before["paths"])
    assert "/v1/data/notes/{key}" not in before["paths"]
    server.hr.execute("CREATE TABLE fresh (a INT PRIMARY KEY, made_at TIMESTAMP)")
    try:
        after = server.client.get("/openapi.json").json()
        assert "made_at" in after["components"]["schemas"]["data.fresh"]["properties"]
        assert server.client.get("/v1/data/fresh").json()["data"] == []
        server.hr.execute("ALTER TABLE fresh ADD COLUMN b STRING")
        server.push("fresh", '{"insert": {"a": 1, "b": "x"}}')
        assert server.client.get("/v1/data/fresh/1").json()["data"] == {"a": 1, "made_at": None, "b": "x"}
    finally:
        server.hr.execute("DROP TABLE fresh")
    assert server.client.get("/v1/data/fresh").status_code == 404


def test_reads_beside_changes_are_of_one_epoch_each(server: Served) -> None:
    """Two rows always change together: no answer has them apart."""
    ended = threading.Event()

    def change() -> None:
        for i in range(60):
            lines = [json.dumps({"insert": {"id": one, "name": f"{i}"}}) for one in (1, 2)]
            server.push("parts", "\n".join(lines))
        ended.set()

    writer = threading.Thread(target=change)
    writer.start()
    seen: set[int] = set()
    while not ended.is_set():
        answer = server.client.get("/v1/data/parts").json()
        names = {row["name"] for row in answer["data"]}
        assert len(names) <= 1, answer
        seen.add(answer["epoch"])
    writer.join()
    assert len(seen) > 5
