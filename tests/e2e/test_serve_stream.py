"""Change streams: resumable, bounded, and free of cost for clients that are slow or gone."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import headrace
from headrace.face import home_of
from headrace.serving import changes as route
from tests.e2e.conftest import Served, running
from tests.waiting import PATIENCE, until


class Stream:
    """Server-sent events as a client reads them."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def next(self) -> dict[str, Any]:
        event: dict[str, Any] = {}
        for line in self._lines:
            if not line and event:
                return event
            name, _, value = line.partition(": ")
            if name == "data":
                event["data"] = json.loads(value)
            elif name in ("event", "id"):
                event[name] = value
            elif line.startswith(":") and line != ": headrace":
                return {"comment": line}
        raise EOFError


@contextmanager
def listening(server: Served, name: str, last: int | None = None, **parameters: Any) -> Iterator[Stream]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with server.client.stream("GET", f"/v1/changes/{name}", params=parameters, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        yield Stream(response)


def test_changes_come_as_they_are_made(server: Served) -> None:
    begin = server.hr.epoch
    first = server.push("parts", '{"insert": {"id": 1, "price": 1.5}}').json()["epoch"]
    with listening(server, "parts", since=begin) as stream:
        event = stream.next()
        assert (event["event"], event["id"]) == ("changes", str(first))
        assert event["data"]["changes"] == [{"_change_type": "insert", "id": 1, "name": None, "price": "1.50"}]
        assert event["data"]["epoch"] == first
        assert event["data"]["last"] is True
        second = server.push("parts", '{"insert": {"id": 1, "price": 2}}').json()["epoch"]
        update = stream.next()
        assert update["id"] == str(second)
        assert [one["_change_type"] for one in update["data"]["changes"]] == ["update_preimage", "update_postimage"]
        server.push("notes", '{"insert": {"a": 1}}')
        third = server.push("parts", '{"delete": {"id": 1}}').json()["epoch"]
        assert stream.next()["id"] == str(third)
    with listening(server, "parts", since=begin, last=second) as resumed:
        assert resumed.next()["id"] == str(third)


def test_without_an_epoch_comes_a_snapshot_first(server: Served) -> None:
    rows = [{"insert": {"a": i, "b": "x"}} for i in range(2500)]
    epoch = server.push("notes", json.dumps(rows)).json()["epoch"]
    with listening(server, "notes") as stream:
        events = [stream.next() for _ in range(3)]
        assert [len(one["data"]["rows"]) for one in events] == [1000, 1000, 500]
        # Only the last one has the id: a client that saw half of it begins anew.
        assert [one.get("id") for one in events] == [None, None, str(epoch)]
        assert {row["a"] for one in events for row in one["data"]["rows"]} == set(range(2500))
        after = server.push("notes", '{"insert": {"a": 7}}').json()["epoch"]
        assert stream.next()["id"] == str(after)
    with listening(server, "notes", since=epoch - 1) as stream:
        assert [stream.next().get("id") for _ in range(3)] == [None, None, str(epoch)]
    with listening(server, "parts") as empty:
        assert empty.next()["data"] == {"epoch": after, "last": True, "rows": []}


def test_an_idle_stream_shows_that_it_lives(server_with: Callable[..., Any]) -> None:
    often = timedelta(milliseconds=200)
    with server_with(serve_keep_alive=often) as served, listening(served, "parts", since=served.hr.epoch) as stream:
        assert stream.next() == {"comment": ": alive"}
        epoch = served.push("notes", '{"insert": {"a": 1}}').json()["epoch"]
        while "comment" in (event := stream.next()):
            continue
        assert event == {"event": "progress", "id": str(epoch), "data": {"epoch": epoch}}


@pytest.mark.parametrize(
    ("path", "last", "status"),
    [
        ("nowhere", None, 404),
        ("parts?since=-1", None, 422),
        ("parts?since=x", None, 422),
        ("parts?since=999999", None, 410),
        ("parts?since=99999999999999999999999", None, 422),
        ("parts", "x", 400),
        ("parts", "9" * 30, 400),
        ("parts%27%3B%20DROP%20TABLE%20parts", None, 404),
    ],
)
def test_what_cannot_be_streamed_is_told(server: Served, path: str, last: str | None, status: int) -> None:
    answer = server.client.get(f"/v1/changes/{path}", headers={} if last is None else {"Last-Event-ID": last})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_expired_epoch_is_gone(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = server.push("parts", '{"insert": {"id": 1}}').json()["epoch"]
    numbers = home_of(server.hr).core.ledger._folder.numbers
    monkeypatch.setitem(numbers, "headrace-oldest", newest)
    answer = server.client.get(f"/v1/changes/parts?since={newest - 1}")
    assert (answer.status_code, answer.json()["code"]) == (410, "epoch_expired")
    assert f"oldest epoch that can be read is {newest}" in answer.json()["detail"]


def test_a_replaced_view_is_a_reset_and_a_dropped_one_a_last_problem(server: Served) -> None:
    hr = server.hr
    hr.execute("CREATE TABLE marks (id INT PRIMARY KEY, n INT); CREATE VIEW marked AS SELECT id, n FROM marks")
    first = server.push("marks", '[{"insert": {"id": 1, "n": 5}}, {"insert": {"id": 2, "n": 6}}]').json()["epoch"]
    with listening(server, "marked", since=first) as view, listening(server, "marks", since=first) as table:
        # The same columns: what differs is told as changes.
        hr.execute("CREATE OR REPLACE VIEW marked AS SELECT id, n FROM marks WHERE n > 5")
        difference = view.next()
        assert difference["data"]["changes"] == [{"_change_type": "delete", "id": 1, "n": 5}]
        hr.execute("CREATE OR REPLACE VIEW marked AS SELECT n + 1 AS more FROM marks")
        replaced = hr.epoch
        assert view.next()["data"] == {"epoch": replaced, "columns": [{"name": "more", "type": "int"}]}
        content = view.next()
        assert sorted(row["more"] for row in content["data"]["rows"]) == [6, 7]
        assert (content["event"], content["id"]) == ("snapshot", str(replaced))
        hr.execute("ALTER TABLE marks ADD COLUMN note STRING")
        reset, rows = table.next(), table.next()
        assert [one["name"] for one in reset["data"]["columns"]] == ["id", "n", "note"]
        assert {"id": 1, "n": 5, "note": None} in rows["data"]["rows"]
        with listening(server, "marked", last=first) as resumed:
            assert [resumed.next()["event"] for _ in range(2)] == ["reset", "snapshot"]
        hr.execute("DROP VIEW marked")
        problem = view.next()
        assert (problem["event"], problem["data"]["message"]) == ("problem", "marked was dropped")
        assert "id" not in problem
        with pytest.raises(EOFError):
            view.next()
        assert server.client.get("/v1/changes/marked", headers={"Last-Event-ID": str(replaced)}).status_code == 404
    hr.execute("DROP TABLE marks")


def test_a_client_goes_on_across_a_restart_and_a_replacement(spark: Any, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with headrace.open(home, spark=spark) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); CREATE VIEW v AS SELECT id FROM t")
        with running(hr) as served:
            before = served.push("t", '{"insert": {"id": 1, "n": 2}}').json()["epoch"]
            with listening(served, "t", since=before - 1) as stream:
                assert stream.next()["id"] == str(before)
        hr.execute("CREATE OR REPLACE VIEW v AS SELECT n, id FROM t")
        with pytest.raises(headrace.EpochExpired, match="v was replaced"):
            hr.changes("v", since=before)
        after = hr.apply({"t": [{"insert": {"id": 2, "n": 3}}]}).epoch
    with headrace.open(home, spark=spark) as hr, running(hr) as served:
        with listening(served, "t", last=before) as stream:
            assert stream.next()["id"] == str(after)
            newer = served.push("t", '{"delete": {"id": 1}}').json()["epoch"]
            assert stream.next()["id"] == str(newer)
        with listening(served, "v", last=before) as stream:
            assert [one["name"] for one in stream.next()["data"]["columns"]] == ["n", "id"]
            content = stream.next()
            assert (content["data"]["rows"], content["id"]) == ([{"n": 3, "id": 2}], str(newer))
        assert hr.changes("v", since=after).num_rows == 1


def test_a_hundred_listeners_cost_one_text_and_hear_at_once(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    json_rows = route.json_rows
    monkeypatch.setattr(route, "json_rows", lambda rows: written.append(rows.num_rows) or json_rows(rows))
    begin = server.hr.epoch
    limits = httpx.Limits(max_connections=200)
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=PATIENCE, limits=limits))
        url = f"/v1/changes/parts?since={begin}"
        streams = [Stream(stack.enter_context(client.stream("GET", url))) for _ in range(100)]
        until(lambda: server.service.streams.open == 100)
        for number in range(5):
            epoch = server.push("parts", json.dumps({"insert": {"id": number}})).json()["epoch"]
            assert [stream.next()["id"] for stream in streams] == [str(epoch)] * 100
        assert written == [1] * 5
    until(lambda: server.service.streams.open == 0)


def test_clients_that_vanish_leave_nothing_behind(server: Served) -> None:
    request = b"GET /v1/changes/parts HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for client in clients:
        client.sendall(request)
    until(lambda: server.service.streams.open == 20)
    for client in clients:
        client.close()
    server.push("parts", '{"insert": {"id": 1}}')
    until(lambda: server.service.streams.open == 0)


@contextmanager
def _not_reading(served: Served) -> Iterator[None]:
    """A client that has read the first bytes of a long stream, and reads no more."""
    served.hr.apply({"notes": [{"insert": {"a": i, "b": "x" * 2000}} for i in range(8000)]})
    with socket.socket() as client:
        client.settimeout(PATIENCE)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", served.port))
        client.sendall(b"GET /v1/changes/notes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        yield


def test_a_client_that_never_reads_keeps_its_place_and_holds_nobody_up(server_with: Callable[..., Any]) -> None:
    with server_with(serve_streams=1) as served:
        with _not_reading(served):
            refused = served.client.get("/v1/changes/notes")
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            assert served.push("parts", '{"insert": {"id": 1}}').status_code == 200
            assert served.service.streams.open == 1
        until(lambda: served.service.streams.open == 0)


def test_a_client_that_never_reads_is_let_go(server_with: Callable[..., Any]) -> None:
    with server_with(serve_patience=timedelta(seconds=1)) as served, _not_reading(served):
        until(lambda: served.service.streams.open == 0)
