"""The console with keys that may not do everything: what they may not is left out and said, and no page is broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headrace.access.grants import read_grant
from headrace.access.keys import create_key, set_stand_in
from headrace.face import home_of
from tests.e2e.browser import CHROMIUM, MISSING, Watched, chromium
from tests.e2e.conftest import Served, running
from tests.thinned import thinned
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
GRANTS = {
    "admin": ["admin:*"],
    "reader": ["read:*", "read:happened"],
    "clerk": ["read:people", "read:public_people"],
    "watcher": ["observe"],
}
SQL = """
CREATE TABLE people (id INT PRIMARY KEY, name STRING, ssn STRING);
CREATE TABLE secret (id INT, ssn_of_all STRING);
CREATE EVENT STORE happened;
CREATE PROJECTION accounts FOR EVENT STORE happened AGGREGATE TYPE 'Account' (n INT);
CREATE VIEW public_people AS SELECT id, name FROM people WHERE id < 3;
INSERT INTO people VALUES (1, 'Ada', '111'), (2, 'Bo', '222'), (3, 'Cy', '333');
INSERT INTO secret VALUES (1, '111');
"""
PAGES = ("overview", "board", "sql", "changes/people", "view", "view/people", "time/people")
CLOSED = {
    "start": "admin over everything",
    "runtime": "observe",
    "sources": "observe",
    "events": "read over an event store, by its name",
    "letters": "dead_letters",
}


@pytest.fixture(scope="module")
def door(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    import headrace

    path = tmp_path_factory.mktemp("roles") / "home"
    with headrace.open(str(path), spark=spark) as hr:
        hr.execute(SQL)
        for n in range(3):
            event = {"event_type": "Counted", "event_data": {"n": n}, "metadata": {"user": "ann"}, "event_id": f"e{n}"}
            hr.events("happened").append("Account", f"a{n % 2}", [event])
        keys = {
            name: create_key(home_of(hr).path, name, [read_grant(one) for one in held], "test")[1]
            for name, held in GRANTS.items()
        }
        set_stand_in(home_of(hr).path, "people", "public_people")
        with running(hr, serve_definitions=True) as served:
            yield served, keys


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def _signed_in(door: tuple[Served, dict[str, str]], browser: Any, who: str) -> Watched:
    served, keys = door
    watched = Watched(browser, served.url)
    page = watched.page
    page.goto(served.url)
    page.get_by_label("API key").fill(keys[who])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_selector(".page[data-ready=true]")
    # Before the key was given, the page asked what it might see.
    watched.complaints.clear()
    return watched


def _named(page: Any) -> list[str]:
    return [one.get_attribute("data-page") for one in page.locator("#nav a").all()]


@pytest.mark.parametrize("who", thinned(["reader", "clerk"], 2))
def test_every_page_is_whole_for_who_may_only_read(door: tuple[Served, dict[str, str]], browser: Any, who: str) -> None:
    watched = _signed_in(door, browser, who)
    events = ["events"] if who == "reader" else []
    assert _named(watched.page) == ["overview", "board", "sql", "changes", "view", "time", *events]
    assert who in watched.page.inner_text("#who")
    assert GRANTS[who][0] in watched.page.inner_text("#who")
    assert "Epoch" in watched.page.inner_text("#live")
    for path in PAGES:
        page = watched.open(path)
        assert page.locator(".problem").count() == 0, (path, page.inner_text("main"))
        assert "ssn" not in page.inner_text("main"), path
    assert watched.open("view/public_people").locator("#verify").count() == 0
    for path, need in CLOSED.items():
        if path in events:
            continue
        page = watched.open(path)
        assert page.locator("[data-closed=true]").count() == 1, path
        assert need in page.inner_text("main")
        assert page.locator("main button").count() == 0
    page = watched.open("sql")
    page.get_by_label("SQL").fill("SELECT * FROM people")
    page.get_by_role("button", name="Run").click()
    page.wait_for_selector(".grid .line")
    assert "Ada" in page.inner_text(".grid")
    assert "Cy" not in page.inner_text(".grid")
    # Whatever the pages asked, it was answered.
    watched.close()


def test_who_may_read_a_store_sees_it_flow(door: tuple[Served, dict[str, str]], browser: Any) -> None:
    watched = _signed_in(door, browser, "reader")
    page = watched.open("overview")
    assert page.locator("g.node.events").get_attribute("aria-label") == "event store happened"
    assert page.locator("g.node.view", has_text="accounts").count() == 1
    box, node = page.locator(".graph").bounding_box(), page.locator("g.node.events").bounding_box()
    assert node["height"] < 60, "it is not blown up"
    assert box["x"] <= node["x"]
    assert node["x"] + node["width"] <= box["x"] + box["width"]
    assert "event store" in watched.open("view").inner_text("main")
    watched.close()


def test_who_may_observe_sees_figures_and_moves_nothing(door: tuple[Served, dict[str, str]], browser: Any) -> None:
    watched = _signed_in(door, browser, "watcher")
    assert _named(watched.page) == ["overview", "view", "runtime", "sources"]
    for path in ("sql", "changes/people", "time/people"):
        assert "read over some relation" in watched.open(path).inner_text("main")
    page = watched.open("runtime")
    page.wait_for_selector("#jobs h2")
    page = watched.open("sources")
    assert "takes the role admin" in page.inner_text("main")
    assert page.locator("main button").count() == 0
    watched.close()


def test_an_administrator_sees_all_and_the_jobs_of_spark(door: tuple[Served, dict[str, str]], browser: Any) -> None:
    served, keys = door
    with httpx.Client(base_url=served.url, headers={"X-API-Key": keys["admin"]}, timeout=PATIENCE) as client:
        client.post("/v1/relations/public_people/verify", json={}).raise_for_status()
        jobs = client.get("/v1/jobs").json()["jobs"]
        assert jobs, "a full recompute is work for Spark"
        assert {"id", "status", "tasks", "submitted_at"} <= jobs[0].keys()
        assert [one["id"] for one in jobs] == sorted((one["id"] for one in jobs), reverse=True)
    watched = _signed_in(door, browser, "admin")
    assert len(_named(watched.page)) == 11
    page = watched.open("runtime")
    page.wait_for_selector("tr[data-job]")
    assert "succeeded" in page.inner_text("#jobs")
    watched.close()


def test_what_a_reader_is_told_names_nothing_that_it_may_not_read(door: tuple[Served, dict[str, str]]) -> None:
    served, keys = door
    with httpx.Client(base_url=served.url, headers={"X-API-Key": keys["clerk"]}, timeout=PATIENCE) as client:
        graph = client.get("/v1/graph").json()
        assert [(one["name"], one["rows"], one["columns"]) for one in graph["relations"]] == [
            ("people", 2, ["id", "name"]),
            ("public_people", 2, ["id", "name"]),
        ]
        assert graph["sources"] == graph["feeds"] == []
        told = client.get("/v1/relations/people")
        assert "ssn" not in told.text
        assert told.json()["rows"] == 2
        newest = client.get("/v1/epochs").json()["newest"]
        moved = client.get(f"/v1/relations/people/difference?from=0&to={newest}")
        assert "333" not in moved.text
        assert len(moved.json()["rows"]) == 2
        for path in (
            "/v1/relations/secret",
            f"/v1/relations/secret/difference?from=0&to={newest}",
            "/v1/relations/none",
        ):
            refused = client.get(path)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
        for path in ("/v1/runtime", "/v1/jobs", "/v1/examples"):
            assert client.get(path).status_code == 403, path
        assert client.post("/v1/relations/public_people/verify", json={}).status_code == 403
        with client.stream("GET", "/v1/live") as stream:
            lines = stream.iter_lines()
            next(line for line in lines if line.startswith("data:"))
            served.hr.execute("INSERT INTO secret VALUES (2, '222'); INSERT INTO people VALUES (4, 'Di', '444')")
            served.hr.execute("INSERT INTO people VALUES (0, 'Ed', '000')")
            heard = ""
            while "people" not in heard:
                heard = next(line for line in lines if line.startswith("data:"))
                assert "secret" not in heard
            told = [one["changes"] for one in json.loads(heard[5:])["epochs"] if one["changes"]]
            assert told == [{"people": 1, "public_people": 1}], "of the row that is hidden nothing is heard"
