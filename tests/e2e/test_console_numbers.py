"""The console in a real browser over answers that are stood in for: long numbers, chosen letters, sessions that end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

import headrace.serving.console.pages as pages
from headrace.serving import problems
from headrace.settings import Settings
from tests.e2e.browser import CHROMIUM, MISSING, Watched, chromium, until
from tests.servers import listening

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
AT = "2026-11-17T20:00:00+00:00"
# The first whole number that JavaScript has no number for, and digits beyond those of a double.
LONG, LONGER = "9007199254740993", "0.12345678901234567890123"
# Neither side of its point has many.
SPLIT = "123456789.123456789"


def _relation(name: str, **more: Any) -> dict[str, Any]:
    told = {"name": name, "kind": "table", "system": False, "event_store": False, "reads": [], "incremental": True}
    return {**told, "rows": 1, "rate": 0.0, "columns": ["id"], "changed_epoch": 1, "changed_at": AT, **more}


def _source(name: str, **more: Any) -> dict[str, Any]:
    figures = dict.fromkeys(("received", "applied", "stale", "dead", "pending", "rows"), 0)
    told = {"name": name, "table": "", "tables": [], "state": "Running", "connector": "kafka", "location": "x/shop.*"}
    return {**told, **figures, "lag_records": 0, "lag_seconds": 0.0, "records_per_second": 0.0, "error": None, **more}


def _letter(name: str, source: str) -> dict[str, Any]:
    told = {"id": name, "source": source, "table": "t", "position": None, "stage": "text", "reason": "no number"}
    return {**told, "payload": "{}", "arrived_at": AT}


class Stage:
    """What a server would answer, and what it was asked."""

    def __init__(self) -> None:
        self.known = True
        self.live = 'retry: 60000\nevent: epochs\ndata: {"epoch": 1, "epochs": []}\n\n'
        self.asked: list[str] = []
        self.acted: list[Any] = []
        self.letters = [_letter("a", "one"), _letter("b", "one"), _letter("c", "two")]
        self.sources = [
            _source("whole", tables=["t", "u"], table=""),
            _source("fresh"),
            _source("broken", table="t", tables=["t"], state="Error", error="log_truncated"),
        ]
        app = self.app = FastAPI()
        app.state.service = SimpleNamespace(settings=Settings(), end=lambda: None)
        problems.install(app)

        @app.get("/console/session")
        async def session() -> dict[str, Any]:
            self.asked.append("session")
            return {"known": self.known, "needs_key": True, "signed_in": self.known, "who": "ann", "may": {}}

        @app.get("/v1/live")
        async def live() -> Response:
            self.asked.append("live")
            if not self.known:
                return JSONResponse({"message": "no key"}, 401)
            return Response(self.live, media_type="text/event-stream")

        @app.get("/v1/graph")
        async def graph() -> dict[str, Any]:
            relations = [_relation("t"), _relation("u"), _relation("happened", event_store=True)]
            kept = {"epoch": 1, "committed_at": AT, "oldest": 0, "relations": relations}
            return {**kept, "sources": self.sources, "feeds": []}

        @app.post("/v1/query")
        async def query() -> Response:
            rows = f'"rows": [{{"id": {LONG}, "n": {LONGER}, "m": 7, "inside": {{"id": -{LONG}}}}}]'
            columns = ", ".join(json.dumps({"name": name, "type": "bigint"}) for name in ("id", "n", "m", "inside"))
            return _json(f'{{"columns": [{columns}], {rows}, "truncated": false, "epoch": 1, "seconds": 0.1}}')

        @app.get("/v1/changes/t")
        async def changes() -> Response:
            said = f'{{"epoch": 1, "committed_at": "{AT}", "changes": [{{"_change_type": "insert", "id": {LONG}}}]}}'
            return Response(f"retry: 60000\nevent: changes\ndata: {said}\n\n", media_type="text/event-stream")

        @app.get("/v1/epochs")
        async def epochs(limit: int) -> dict[str, Any]:
            told = [{"epoch": number, "committed_at": AT} for number in range(limit)]
            return {"oldest": 0, "newest": limit - 1, "epochs": told}

        @app.get("/v1/relations/t/difference")
        async def difference() -> Response:
            rows = f'[{{"weight": 1, "row": {{"id": {LONG}}}}}]'
            return _json(f'{{"from": 0, "to": 1, "columns": ["id"], "rows": {rows}, "truncated": false}}')

        @app.get("/v1/events")
        async def events() -> Response:
            one = {"position": 1, "event_id": "e", "aggregate_type": "Account", "aggregate_id": "a", "event_version": 1}
            told = json.dumps({**one, "event_type": "Paid", "created_at": AT, "metadata": {}})[:-1]
            return _json(f'{{"events": [{told}, "event_data": {{"amount": {SPLIT}}}}}], "next": null}}')

        @app.get("/v1/dead-letters")
        async def letters(source: str | None = None) -> dict[str, Any]:
            return {"letters": [one for one in self.letters if source in (None, one["source"])], "next": None}

        @app.post("/v1/dead-letters/{verb}")
        async def act(verb: str, request: Request) -> dict[str, Any]:
            self.acted.append((verb, await request.json()))
            return {"epoch": 2, "dead": {}}

        @app.post("/v1/sources/{name}/{verb}")
        async def change(name: str, verb: str) -> dict[str, Any]:
            self.acted.append((name, verb))
            return {}

        app.include_router(pages.router)


def _json(text: str) -> Response:
    return Response(text, media_type="application/json")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def console(stage: Stage, browser: Any) -> Iterator[Watched]:
    with listening(stage.app) as (_, port):
        watched = Watched(browser, f"http://127.0.0.1:{port}")
        yield watched
        watched.close()


def test_long_numbers_have_all_of_their_digits_on_every_page(console: Watched) -> None:
    page = console.open("sql")
    page.locator("textarea").fill("SELECT * FROM t")
    page.locator("textarea").press("Control+Enter")
    page.wait_for_selector(f"text={LONG}")
    cells = page.locator(".grid .line span").all_inner_texts()
    assert cells == [LONG, LONGER, "7", f'{{"id":-{LONG}}}']
    page = console.open("changes/t")
    page.wait_for_selector(f".grid .line.insert >> text={LONG}")
    page = console.open("time/t")
    until(
        page,
        f"[...document.querySelectorAll('.grid .line')].filter((one) => one.textContent.includes('{LONG}')).length > 1",
    )
    page = console.open("events/happened")
    assert f'{{"amount":{SPLIT}}}' in page.inner_text("main")


def test_nothing_is_done_with_letters_that_are_not_shown(stage: Stage, console: Watched) -> None:
    page = console.open("letters")
    discard = page.get_by_role("button", name="Discard chosen")
    assert discard.is_disabled()
    for name in ("a", "c"):
        page.locator(f"tr[data-letter={name}] input").check()
    assert discard.inner_text() == "Discard chosen (2)"
    page.get_by_label("Source").fill("two")
    page.get_by_label("Source").press("Enter")
    page.wait_for_selector("tr[data-letter=a]", state="detached")
    assert discard.inner_text() == "Discard chosen (1)"
    discard.click()
    page.get_by_role("button", name="Cancel").click()
    assert stage.acted == []
    discard.click()
    page.locator("#confirm").click()
    page.wait_for_selector("text=Discarded")
    assert stage.acted == [("discard", {"ids": ["c"]})]


def test_a_session_that_has_ended_leads_to_the_sign_in_and_asks_no_more(stage: Stage, console: Watched) -> None:
    console.page.clock.install()
    page = console.open("overview")
    stage.known, before = False, stage.asked.count("live")
    page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
    # The stream that is open waits a minute before it asks again: another is opened as after a pause.
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange'));"
        " Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.wait_for_selector("form.signin")
    page.clock.fast_forward("10:00")
    page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")
    # What the page asks is answered in its order: the last is asked after all others.
    page.evaluate("() => fetch('/console/session').then((answer) => answer.text())")
    assert stage.asked.count("live") - before == 1
    # The browser itself says that it was refused.
    console.complaints[:] = [one for one in console.complaints if "401" not in one]


def test_a_page_of_time_that_is_open_for_long_holds_the_newest_epochs_alone(stage: Stage, console: Watched) -> None:
    told = [{"epoch": number, "committed_at": AT, "changes": {}} for number in range(2000, 2050)]
    stage.live = f"retry: 60000\nevent: epochs\ndata: {json.dumps({'epoch': 2049, 'epochs': told})}\n\n"
    page = console.open("time/t")
    page.evaluate(
        "() => { for (const hidden of [true, false]) {"
        " Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); } }"
    )
    until(page, "document.getElementById('shown').textContent.includes('2,049')")
    assert page.locator("#to").get_attribute("max") == "1999"
    assert page.locator("#to").input_value() == "1999"
    # The epoch that was compared with is the oldest that is left.
    assert "epoch 50 " in page.inner_text("main")


def test_sources_of_many_tables_flow_into_them_and_a_stopped_one_is_resumed(stage: Stage, console: Watched) -> None:
    page = console.open("overview")
    assert page.locator("g.node.source").count() == 3
    assert page.locator("path.edge").count() == 3
    page = console.open("sources")
    whole, fresh = page.locator("tr[data-source=whole]"), page.locator("tr[data-source=fresh]")
    assert [one.get_attribute("href") for one in whole.locator("a").all()] == ["#/view/t", "#/view/u"]
    assert fresh.locator("a").count() == 0
    assert whole.get_by_role("button").inner_text() == "Pause"
    page.locator("tr[data-source=broken]").get_by_role("button", name="Resume").click()
    page.wait_for_selector("text=broken: goes on")
    assert stage.acted == [("broken", "resume")]
