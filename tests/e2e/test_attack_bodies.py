"""Attacks by bodies and values: what a body becomes, what has no form, keys of requests."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.e2e.conftest import Served
from tests.waiting import PATIENCE

ODD = "SELECT CAST(X'FF' AS STRING) AS s, date'-0044-03-15' AS d, timestamp'+290000-01-01 00:00:00' AS t"


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


@pytest.mark.slow
def test_weights_cost_what_they_stand_for(server: Served) -> None:
    before = _peak_megabytes()
    line = '{"weight":10000,"data":{"a":1,"b":"a"}}\n'
    refused = server.push("notes", line * 400, update_format="weighted")
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    assert server.push("notes", line * 10, update_format="weighted").json()["applied"] == {"notes": 100_000}
    assert server.push("notes", line.replace("10000", "-10000") * 10, update_format="weighted").status_code == 200
    assert server.rows("notes") == []
    assert _peak_megabytes() - before < 200


def test_a_million_bad_lines(server: Served) -> None:
    before = _peak_megabytes()
    refused = server.push("parts", b"x\n" * 1_000_000)
    assert refused.status_code == 422
    assert len(refused.json()["rejections"]) == 1000
    assert refused.json()["message"].startswith("at least")
    assert _peak_megabytes() - before < 150


def test_brackets_are_values(server: Served) -> None:
    for body in ("[" + "{}," * 6_000_000 + "{}]", '{"insert":{"id":1,"name":[' + "[]," * 6_000_000 + "[]]}}"):
        assert server.push("parts", body).status_code == 413
    assert server.client.post("/v1/epochs", content='{"parts":[' + "0," * 6_000_000 + "0]}").status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        '{"insert":{"id":2,"price":1e99999999999999999999}}',
        '{"insert":{"id":2,"price":-1e-99999999999999999999}}',
        '[{"insert":{"id":1e99999999999999999999}}]',
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 50_000,
        '{"insert":{"id":' + "1" * 5_000 + "}}",
        '{"insert":{"id":9223372036854775808}}',
        '{"insert":{"id":NaN}}',
        '{"insert":{"id":1,"id":2}}',
        '{"insert":{"id":1,"ID":2}}',
        '{"insert":{"id":1,"other":2}}',
        '{"insert":{"id":true}}',
        '{"insert":{"id":1,"name":"\\ud800"}}',
        '{"insert":{"name":"no key"}}',
        "null",
        b'{"insert":{"id":1,"name":"\xff"}}',
        '{"insert":{"id":1}}'.encode("utf-16"),
    ],
)
def test_hostile_bodies_are_told_by_line_and_reason(server: Served, body: str | bytes) -> None:
    answer = server.push("parts", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["rejections"][0]["line"] >= 1
    assert answer.json()["rejections"][0]["reason"]
    assert server.rows("parts") == []


@pytest.mark.slow
def test_what_python_cannot_hold_is_answered_whole(server: Served) -> None:
    expected = {"s": "�", "d": "-0044-03-15", "t": "+290000-01-01T00:00:00+00:00"}
    # The process for queries may still have to start, which takes long where others compute.
    for _ in range(3):
        if server.query("SELECT 1 AS one").status_code == 200:
            break
    assert server.asked(ODD) == [expected]
    assert json.loads(server.query(ODD, "application/x-ndjson").text) == expected
    assert server.query(ODD, "text/csv").text.splitlines()[1] == '"�","-0044-03-15","+290000-01-01T00:00:00+00:00"'
    table = pa.ipc.open_stream(server.query(ODD, "application/vnd.apache.arrow.stream").content).read_all()
    assert table.column("s").to_pylist() == ["�"]
    for form in ("json", "text", "arrow_ipc", "parquet", "hash"):
        answer = server.client.get("/v0/pipelines/p/query", params={"sql": ODD, "format": form})
        assert answer.status_code == 200, (form, answer.text)
    assert server.asked("SELECT array(CAST(X'FF' AS STRING)) AS a, named_struct('x', date'-0044-03-15') AS b") == [
        {"a": ["�"], "b": {"x": "-0044-03-15"}}
    ]


def test_text_that_is_none_does_not_get_in(server: Served) -> None:
    server.push("parts", '{"insert": {"id": 1, "name": "a"}}')
    for sql in (
        "INSERT INTO parts SELECT 600000, CAST(X'FF' AS STRING), 1",
        "INSERT INTO parts VALUES (600000, CAST(X'FF' AS STRING), 1)",
        "UPDATE parts SET name = CAST(X'FF' AS STRING)",
    ):
        refused = server.query(sql)
        assert (refused.status_code, refused.json()["code"]) == (422, "changes_rejected"), sql
        assert "not UTF-8" in refused.json()["rejections"][0]["reason"]
    assert server.rows("parts") == [{"id": 1, "name": "a", "price": None}]


def test_a_row_beyond_python_stops_no_stream(server: Served) -> None:
    since = server.hr.epoch
    server.hr.execute("CREATE TABLE days (id INT PRIMARY KEY, d DATE)")
    server.hr.execute("CREATE VIEW texts AS SELECT id, CAST(unhex('FF') AS STRING) AS s, d FROM days")
    try:
        assert server.query("INSERT INTO days SELECT 1, date'-0044-03-15'").status_code == 200
        wanted = {"days": ("d", "-0044-03-15"), "texts": ("s", "�")}
        for name, (column, value) in wanted.items():
            for start in ("", f"?since={since}"):
                with server.client.stream("GET", f"/v1/changes/{name}{start}") as stream:
                    data = next(line for line in stream.iter_lines() if line.startswith("data:"))
                content = json.loads(data.removeprefix("data:"))
                rows = content.get("rows") or content["changes"]
                assert rows[0][column] == value
    finally:
        server.hr.execute("DROP VIEW texts; DROP TABLE days")


def test_a_key_is_used_once_however_many_send_it(server: Served) -> None:
    def send(_: int) -> httpx.Response:
        return server.client.post(
            "/v1/ingress/notes?wait=true", content='{"insert": {"a": 5}}', headers={"Idempotency-Key": "parallel"}
        )

    with ThreadPoolExecutor(30) as threads:
        answers = list(threads.map(send, range(30)))
    assert {one.status_code for one in answers} == {200}
    assert len({one.json()["epoch"] for one in answers}) == 1
    assert len(server.rows("notes")) == 1


def test_a_packed_body_is_not_unpacked(server: Served) -> None:
    bomb = gzip.compress(b'{"insert": {"id": 1}}\n' * 1_000_000)
    packed = server.client.post("/v1/ingress/parts?wait=true", content=bomb, headers={"Content-Encoding": "gzip"})
    assert packed.status_code == 422
    for kind in ("text/xml", "multipart/form-data", "application/json; charset=utf-16", ""):
        answer = server.client.post(
            "/v1/ingress/parts?wait=true", content='{"insert": {"id": 1}}', headers={"Content-Type": kind}
        )
        assert answer.status_code == 200, kind
    assert len(server.rows("parts")) == 1


def test_a_table_name_is_no_path(server: Served) -> None:
    for name in ("..%2f..%2fetc", "%00", "%ff", "%60parts%60", "x" * 5_000, "totals", "parts%3Bdrop"):
        answer = server.client.post(f"/v1/ingress/{name}?wait=true", content='{"insert": {"id": 1}}')
        assert answer.status_code in (404, 422), name


@pytest.mark.slow
def test_three_hundred_pushes_at_once(server_with: Callable[..., Any]) -> None:
    with server_with() as served:

        def send(number: int) -> int:
            url, body = f"{served.url}/v1/ingress/parts?wait=true", f'{{"insert": {{"id": {number}}}}}'
            return client.post(url, content=body).status_code

        limits = httpx.Limits(max_connections=100)
        with httpx.Client(timeout=PATIENCE, limits=limits) as client, ThreadPoolExecutor(100) as threads:
            statuses = list(threads.map(send, range(300)))
        assert set(statuses) <= {200, 429}
        assert len(served.rows("parts")) == statuses.count(200)
