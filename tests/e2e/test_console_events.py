"""The console's pages of an event store in a real browser, over a store in memory: no Spark is needed to show them."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import Response

import headrace.serving.console.pages as pages
from headrace.access.grants import read_grant
from headrace.access.keys import create_key
from headrace.access.ring import KeyRing
from headrace.serving import events as routes
from headrace.serving import problems
from headrace.serving.auth import Credentials, Guarded
from headrace.serving.oidc import OpenId
from headrace.settings import Settings
from tests.e2e.browser import CHROMIUM, MISSING, Watched, chromium, until
from tests.small_events import SmallStore, event
from tests.thinned import thinned
from tests.waiting import PATIENCE
from tests.waiting import until as wait_until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
# How a key is made for which a page is there.
FLAGS = {
    "start": "--admin '*'", "events": "--read STORE", "letters": "--read dead_letters", "runtime": "--observe",
}  # fmt: skip
AT = "2026-11-17T20:00:00+00:00"


def _relation(name: str, **more: Any) -> dict[str, Any]:
    told = {"name": name, "kind": "table", "system": False, "event_store": False, "reads": [], "incremental": True}
    return {**told, "rows": 3, "rate": 0.0, "columns": ["id"], "changed_epoch": 1, "changed_at": AT, **more}


GRAPH = {
    "epoch": 1,
    "committed_at": AT,
    "oldest": 0,
    "relations": [
        _relation("events", event_store=True),
        _relation("events_aggregates", system=True),
        _relation("accounts", kind="view", reads=["events"]),
    ],
    "sources": [],
    "feeds": [],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    found = SmallStore(tmp_path_factory.mktemp("store"))
    for n in range(3):
        one = {**event("Counted", n=n), "metadata": {"user": "ann"}, "event_id": f"e{n}"}
        found.append("Account", f"a{n % 2}", [one])
    return found


@contextmanager
def serving(store: SmallStore, credentials: Credentials) -> Generator[str, None, None]:
    """The console and the routes of events, with what else its pages ask for stood in for."""
    app = FastAPI()
    home = SimpleNamespace(events=lambda name: store, core=store.host)
    readings = SimpleNamespace(catalog=store.host.catalog)
    app.state.service = SimpleNamespace(settings=Settings(serve_definitions=False), home=home, readings=readings)
    app.state.credentials = credentials
    app.state.openid = OpenId(Settings())
    problems.install(app)
    for router in (pages.router, routes.router):
        app.include_router(router)

    @app.get("/v1/graph")
    async def graph() -> dict[str, Any]:
        return GRAPH

    @app.get("/v1/examples")
    async def examples() -> list[dict[str, Any]]:
        return [
            {
                "name": "medallion",
                "state": "none",
                "detail": "",
                "hours_left": 0,
                "sql": {},
                "title": "Shop",
                "about": "A shop",
            }
        ]

    @app.get("/v1/live")
    async def live() -> Response:
        said = 'retry: 60000\nevent: epochs\ndata: {"epoch": 1, "epochs": []}\n\n'
        return Response(said, media_type="text/event-stream")

    app.add_middleware(Guarded, credentials=app.state.credentials)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def console(store: SmallStore, browser: Any) -> Iterator[Watched]:
    with serving(store, Credentials(())) as url:
        watched = Watched(browser, url)
        yield watched
        watched.close()


def test_a_store_flows_into_its_projections_and_is_drawn_as_large_as_it_is(console: Watched) -> None:
    page = console.open("overview")
    assert page.locator("g.node.events").get_attribute("aria-label") == "event store events"
    assert page.locator("path.edge").count() == 1
    assert page.locator("g.node").count() == 2
    box, node = page.locator(".graph").bounding_box(), page.locator("g.node.events").bounding_box()
    assert node["height"] < 60
    assert box["x"] <= node["x"]
    last = page.locator("g.node.view").bounding_box()
    assert last["x"] + last["width"] <= box["x"] + box["width"]
    relations = console.open("view").inner_text("main")
    assert "event store" in relations
    assert "system table" in relations


def test_events_are_shown_newest_first_found_by_names_and_opened_by_a_click(console: Watched) -> None:
    page = console.open("events")
    rows = page.locator("tr[data-position]")
    assert [one.get_attribute("data-position") for one in rows.all()] == ["3", "2", "1"]
    assert all(word in rows.first.inner_text() for word in ("Account a0", "Counted", '{"user":"ann"}', "e2"))
    assert "At (UTC)" in page.inner_text("thead")
    page.get_by_label("Order").select_option("oldest")
    until(page, "document.querySelector('tr[data-position]').dataset.position === '1'")
    page.get_by_label("Aggregate id").fill("a1")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('tr[data-position]').length === 1")
    page.get_by_label("Aggregate type").fill("account")
    page.keyboard.press("Enter")
    page.get_by_text("there are Account").wait_for()
    page.get_by_label("Aggregate type").fill("")
    page.keyboard.press("Enter")
    page.locator("tr[data-position] .badge").first.click()
    until(page, "document.querySelector('#state')?.textContent.includes('\"n\": 1')")
    assert "version 1 · position 2" in page.inner_text("#at")
    assert "UTC" in page.inner_text("#at")
    assert '"event_id": "e1"' in page.inner_text("#event")


def test_nothing_is_run_where_definitions_are_not_taken(console: Watched) -> None:
    page = console.open("start")
    assert page.locator("#run-own").is_disabled()
    assert "takes no definitions" in page.inner_text("main")


@pytest.mark.parametrize(
    ("grants", "pages"),
    thinned(
        [
            (["read:*"], ["overview", "board", "sql", "changes", "view", "time"]),
            (["read:events"], ["overview", "board", "sql", "changes", "view", "time", "events"]),
            (["observe"], ["overview", "view", "runtime", "sources"]),
            (["read:dead_letters"], ["overview", "board", "sql", "changes", "view", "time", "letters"]),
        ],
        2,
    ),
    ids=str,
)
def test_the_menu_has_what_a_key_may_use_and_says_who_it_is(
    store: SmallStore, browser: Any, tmp_path: Path, grants: list[str], pages: list[str]
) -> None:
    _, key = create_key(tmp_path, "ann", [read_grant(one) for one in grants], "test")
    with serving(store, Credentials((), KeyRing(tmp_path), needed=True)) as url:
        watched = Watched(browser, url)
        page = watched.page
        page.goto(url)
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector(".page[data-ready=true]")
        watched.complaints.clear()
        assert [one.get_attribute("data-page") for one in page.locator("#nav a").all()] == pages
        assert page.inner_text("#who").split("\n")[0].startswith("ann")
        assert ", ".join(grants) in page.inner_text("#who")
        if "events" in pages:
            assert watched.open("events").locator("tr[data-position]").count() == 3
        for closed in FLAGS.keys() - set(pages):
            watched.open(closed)
            assert FLAGS[closed] in page.inner_text("[data-closed=true]")
            assert page.locator("main button").count() == 0
        watched.close()
