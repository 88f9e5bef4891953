"""Queries over HTTP: forms of the answer, limits, and nothing but the relations within reach."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.e2e.conftest import Served, query_processes
from tests.waiting import until

ENDLESS = "SELECT count(*) AS n FROM range(100000000000) WHERE id % 7 = rand()"
TYPES = """
SELECT 1 AS i, 12345678901234567890.123456789BD AS d, 'a"b,c' AS s, CAST(NULL AS STRING) AS no, '' AS empty, 1.5D AS f,
       double('NaN') AS nan, TIMESTAMP '2026-01-02 03:04:05.000006' AS t, DATE '2026-01-02' AS day, X'00FF' AS x,
       array(1, NULL) AS l, map('k', 1) AS m, named_struct('a', 1BD) AS st, true AS yes
"""


def test_rows_come_in_the_form_that_is_asked_for(server: Served) -> None:
    plain = server.query(TYPES)
    assert plain.headers["content-type"] == "application/json"
    assert int(plain.headers["headrace-epoch"]) == plain.json()["epoch"] == server.hr.epoch
    expected = {
        "i": 1,
        "d": "12345678901234567890.123456789",
        "s": 'a"b,c',
        "no": None,
        "empty": "",
        "f": 1.5,
        "nan": "NaN",
        "t": "2026-01-02T03:04:05.000006+00:00",
        "day": "2026-01-02",
        "x": "AP8=",
        "l": [1, None],
        "m": {"k": 1},
        "st": {"a": "1"},
        "yes": True,
    }
    assert plain.json()["rows"] == [expected]
    assert [column["name"] for column in plain.json()["columns"]] == list(expected)
    types = [column["type"] for column in plain.json()["columns"]]
    assert (types[:2], types[10:13]) == (
        ["int", "decimal(29,9)"],
        ["array<int>", "map<string,int>", "struct<a:decimal(1,0)>"],
    )
    lines = server.query(TYPES, "application/x-ndjson")
    assert [json.loads(line) for line in lines.text.splitlines()] == [expected]
    arrow = pa.ipc.open_stream(
        io.BytesIO(server.query(TYPES, "application/vnd.apache.arrow.stream").content)
    ).read_all()
    assert arrow.num_rows == 1
    assert arrow.column_names == list(expected)
    csv = server.query(TYPES, "text/csv;q=0.9, application/xml").text.splitlines()
    assert csv[0].split(",")[:5] == ['"i"', '"d"', '"s"', '"no"', '"empty"']
    assert csv[1].startswith('1,"12345678901234567890.123456789","a""b,c",,"",')
    assert server.query("SELECT 1", "image/png").status_code == 406
    none = server.query("SELECT 1 AS one WHERE false")
    assert none.json()["rows"] == []
    assert server.query("SELECT 1 AS one WHERE false", "application/vnd.apache.arrow.stream").status_code == 200


def test_statements_of_every_kind(server: Served) -> None:
    changed = server.query("INSERT INTO parts VALUES (1, 'a', 1.5), (2, 'b', 2)")
    assert changed.json()["applied"] == {"parts": 2}
    before = changed.json()["epoch"]
    assert server.query("UPDATE parts SET price = price + 1 WHERE id = 1").status_code == 200
    assert server.query("DELETE FROM parts WHERE id = 2").json()["applied"] == {"parts": 1}
    assert server.rows("parts") == [{"id": 1, "name": "a", "price": "2.50"}]
    assert server.query("SELECT count(*) AS n FROM parts", epoch=before).json()["rows"] == [{"n": 2}]
    assert server.query(f"SELECT count(*) AS n FROM parts VERSION AS OF {before}").json()["epoch"] == before
    assert {row["name"] for row in server.asked("SHOW TABLES")} == {"parts", "notes", "items"}
    assert server.asked("DESCRIBE parts")[0]["col_name"] == "id"
    assert server.asked("EXPLAIN totals")
    for refused in (
        "CREATE TABLE x (a INT)",
        "DROP TABLE parts",
        "ALTER TABLE parts ADD COLUMN z INT",
        "EXPLAIN CREATE VIEW x AS SELECT 1 AS a",
    ):
        answer = server.query(refused)
        assert (answer.status_code, answer.json()["code"]) == (403, "definitions_refused")


def test_definitions_where_they_are_allowed(server_with: Callable[..., Any]) -> None:
    with server_with(serve_definitions=True) as served:
        assert served.query("CREATE TABLE fresh (a INT)").json()["epoch"] == served.hr.epoch
        assert served.push("fresh", '{"insert": {"a": 1}}').status_code == 200
        assert served.asked("EXPLAIN CREATE VIEW x AS SELECT a FROM fresh")
        assert served.query("DROP TABLE fresh").status_code == 200
        assert served.push("fresh", '{"insert": {"a": 1}}').status_code == 404


@pytest.mark.parametrize(
    ("sql", "status"),
    [
        ("", 400),
        ("SELEC 1", 400),
        ("SELECT 1; SELECT 2", 400),
        ("SELECT 'unclosed", 400),
        ("SELECT nothing FROM parts", 400),
        ("SELECT * FROM nowhere", 404),
        ("SELECT 1 AS a, 2 AS a", 400),
        ("SELECT 1/0 AS x", 400),
        ("SELECT * FROM parts VERSION AS OF 99999", 410),
        ("SET spark.sql.ansi.enabled = false", 400),
        ("SELECT * FROM text.`/etc/hostname`", 404),
        ("SELECT * FROM parquet.`/`", 404),
        ("SELECT reflect('java.lang.System', 'exit', 3) AS a", 400),
        ("SELECT IDENTIFIER('java_' || 'method')('java.lang.System', 'exit', 3) AS a", 400),
        ("SELECT TRANSFORM(a) USING 'cat' AS (x STRING) FROM notes", 400),
        ('FROM notes MAP a USING /* here */ "cat" AS x', 400),
        ("SELECT * FROM (DELETE FROM parts)", 400),
        ("WITH x AS (SELECT 1) DELETE FROM parts", 400),
    ],
)
def test_a_query_that_cannot_be_is_told_so(server: Served, sql: str, status: int) -> None:
    answer = server.query(sql)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["message"]


def test_variables_of_the_environment_stay_there(server: Served) -> None:
    assert server.asked("SELECT '${env:PATH}' AS a") == [{"a": "${env:PATH}"}]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"sql": 1}',
        b'{"sql": "SELECT 1", "extra": 1}',
        b'{"sql": "SELECT 1", "limit": -1}',
        b'{"sql": "SELECT 1", "epoch": "x"}',
        b'{"sql": "SELECT 1", "timeout_seconds": 0}',
        b'{"sql": "SELECT 1", "timeout_seconds": 1e999}',
        b'\xff\xfe{"sql"',
    ],
)
def test_a_body_that_is_no_question(server: Served, body: bytes) -> None:
    answer = server.client.post("/v1/query", content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_rows_are_limited(server_with: Callable[..., Any]) -> None:
    with server_with(serve_query_rows=10) as served:
        assert len(served.asked("SELECT id FROM range(10)")) == 10
        refused = served.query("SELECT id FROM range(11)")
        assert (refused.status_code, refused.json()["code"]) == (400, "result_too_large")
        cut = served.query("SELECT id FROM range(11) ORDER BY id", limit=3)
        assert cut.json()["truncated"] is True
        assert [row["id"] for row in cut.json()["rows"]] == [0, 1, 2]
        assert cut.headers["headrace-truncated"] == "true"
        assert served.query("SELECT id FROM range(3)", limit=3).json()["truncated"] is False
        assert served.client.post("/v1/query", content=b" " * 5_000_000).status_code == 413


def test_a_query_that_takes_too_long_is_cancelled(server_with: Callable[..., Any]) -> None:
    # The server's own limit comes long after the client has given up: only that of the request ends the query.
    with server_with(serve_query_time=timedelta(hours=1)) as served:
        assert served.asked("SELECT 1 AS a") == [{"a": 1}]
        answer = served.query(ENDLESS, timeout_seconds=3)
        assert (answer.status_code, answer.json()["code"]) == (400, "timeout")
        until(lambda: served.service.statements.under_way == 0)
        until(_nothing_is_computed)
        # A change whose rows never come to an end is stopped too, and holds up no other.
        changing = served.query(f"INSERT INTO notes SELECT n, 'x' FROM ({ENDLESS})", timeout_seconds=3)
        assert (changing.status_code, changing.json()["code"]) == (400, "timeout")
        assert served.push("notes", '{"insert": {"a": 1}}').status_code == 200
        assert len(served.rows("notes")) == 1


def test_nobody_computes_for_a_client_that_hung_up(server: Served) -> None:
    assert server.asked("SELECT 1 AS a") == [{"a": 1}]
    body = json.dumps({"sql": ENDLESS}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        head = f"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        until(lambda: server.service.statements.under_way == 1)
        until(lambda: not _nothing_is_computed())
    until(lambda: server.service.statements.under_way == 0)
    until(_nothing_is_computed)


def test_too_many_queries_are_turned_away(server_with: Callable[..., Any]) -> None:
    with server_with(serve_queries=1) as served:
        body = json.dumps({"sql": ENDLESS}).encode()
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            head = f"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            until(lambda: served.service.statements.under_way == 1)
            refused = served.query("SELECT 1")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        until(lambda: served.service.statements.under_way == 0)
        assert served.query("SELECT 1 AS a").status_code == 200


def _nothing_is_computed() -> bool:
    """Whether the query processes take next to nothing of the processor."""
    before = query_processes().processor_seconds()
    time.sleep(1)
    return 0 <= query_processes().processor_seconds() - before < 0.3
