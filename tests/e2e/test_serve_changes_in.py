"""Changes over HTTP: formats, all or nothing, waiting and tokens, idempotency."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from tests.e2e.conftest import Served, emptied, running
from tests.waiting import until


def _inserts(*ids: int) -> str:
    return "\n".join(json.dumps({"insert": {"id": i, "name": "a", "price": "1.50"}}) for i in ids)


def test_waiting_means_that_the_views_are_current(server: Served) -> None:
    answer = server.push("items", _inserts(1, 2))
    assert answer.status_code == 200
    receipt = answer.json()
    assert receipt["applied"] == {"items": 2}
    assert receipt["epoch"] == server.hr.epoch
    assert server.rows("totals") == [{"name": "a", "n": 2, "total": "3.00"}]
    assert server.asked("SELECT * FROM totals") == [{"name": "a", "n": 2, "total": "3.00"}]


def test_every_format_says_the_same(server: Served) -> None:
    rows = [{"id": 1, "name": "x", "price": 0.1}, {"id": 2, "name": "y", "price": 2}]
    expected = [{"id": 1, "name": "x", "price": "0.10"}, {"id": 2, "name": "y", "price": "2.00"}]
    changes = [{"insert": row} for row in rows]
    weighted = [{"weight": 1, "data": row} for row in rows]
    for form, values in (("insert_delete", changes), ("raw", rows), ("weighted", weighted)):
        lines = "\n".join(json.dumps(one) for one in values)
        for body in (
            lines,
            f"\n{lines}\r\n\n",
            json.dumps(values),
            json.dumps(values, indent=2),
            f"[{lines}]".replace("\n", ",\n"),
        ):
            assert server.push("parts", body, update_format=form, format="json").status_code == 200, body
            assert server.rows("parts") == expected
            emptied(server.hr)
    assert server.push("parts", "\n".join(json.dumps([one]) for one in changes)).status_code == 200
    assert server.rows("parts") == expected


def test_numbers_stay_exact(server: Served) -> None:
    body = '{"insert": {"id": 1, "price": 99999999.99}}\n{"insert": {"id": 2, "price": 1e2}}\n{"insert": {"id": 3.0}}'
    assert server.push("parts", body).status_code == 200
    assert [row["price"] for row in server.rows("parts")] == ["99999999.99", "100.00", None]
    refused = server.push("parts", '{"insert": {"id": 1, "price": 0.1000000000000000000000001}}')
    assert refused.status_code == 422
    assert "rounded" in refused.text


def test_weights_count_rows(server: Served) -> None:
    row = {"a": 1, "b": "x"}
    lines = [{"weight": 3, "data": row}, {"weight": -2, "data": row}, {"weight": 0, "data": row}]
    assert server.push("notes", json.dumps(lines), update_format="weighted").json()["applied"] == {"notes": 5}
    assert len(server.rows("notes")) == 1
    for bad in (10**15, 1.5, "1", None, True):
        answer = server.push("notes", json.dumps({"weight": bad, "data": row}), update_format="weighted")
        assert answer.status_code == 422, bad
    assert server.push("notes", json.dumps({"data": row}), update_format="weighted").status_code == 422


def test_every_bad_line_is_told_and_nothing_is_applied(server: Served) -> None:
    lines = [
        '{"insert": {"id": 1, "price": "1.00"}}',
        '{"insert": {"id": 2',
        "",
        '{"insert": {"id": "x"}}',
        '{"insert": {"id": 3, "colour": "red"}}',
        '{"upsert": {"id": 3}}',
        '{"insert": {"id": 4, "id": 5}}',
        '{"insert": {"id": 6, "price": NaN}}',
        '{"insert": {"name": "no key"}}',
        '{"insert": {"id": 7}} trailing',
        "null",
    ]
    answer = server.push("parts", "\n".join(lines))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["code"] == "changes_rejected"
    assert problem["rejected"] == 9
    assert [one["line"] for one in problem["rejections"]] == [2, 4, 5, 6, 7, 8, 9, 10, 11]
    assert all(one["reason"] for one in problem["rejections"])
    assert server.rows("parts") == []


def test_lines_of_readable_changes_are_told_too(server: Served) -> None:
    array = '[\n {"insert": {"id": 1}},\n\n {"insert": {"id": "x"}}, {"insert": {"id": 2}},\n {"delete": {}}\n]'
    for body in ('{"insert": {"id": 1}}\n\n\n{"insert": {"id": "x"}}\n{"delete": {}}', array):
        problem = server.push("parts", body).json()
        assert [one["line"] for one in problem["rejections"]] == [4, 5], problem
    absent = server.push("notes", '{"insert": {"a": 1}}\n{"delete": {"a": 2}}').json()
    assert absent["rejections"] == [{"line": 2, "reason": "the row to delete is not in the table"}]


def test_at_most_a_thousand_bad_lines_are_shown(server: Served) -> None:
    problem = server.push("parts", '{"insert": {"id": "x"}}\n' * 1500).json()
    assert problem["rejected"] == 1500
    assert len(problem["rejections"]) == 1000
    assert problem["rejections"][-1]["line"] == 1000


def test_a_row_that_breaks_a_view_is_refused(server: Served) -> None:
    answer = server.push("items", _inserts(1, 666))
    assert answer.status_code == 422
    assert answer.json()["code"] == "view_evaluation_error"
    assert answer.json()["view"] == "shares"
    assert server.rows("items") == []


def test_a_token_tells_how_it_went(server: Served) -> None:
    taken = server.client.post("/v1/ingress/parts", content=_inserts(1))
    assert taken.status_code == 202
    assert _outcome(server, taken.json()["token"]).json()["receipt"]["applied"] == {"parts": 1}
    assert len(server.rows("parts")) == 1
    bad = server.client.post("/v1/ingress/parts", content='{"insert": {"id": 9}}\n{"insert": {"id": "x"}}')
    assert bad.status_code == 202
    failed = _outcome(server, bad.json()["token"])
    assert failed.status_code == 422
    assert failed.json()["rejections"][0]["line"] == 2
    assert server.client.get("/v1/completion", params={"token": "made up"}).status_code == 410
    assert server.client.get("/v1/completion").status_code == 422


def test_what_is_sent_first_is_applied_first(server: Served) -> None:
    for price in range(30):
        change = {"insert": {"id": 1, "name": "a", "price": price}}
        taken = server.client.post("/v1/ingress/parts", content=json.dumps(change))
        assert taken.status_code == 202
    assert _outcome(server, taken.json()["token"]).status_code == 200
    assert [row["price"] for row in server.rows("parts")] == ["29.00"]


def test_a_key_counts_once(server: Served) -> None:
    def send(body: str, key: str = "k-1") -> Any:
        return server.client.post("/v1/ingress/notes?wait=true", content=body, headers={"Idempotency-Key": key})

    first = send('{"insert": {"a": 1}}')
    again = send('{"insert": {"a": 1}}')
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["epoch"] == again.json()["epoch"]
    assert len(server.rows("notes")) == 1
    other = send('{"insert": {"a": 2}}')
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    same, headers = '{"insert": {"a": 1}}', {"Idempotency-Key": "k-1"}
    for path in (
        "/v1/ingress/notes?update_format=raw",
        "/v1/ingress/notes?wait=true&update_format=raw",
        "/v1/epochs",
        "/v1/ingress/parts?wait=true",
    ):
        content = "{}" if path == "/v1/epochs" else same
        answer = server.client.post(path, content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "key_reused"), path
    tokens = [
        server.client.post(
            "/v1/ingress/notes", content=f'{{"insert": {{"a": {a}}}}}', headers={"Idempotency-Key": "k-3"}
        )
        for a in (8, 9)
    ]
    outcomes = [one if one.status_code == 422 else _outcome(server, one.json()["token"]) for one in tokens]
    assert [one.status_code for one in outcomes] == [200, 422]
    server.push("notes", '{"delete": {"a": 8}}')
    assert send('{"insert": {"a": 1}}', "k-2").status_code == 200
    assert len(server.rows("notes")) == 2
    assert send('{"insert": {"a": 1}}', "x" * 500).status_code == 422


def test_a_request_without_changes_makes_no_epoch(server: Served) -> None:
    server.push("notes", '{"insert": {"a": 1}}')
    epoch = server.hr.epoch
    answers = [
        *(server.push("notes", body) for body in ("", "[]", " \n\n")),
        *(server.client.post("/v1/epochs", json=body) for body in ({}, {"notes": []}, {"notes": [], "parts": []})),
    ]
    assert [(one.status_code, one.json()["epoch"]) for one in answers] == [(200, epoch)] * 6
    assert not any(any(one.json()["applied"].values()) for one in answers)
    assert server.hr.epoch == epoch


def test_a_key_stands_for_its_request_after_a_restart(spark: Any, tmp_path: Any) -> None:
    import headrace

    def send(served: Served, body: str) -> Any:
        return served.client.post("/v1/ingress/notes?wait=true", content=body, headers={"Idempotency-Key": "kept"})

    for start in range(2):
        with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
            if start == 0:
                hr.execute("CREATE TABLE notes (a INT, b STRING)")
            with running(hr) as served:
                assert send(served, '{"insert": {"a": 1}}').status_code == 200
                assert send(served, '{"insert": {"a": 2}}').json()["code"] == "key_reused"
                assert served.rows("notes") == [{"a": 1, "b": None}]


def test_a_statement_under_a_key_is_run_once(server: Served) -> None:
    def send(sql: str, key: str = "s-1") -> Any:
        return server.client.post("/v1/query", json={"sql": sql}, headers={"Idempotency-Key": key})

    counted = _applied(server)
    insert = "INSERT INTO notes SELECT 1, 'a' FROM range(2)"
    first, again = send(insert), send(insert)
    assert (first.status_code, again.status_code) == (200, 200), (first.text, again.text)
    assert first.json() == again.json()
    assert len(server.rows("notes")) == 2
    assert _applied(server) == counted + 2
    other = send("INSERT INTO notes SELECT 1, 'a' FROM range(3)")
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    update = "UPDATE notes SET a = a + 1 WHERE b = 'a'"
    assert send(update, "s-2").json() == send(update, "s-2").json()
    assert {row["a"] for row in server.rows("notes")} == {2}
    delete = "DELETE FROM notes WHERE a = 2"
    gone = send(delete, "s-3").json()
    server.push("notes", '{"insert": {"a": 2}}')
    # The same receipt, though there is something to delete again; and what changes nothing keeps its key too.
    assert send(delete, "s-3").json() == gone
    assert server.rows("notes") == [{"a": 2, "b": None}]
    nothing = send("DELETE FROM notes WHERE a = 3", "s-4").json()
    assert send("DELETE FROM notes WHERE a = 3", "s-4").json() == nothing
    assert send("DELETE FROM notes WHERE a = 2", "s-4").json()["code"] == "key_reused"
    pushed = server.client.post("/v1/epochs", json={"notes": []}, headers={"Idempotency-Key": "s-1"})
    assert pushed.json()["code"] == "key_reused"


def test_a_statement_that_fails_does_not_use_up_its_key(server: Served) -> None:
    def send(sql: str) -> Any:
        return server.client.post("/v1/query", json={"sql": sql}, headers={"Idempotency-Key": "failed"})

    assert send("INSERT INTO nowhere VALUES (1)").status_code == 404
    assert send("INSERT INTO notes SELECT 1 / (id - 1), 'a' FROM range(3)").status_code >= 400
    assert send("INSERT INTO notes VALUES (1, 'a')").status_code == 200


def test_a_statement_under_a_key_is_run_once_however_many_send_it(server: Served) -> None:
    def send(_: int) -> Any:
        sql = "INSERT INTO notes SELECT 7, 'x' FROM range(1)"
        return server.client.post("/v1/query", json={"sql": sql}, headers={"Idempotency-Key": "together"})

    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(send, range(6)))
    assert {one.status_code for one in answers} == {200}
    assert len({one.json()["epoch"] for one in answers}) == 1
    assert len(server.rows("notes")) == 1


@pytest.mark.parametrize("sql", ["SELECT 1 AS one", "SHOW TABLES", "EXPLAIN SELECT 1", "CREATE TABLE x (id INT)"])
def test_a_key_of_what_changes_no_rows_is_refused(server: Served, sql: str) -> None:
    answer = server.client.post("/v1/query", json={"sql": sql}, headers={"Idempotency-Key": "reading"})
    assert (answer.status_code, answer.json()["code"]) == (400, "key_refused")
    assert answer.headers["content-type"] == "application/problem+json"
    # It is as unused as before.
    server.client.post("/v1/epochs", json={"notes": []}, headers={"Idempotency-Key": "reading"}).raise_for_status()


def _applied(server: Served) -> float:
    """How many changes of notes the server has counted."""
    told = server.client.get("/metrics").text
    pattern = r'^headrace_changes_total\{outcome="applied",table="notes"\} (\S+)$'
    return sum(float(one) for one in re.findall(pattern, told, re.MULTILINE))


def test_a_refused_request_does_not_use_up_its_key(server: Served) -> None:
    def send(table: str) -> Any:
        body = {table: [{"insert": {"a": 1}}]}
        return server.client.post("/v1/epochs", json=body, headers={"Idempotency-Key": "mended"})

    assert send("nowhere").status_code == 404
    assert send("notes").status_code == 200


def test_several_tables_change_together(server: Served) -> None:
    body = {"parts": [{"insert": {"id": 1, "price": Decimal("1.5")}}], "notes": [{"insert": {"a": 1}}]}
    text = json.dumps(body, default=str)
    answer = server.client.post("/v1/epochs", content=text, headers={"Idempotency-Key": "epochs-1"})
    assert answer.status_code == 200
    assert answer.json()["applied"] == {"parts": 1, "notes": 1}
    again = server.client.post("/v1/epochs", content=text, headers={"Idempotency-Key": "epochs-1"})
    assert again.json()["epoch"] == answer.json()["epoch"]
    half = {"parts": [{"insert": {"id": 2}}], "notes": [{"insert": {"a": "x"}}, {"delete": {"a": 7}}]}
    refused = server.client.post("/v1/epochs", json=half)
    assert refused.status_code == 422
    assert [(one["table"], one["index"]) for one in refused.json()["rejections"]] == [("notes", 0), ("notes", 1)]
    assert len(server.rows("parts")) == 1
    taken = server.client.post("/v1/epochs?wait=false", json={"notes": [{"insert": {"a": 2}}]})
    assert _outcome(server, taken.json()["token"]).status_code == 200
    for bad in ("", "[]", "{", '{"parts": {}}', '{"parts": [], "parts": []}', "\xff", '{"parts": [NaN]}'):
        assert server.client.post("/v1/epochs", content=bad.encode("latin-1")).status_code == 400, bad
    assert server.client.post("/v1/epochs", json={"nothing": []}).status_code == 404
    assert server.client.post("/v1/epochs", json={"totals": []}).status_code == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/ingress/nothing", 404),
        ("/v1/ingress/totals", 404),
        ("/v1/ingress/parts?update_format=xml", 422),
        ("/v1/ingress/parts?format=avro", 422),
        ("/v1/ingress/parts?wait=perhaps", 422),
        ("/v1/ingress/", 404),
        ("/v1/nowhere", 404),
    ],
)
def test_a_wrong_address_is_told(server: Served, path: str, status: int) -> None:
    answer = server.client.post(path, content=_inserts(1))
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "code", "message", "detail", "hint"} <= set(problem)
    assert server.rows("parts") == []


def _outcome(server: Served, token: str) -> Any:
    def asked() -> Any:
        return server.client.get("/v1/completion", params={"token": token})

    def has_ended() -> bool:
        answer = asked()
        assert answer.status_code != 202 or answer.json()["status"] == "inprogress"
        return answer.status_code != 202

    until(has_ended)
    return asked()


def test_too_many_at_once_are_turned_away(server_with: Callable[..., Any]) -> None:
    with server_with(serve_pushes=1, serve_body_bytes=1000) as served:
        slot = served.service.pushes.enter()
        refused = served.push("parts", _inserts(1))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        slot.release()
        assert served.push("parts", _inserts(1)).status_code == 200
        large = served.push("parts", " " * 1001)
        assert (large.status_code, large.json()["code"]) == (413, "too_large")
        assert served.push("parts", _inserts(2)).status_code == 200
