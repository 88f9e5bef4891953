"""Keys with fewer rights: what they may do, and that everything else is refused on every route, and nothing told."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace.access.audit import Audit
from headrace.access.grants import read_grant
from headrace.access.keys import create_key, revoke_key, set_stand_in
from headrace.face import home_of
from headrace.serving.access import access_in, refusal_of_path
from tests.e2e.conftest import Served, running
from tests.waiting import PATIENCE, until

SECRET = "123-45-6789"
SQL = f"""
CREATE TABLE people (id INT PRIMARY KEY, name STRING, ssn STRING, city STRING);
CREATE TABLE orders (id INT PRIMARY KEY, amount INT);
CREATE TABLE hidden (id INT PRIMARY KEY, what STRING);
CREATE VIEW people_public AS SELECT id, left(name, 1) AS name, city FROM people WHERE city <> 'Oslo';
CREATE VIEW hints AS SELECT id, length(what) AS size FROM hidden;
INSERT INTO people VALUES (1, 'Ann', '{SECRET}', 'Rome'), (2, 'Bob', '{SECRET}', 'Oslo');
INSERT INTO orders VALUES (1, 10);
INSERT INTO hidden VALUES (1, '{SECRET}');
CREATE EVENT STORE noted;
"""
_NOTED = [{"event_type": "Noted", "event_data": {}}]


class Door(Served):
    """A server with keys, and a client for each of them."""

    keys: dict[str, str]

    def __init__(self, served: Served, keys: dict[str, str]) -> None:
        super().__init__(served.url, served.hr, served.client, served.service)
        self.keys = keys

    def as_(self, name: str, **headers: str) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, timeout=PATIENCE, headers={"Authorization": f"Bearer {self.keys[name]}", **headers}
        )


@pytest.fixture(scope="module")
def door(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    import headrace

    path = tmp_path_factory.mktemp("door") / "home"
    grants = {
        "reader": ["read:people", "read:people_public", "read:orders", "read:hints"],
        "all_reader": ["read:*"],
        "writer": ["write:orders", "read:people"],
        "people_writer": ["write:people", "write:noted"],
        "watcher": ["observe"],
        "admin": ["admin:*"],
        "gone": ["admin:*"],
    }
    with headrace.open(str(path), spark=spark) as hr:
        hr.execute(SQL)
        keys = {
            name: create_key(path, name, [read_grant(one) for one in held], "test")[1] for name, held in grants.items()
        }
        set_stand_in(path, "people", "people_public")
        revoke_key(path, "gone")
        with running(hr, serve_definitions=True) as served:
            yield Door(served, keys)


def _query(client: httpx.Client, sql: str) -> httpx.Response:
    return client.post("/v1/query", json={"sql": sql})


def test_a_key_reads_what_it_may_and_a_view_where_one_stands_in(door: Door) -> None:
    with door.as_("reader") as reader, door.as_("admin") as admin:
        assert _query(reader, "SELECT * FROM orders").json()["rows"] == [{"id": 1, "amount": 10}]
        assert _query(reader, "SELECT * FROM people").json()["rows"] == [{"id": 1, "name": "A", "city": "Rome"}]
        counted = _query(reader, "SELECT count(*) AS n FROM people p JOIN orders o ON p.id = o.id")
        assert counted.json()["rows"] == [{"n": 1}]
        assert [one["col_name"] for one in _query(reader, "DESCRIBE people").json()["rows"]] == ["id", "name", "city"]
        assert [one["name"] for one in _query(reader, "SHOW TABLES").json()["rows"]] == ["people", "orders"]
        assert {one["ssn"] for one in _query(admin, "SELECT * FROM people").json()["rows"]} == {SECRET}
        pipelines = reader.get("/v0/pipelines/p").json()["program_info"]["schema"]
        assert [one["name"] for one in pipelines["inputs"]] == ["people", "orders"]
        assert "ssn" not in json.dumps(pipelines)


def test_streams_are_served_from_the_view_that_stands_in(door: Door) -> None:
    with door.as_("reader") as reader, reader.stream("GET", "/v1/changes/people") as stream:
        lines = stream.iter_lines()
        data = next(line for line in lines if line.startswith("data:"))
        assert "ssn" not in data
        assert json.loads(data[5:])["rows"] == [{"id": 1, "name": "A", "city": "Rome"}]


HIDDEN = [
    "SELECT * FROM hidden",
    "SELECT what FROM hidden",
    "SELECT (SELECT max(what) FROM hidden) AS x",
    "SELECT * FROM orders WHERE EXISTS (SELECT 1 FROM hidden WHERE what LIKE '1%')",
    "WITH x AS (SELECT * FROM `hidden`) SELECT * FROM x",
    "SELECT * FROM HIDDEN VERSION AS OF 2",
    "EXPLAIN SELECT * FROM hidden",
    "EXPLAIN hidden",
    "EXPLAIN hints",
    "DESCRIBE hidden",
    "SELECT ssn FROM people",
    "INSERT INTO orders SELECT 2, CAST(ssn AS INT) FROM people",
    "UPDATE orders SET amount = (SELECT max(id) FROM hidden)",
    "INSERT INTO orders VALUES (2, (SELECT max(id) FROM hidden))",
    "DELETE FROM hidden",
    "INSERT INTO hidden VALUES (2, 'x')",
    "UPDATE people SET city = ssn",
    "CREATE VIEW mine AS SELECT * FROM hidden",
    "CREATE TABLE mine (id INT)",
    "DROP TABLE hidden",
    "ALTER TABLE people DROP COLUMN ssn",
    "SHOW SOURCES",
    "SHOW FLOWS",
    "PAUSE SOURCE s",
    "REPLAY DEAD LETTERS",
    "SELECT * FROM source_progress",
    "SELECT * FROM parquet.`/etc`",
    "SELECT * FROM csv.`/etc/passwd`",
    "SELECT reflect('java.lang.System', 'getenv', 'PATH')",
    "SELECT java_method('java.lang.Runtime', 'getRuntime')",
    "SET spark.sql.warehouse.dir",
]


@pytest.mark.parametrize("sql", HIDDEN)
@pytest.mark.parametrize("who", ["reader", "writer", "watcher"])
def test_what_a_key_may_not_do_is_refused_and_nothing_is_told(door: Door, who: str, sql: str) -> None:
    if who == "watcher" and sql.startswith("SHOW"):
        pytest.skip("that one may see it")
    epoch = door.hr.epoch
    with door.as_(who) as client:
        answer = _query(client, sql)
    assert answer.status_code in (400, 403, 404), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert SECRET not in answer.text
    assert "what" not in answer.json().get("detail", "").split()
    assert door.hr.epoch == epoch


def test_a_view_may_be_read_without_telling_what_it_reads(door: Door) -> None:
    with door.as_("reader") as reader, door.as_("admin") as admin:
        assert _query(reader, "SELECT * FROM hints").json()["rows"] == [{"id": 1, "size": len(SECRET)}]
        assert _query(reader, "EXPLAIN people_public").status_code == 403, "its plan has the columns that are masked"
        assert _query(reader, "EXPLAIN people").status_code == 403
        views = {row["name"]: row["reads"] for row in _query(reader, "SHOW VIEWS").json()["rows"]}
        assert views == {"people_public": "people", "hints": ""}
        assert "hidden" in _query(admin, "EXPLAIN hints").text


def test_a_change_never_copies_what_is_masked(door: Door) -> None:
    with door.as_("people_writer") as client:
        for sql in ("UPDATE people SET city = ssn", "DELETE FROM people WHERE ssn LIKE '1%'"):
            assert (_query(client, sql).status_code, _query(client, sql).json()["code"]) == (403, "forbidden")
        assert _query(client, "INSERT INTO people VALUES (9, 'Eve', 'x', 'Rome')").status_code == 200
        assert client.post("/v1/epochs", json={"people": [{"delete": {"id": 9}}]}).status_code == 200
        copy = "INSERT INTO people SELECT id + 100, 'x', 'x', concat(name, '|', ssn) FROM people"
        assert _query(client, copy).status_code == 400, "there is no such column in what it sees"
        assert _query(client, "INSERT INTO people SELECT id + 100, name, 'x', city FROM people").status_code == 200
        there = _query(client, "SELECT id, name FROM people ORDER BY id").json()["rows"]
        assert there == [{"id": 1, "name": "A"}, {"id": 101, "name": "A"}], "it copies what it sees, and no other row"
        client.post("/v1/epochs", json={"people": [{"delete": {"id": 101}}]}).raise_for_status()


def test_a_part_of_a_row_that_is_hidden_cannot_be_changed(door: Door) -> None:
    part = {"update": {"id": 2, "city": "Rome"}}
    with door.as_("people_writer") as client:
        answers = [
            client.post("/v1/ingress/people?wait=true", json=[part]),
            client.post("/v1/epochs", json={"people": [part]}),
            client.post("/v1/epochs", json={"PEOPLE": [part]}),
            client.post("/v1/events/Person/2?store=noted", json={"events": _NOTED, "changes": {"people": [part]}}),
            client.post("/v1/events/Person/2?store=noted", json={"events": _NOTED, "changes": {"People": [part]}}),
            client.post("/v0/pipelines/p/ingress/people?format=json&array=true", json=[part]),
        ]
        assert [one.status_code for one in answers[:5]] == [403] * 5
        assert answers[5].status_code in (400, 403)
        assert [one["id"] for one in _query(client, "SELECT id FROM people").json()["rows"]] == [1]


def test_what_is_named_and_not_read_tells_nothing(door: Door) -> None:
    with door.as_("writer") as client:
        told = [
            json.loads(_query(client, f"INSERT INTO orders SELECT 7, id FROM {name}").text.replace(name, "X"))
            for name in ("hidden", "absent")
        ]
        assert told[0] == told[1]
        assert told[0]["status"] == 403
        assert _query(client, "INSERT INTO orders SELECT 8, hidden FROM (SELECT 1 AS hidden)").status_code == 200
        client.post("/v1/epochs", json={"orders": [{"delete": {"id": 8}}]}).raise_for_status()


def test_counts_are_those_of_what_is_seen(door: Door) -> None:
    with door.as_("reader") as reader, door.as_("admin") as admin:
        shown = [
            {one["name"]: one["rows"] for one in _query(client, "SHOW TABLES").json()["rows"]}
            for client in (reader, admin)
        ]
    assert (shown[0]["people"], shown[1]["people"]) == (1, 2)


def test_a_relation_that_is_not_there_is_refused_like_one_that_is(door: Door) -> None:
    def told(answer: httpx.Response) -> str:
        return answer.text.replace("hidden", "X").replace("absent", "X")

    with door.as_("reader") as client:
        for path in ("/v1/changes/{}", "/v1/ingress/{}", "/v0/pipelines/p/egress/{}", "/v0/pipelines/p/ingress/{}"):
            method = "GET" if "changes" in path else "POST"
            there, absent = (client.request(method, path.format(name), content="[]") for name in ("hidden", "absent"))
            assert (there.status_code, told(there)) == (403, told(absent))
        there, absent = (_query(client, f"SELECT * FROM {name}") for name in ("hidden", "absent"))
        assert (there.status_code, told(there)) == (403, told(absent))


ADMINISTRATION = [
    ("POST", "/v1/sources"),
    ("PATCH", "/v1/sources/s"),
    ("POST", "/v1/sources/s/pause"),
    ("DELETE", "/v1/sources/s"),
    ("GET", "/v1/dead-letters"),
    ("POST", "/v1/dead-letters/replay"),
    ("POST", "/v1/dead-letters/discard"),
    ("POST", "/v1/changefeeds"),
    ("DELETE", "/v1/changefeeds/f"),
    ("POST", "/v0/pipelines/p/stop"),
    ("POST", "/v0/pipelines/p/pause"),
    ("GET", "/anything/that/comes/later"),
    ("POST", "/v1/event-types"),
    ("PUT", "/v1/query"),
    ("GET", "/healthz/%2e%2e/v1/sources"),
    ("GET", "//v1/sources"),
]


@pytest.mark.parametrize(("method", "path"), ADMINISTRATION)
def test_administration_is_for_administrators(door: Door, method: str, path: str) -> None:
    for who in ("all_reader", "writer", "watcher"):
        with door.as_(who) as client:
            answer = client.request(method, path, content="{}")
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (who, answer.text)


def test_figures_are_for_who_may_observe(door: Door) -> None:
    for who, status in {"watcher": 200, "admin": 200, "all_reader": 403, "writer": 403}.items():
        with door.as_(who) as client:
            assert client.get("/metrics").status_code == status, who
            assert client.get("/v1/sources").status_code == status, who
            assert client.get("/v0/pipelines/p/metrics").status_code == status, who


def test_no_key_a_forged_and_a_revoked_one_open_nothing(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    forged = door.keys["admin"][:-2] + "xx"
    paths = ("/v1/sources", "/metrics", "/openapi.json", "/v1/session", "/v0/pipelines", "/v1/changes/orders", "/x")
    with caplog.at_level(logging.WARNING, "headrace.access"):
        for headers in (
            {},
            {"Authorization": f"Bearer {forged}"},
            {"Authorization": f"Bearer {door.keys['gone']}"},
            {"X-API-Key": door.keys["admin"].upper()},
            {"Cookie": f"headrace_session={door.keys['admin']}"},
        ):
            for path in paths:
                answer = httpx.get(door.url + path, headers=headers, timeout=PATIENCE)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), (path, headers)
    assert not any(key in caplog.text for key in (forged, door.keys["gone"], door.keys["admin"]))


def test_a_key_that_is_revoked_is_refused_while_the_server_runs(door: Door) -> None:
    path = home_of(door.hr).path
    _, token = create_key(path, "for a moment", [read_grant("read:orders")], "test")
    headers = {"X-API-Key": token}

    def status() -> int:
        return httpx.get(f"{door.url}/v1/session", headers=headers, timeout=PATIENCE).status_code

    until(lambda: status() == 200)
    revoke_key(path, "for a moment")
    until(lambda: status() == 401)


def test_a_browser_signs_in_with_a_key(door: Door) -> None:
    with httpx.Client(base_url=door.url, timeout=PATIENCE) as browser:
        assert browser.post("/v1/session", json={"key": "hr_wrong"}).status_code == 401
        signed = browser.post("/v1/session", json={"key": door.keys["reader"]})
        cookie = signed.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
        assert door.keys["reader"] not in str(signed.headers) + signed.text
        granted = browser.get("/v1/session").json()["grants"]
        assert granted == ["read:people", "read:people_public", "read:orders", "read:hints"]
        own = {"Origin": door.url}
        assert browser.post("/v1/query", json={"sql": "SELECT * FROM orders"}, headers=own).status_code == 200
        # A page of elsewhere that has the browser send its cookie.
        for headers in ({"Origin": "https://evil.example"}, {}, {"Sec-Fetch-Site": "cross-site"}):
            answer = browser.post("/v1/query", json={"sql": "SELECT * FROM orders"}, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "foreign_site"), headers
        assert browser.get("/v1/sources").status_code == 403
        # There a GET may change rows, and a link is enough to have a browser send one.
        assert browser.get("/v0/pipelines/p/query", params={"sql": "SELECT * FROM orders"}).status_code == 401
        assert browser.delete("/v1/session", headers=own).status_code == 204
        assert browser.get("/v1/session").status_code == 401


def test_administration_leaves_a_trail(door: Door) -> None:
    audit = Audit(home_of(door.hr).path)
    with door.as_("admin") as admin:
        assert _query(admin, "CREATE TABLE trail (id INT, secret STRING)").status_code == 200
        assert _query(admin, "CREATE TABLE trail (id INT)").status_code == 404
        assert _query(admin, "DROP TABLE trail").status_code == 200
        assert _query(admin, "SELECT * FROM orders").status_code == 200
    told = [(one["who"].split(" ")[0], one["what"], one["outcome"]) for one in audit.entries()][-3:]
    assert told == [
        ("admin", "CREATE TABLE name=trail", "done"),
        ("admin", "CREATE TABLE name=trail", "name_error"),
        ("admin", "DROP kind=table name=trail", "done"),
    ]


def test_answers_carry_the_headers_that_hold_a_browser_back(door: Door) -> None:
    with door.as_("admin") as admin:
        answers = [
            admin.get("/healthz"),
            admin.get("/nowhere"),
            httpx.get(f"{door.url}/metrics", timeout=PATIENCE),
            admin.get("/metrics"),
        ]
    for answer in answers:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_every_route_is_judged() -> None:
    """Nobody without rights gets past the table of paths but to what judges by relation."""
    nobody = access_in({"type": "http"})
    assert not nobody.grants
    for method, path in ADMINISTRATION:
        assert refusal_of_path(nobody, method, path) is not None
    assert refusal_of_path(nobody, "POST", "/v1/query") is None
