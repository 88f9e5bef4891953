"""/v1/sources and /v1/dead-letters: the twins of the statements, over a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.conftest import Served, emptied
from tests.waiting import await_end_of_thread, until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture
def served(server_with: Callable[..., Any]) -> Iterator[Served]:
    """A server that takes definitions, and leaves no source behind."""
    with server_with(serve_definitions=True) as one:
        yield one
        for source in one.client.get("/v1/sources").json():
            assert one.client.delete(f"/v1/sources/{source['name']}").status_code == 204
        one.client.post("/v1/dead-letters/discard", json={"all": True})
        emptied(one.hr)


def write(folder: Path, name: str, *lines: Any) -> None:
    text = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines)
    (folder / f".{name}").write_text(text)
    (folder / f".{name}").rename(folder / name)


def put(number: Any, **more: Any) -> dict[str, Any]:
    return {"insert": {"id": number, "name": "a", **more}}


def made(served: Served, folder: Path, name: str = "feed", **more: Any) -> dict[str, Any]:
    body = {"name": name, "table": "parts", "connector": "files", "location": str(folder), **more}
    answer = served.client.post("/v1/sources", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def told(served: Served, name: str = "feed") -> dict[str, Any]:
    answer = served.client.get(f"/v1/sources/{name}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_source_is_made_followed_paused_and_dropped(served: Served, folder: Path) -> None:
    first = made(served, folder)
    assert (first["name"], first["table"], first["connector"], first["state"]) == ("feed", "parts", "files", "Running")
    write(folder, "1.ndjson", put(1), put(2))
    until(lambda: told(served)["applied"] == 2)
    assert [one["id"] for one in served.rows("parts")] == [1, 2]
    assert served.client.post("/v1/sources/FEED/pause").json()["state"] == "Paused"
    write(folder, "2.ndjson", put(3))
    await_end_of_thread("headrace-source-feed")
    assert told(served)["received"] == 2
    altered = served.client.patch("/v1/sources/feed", json={"options": {"max_records": 1, "lag_warning": "1 minute"}})
    assert (altered.status_code, altered.json()["state"]) == (200, "Paused")
    assert served.client.post("/v1/sources/feed/resume").json()["state"] == "Running"
    until(lambda: told(served)["applied"] == 3)
    assert [one["name"] for one in served.client.get("/v1/sources").json()] == ["feed"]
    assert served.client.delete("/v1/sources/feed").status_code == 204
    gone = served.client.get("/v1/sources/feed")
    assert (gone.status_code, gone.headers["content-type"]) == (404, "application/problem+json")


def test_dead_letters_are_listed_edited_replayed_and_discarded(served: Served, folder: Path) -> None:
    made(served, folder)
    write(folder, "1.ndjson", put(1), "{", put("x"), put(2, price="much"), put(3, more=1), put(4))
    until(lambda: told(served)["applied"] + told(served)["dead"] == 6)
    get = served.client.get
    pages: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = get("/v1/dead-letters", params={"source": "feed", "limit": 3, **cursor}).json()
        pages.extend(page["letters"])
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert len(pages) == len({one["id"] for one in pages}) == 4
    assert get("/v1/dead-letters", params={"stage": "text"}).json()["letters"][0]["payload"] == "{"
    assert get("/v1/dead-letters", params={"source": "other"}).json() == {"letters": [], "next": None}
    (bad,) = [one for one in pages if "much" in one["payload"]]
    one = f"/v1/dead-letters/{quote(bad['id'], safe='')}"
    assert get(one).json() == bad
    # Edited, but not well: it stays, with what was sent.
    again = served.client.post(f"{one}/replay", json={"payload": put(2, price="more")})
    assert (again.status_code, again.json()["dead"]) == (200, {"parts": 1})
    assert "more" in get(one).json()["payload"]
    right = served.client.post(f"{one}/replay", json={"payload": json.dumps(put(2, price="1.50"))})
    assert right.json()["applied"] == {"parts": 1}
    assert get(one).status_code == 404
    assert [one["id"] for one in served.rows("parts")] == [1, 2, 4]
    ids = [one["id"] for one in pages if one is not bad]
    stayed = served.client.post("/v1/dead-letters/replay", json={"ids": ids})
    assert sum(stayed.json()["dead"].values()) == 3
    assert served.client.post("/v1/dead-letters/discard", json={"ids": ids[:1]}).status_code == 200
    unknown = served.client.post("/v1/dead-letters/discard", json={"ids": ids})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "name_error")
    assert served.client.post("/v1/dead-letters/discard", json={"source": "feed"}).status_code == 200
    assert get("/v1/dead-letters").json()["letters"] == []
    counts = told(served)
    assert (counts["received"], counts["applied"], counts["dead"]) == (6, 3, 3)


def test_figures_of_sources(served: Served, folder: Path) -> None:
    def figures() -> dict[str, float]:
        lines = served.client.get("/metrics").text.splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if 'source="' in line}

    began = time.time()
    made(served, folder, "figures", options={"lag_warning": 3600})
    write(folder, "1.ndjson", put(1), put("x"), put(2))
    wanted = {"received": 3, "pending": 0, "lag_seconds": 0}
    until(lambda: wanted.items() <= told(served, "figures").items())
    found = figures()
    assert found['headrace_source_records_total{outcome="applied",source="figures"}'] == 2
    assert found['headrace_source_records_total{outcome="dead",source="figures"}'] == 1
    assert found['headrace_source_state{source="figures",state="Running"}'] == 1
    assert found['headrace_source_state{source="figures",state="Error"}'] == 0
    assert found['headrace_source_lag_records{source="figures"}'] == 0
    assert found['headrace_source_lag_seconds{source="figures"}'] == 0
    assert found['headrace_source_late{source="figures"}'] == 0
    assert found['headrace_source_records_per_second{source="figures"}'] > 0
    assert found['headrace_dead_letters{source="figures"}'] == 1
    assert 0 <= found['headrace_dead_letters_oldest_age_seconds{source="figures"}'] <= time.time() - began
    served.client.post("/v1/dead-letters/discard", json={"source": "figures"})
    assert 'headrace_dead_letters{source="figures"}' not in figures()
    # What was counted stays counted: a counter never falls.
    assert figures()['headrace_source_records_total{outcome="dead",source="figures"}'] == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "a b"}, 422, "invalid_request"),
        ({"name": "x'; DROP TABLE parts"}, 422, "invalid_request"),
        ({"connector": "nowhere"}, 422, "invalid_request"),
        ({"location": " "}, 422, "invalid_request"),
        ({"options": {"max_records": 1.5}}, 422, "invalid_request"),
        ({"options": {"A": 1, "a": 2}}, 422, "invalid_request"),
        ({"more": 1}, 422, "invalid_request"),
        ({"table": "nowhere"}, 404, "name_error"),
        ({"table": "totals"}, 400, "name_error"),
        ({"options": {"password": "hunter2"}}, 400, "source_error"),
        ({"options": {"max_record": 5}}, 400, "source_error"),
        ({"options": {"lag_warning": "soon"}}, 400, "source_error"),
    ],
)
def test_what_is_no_source_is_refused(
    served: Served, folder: Path, body: dict[str, Any], status: int, code: str
) -> None:
    whole = {"name": "feed", "table": "parts", "connector": "files", "location": str(folder), **body}
    answer = served.client.post("/v1/sources", json=whole)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["hint"]
    assert served.client.get("/v1/sources").json() == []


def test_what_cannot_be_asked_is_refused(served: Served, folder: Path) -> None:
    made(served, folder)
    client = served.client
    again = client.post(
        "/v1/sources", json={"name": "feed", "table": "parts", "connector": "files", "location": str(folder)}
    )
    assert (again.status_code, again.json()["code"]) == (409, "name_error")
    for method, path, status in (
        ("POST", "/v1/sources/nowhere/pause", 404),
        ("POST", "/v1/sources/feed/explode", 422),
        ("DELETE", "/v1/sources/nowhere", 404),
        ("GET", "/v1/dead-letters?cursor=abc", 422),
        ("GET", "/v1/dead-letters?limit=0", 422),
        ("GET", "/v1/dead-letters/nowhere", 404),
    ):
        answer = client.request(method, path)
        assert answer.status_code == status, (path, answer.text)
    for path, body in (
        ("/v1/dead-letters/discard", {}),
        ("/v1/dead-letters/discard", {"ids": [1]}),
        ("/v1/dead-letters/replay", []),
    ):
        assert client.post(path, json=body).status_code == 422
    assert client.post("/v1/sources", content=b" " * 3_000_000).status_code == 413
    for table in ("dead_letters", "source_progress", "feed_raw"):
        pushed = served.push(table, '{"insert": {"id": "x"}}')
        assert (pushed.status_code, pushed.json()["code"]) == (403, "system_table")


def test_definitions_are_refused_unless_they_are_allowed(server: Served, folder: Path) -> None:
    body = {"name": "feed", "table": "parts", "connector": "files", "location": str(folder)}
    for method, path in (("POST", "/v1/sources"), ("PATCH", "/v1/sources/x"), ("DELETE", "/v1/sources/x")):
        answer = server.client.request(method, path, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "definitions_refused")
    # To look, to pause and to replay is no definition.
    assert server.client.get("/v1/sources").status_code == 200
    assert server.client.post("/v1/sources/x/pause").status_code == 404


def test_sources_of_clients_name_only_what_is_listed(server_with: Callable[..., Any], folder: Path) -> None:
    with server_with(serve_definitions=True, serve_source_locations=(str(folder),)) as one:
        body = {"name": "feed", "table": "parts", "connector": "files", "location": str(folder.parent)}
        refused = one.client.post("/v1/sources", json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "location_refused")
        statement = f"CREATE SOURCE feed INTO parts FROM FILES '{folder.parent}'"
        assert one.client.post("/v1/query", json={"sql": statement}).status_code == 403
        assert one.client.post("/v1/sources", json={**body, "location": str(folder)}).status_code == 201
        options = {"options": {"registry": "http://elsewhere:8081"}}
        assert one.client.patch("/v1/sources/feed", json=options).status_code == 403
        assert one.client.delete("/v1/sources/feed").status_code == 204
