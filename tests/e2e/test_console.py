"""The console in a real browser, against one running medallion: every page, and what its buttons do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.browser import CHROMIUM, MISSING, Watched, chromium, until
from tests.e2e.conftest import Served, running
from tests.waiting import PATIENCE
from tests.waiting import until as wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
KEY = "a-key-for-the-console"
PAGES = (
    "start",
    "overview",
    "board",
    "sql/SELECT * FROM gold_inventory_risk",
    "changes/gold_order_status_summary/1",
    "view/gold_weekly_revenue_trend",
    "time",
    "runtime",
    "sources",
    "events",
    "letters",
)
DARK = ("overview", "board")
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def medallion(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Served]:
    """A home that is empty but for the example, which the first page of the console made."""
    import headrace

    folder = tmp_path_factory.mktemp("console")
    with (
        headrace.open(str(folder / "home"), spark=spark) as hr,
        running(hr, serve_definitions=True) as served,
    ):
        watched = Watched(browser, served.url)
        page = watched.page
        page.goto(served.url)
        page.get_by_role("button", name="Make the example").click()
        page.wait_for_selector("#ready", timeout=2 * PATIENCE * 1000)
        assert "48 hours left" in page.inner_text("main")
        watched.close()
        yield served


@pytest.fixture
def console(medallion: Served, browser: Any) -> Iterator[Watched]:
    watched = Watched(browser, medallion.url)
    yield watched
    watched.close()


def test_the_overview_shows_what_flows_and_moves_with_a_push(medallion: Served, console: Watched) -> None:
    page = console.open("overview")
    assert page.locator("g.node.source").count() == 7
    assert page.locator("g.node.table").count() == 7
    assert page.locator("g.node.view").count() == 15
    assert page.locator("path.edge").count() > 25
    before = medallion.client.get("/v1/graph").json()["epoch"]
    medallion.client.post("/v1/examples/medallion/push", json={}).raise_for_status()
    until(page, f"document.querySelector('.tile b').textContent == '{before + 1}'")
    page.locator("g.node", has_text="gold_order_status_summary").click()
    page.wait_for_url("**/#/view/gold_order_status_summary")


def test_the_frame_of_the_console_needs_no_script(medallion: Served, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(medallion.url, timeout=PATIENCE * 1000)
    assert page.locator("aside .brand").inner_text() == "Headrace"
    assert page.locator("header #live").is_visible()
    assert page.locator("main").inner_text() == "Loading"
    context.close()


def test_a_query_is_completed_run_and_kept(console: Watched) -> None:
    page = console.open("sql")
    area = page.get_by_label("SQL")
    area.fill("")
    area.press_sequentially("select order_status, order_count from gold_order_sta")
    page.wait_for_selector(".choices div[aria-selected=true]")
    area.press("Enter")
    assert area.input_value().endswith("gold_order_status_summary")
    area.press("Control+Enter")
    page.wait_for_selector(".grid .line")
    assert "delivered" in page.inner_text(".grid")
    assert re.search(r"\d rows of epoch \d", page.inner_text("[role=status].quiet"))
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    text = Path(download.value.path()).read_text()
    assert text.splitlines()[0] == '"order_status","order_count"'
    page.get_by_role("button", name="Plan").click()
    page.wait_for_selector("pre.explain")
    assert "Physical Plan" in page.inner_text("pre.explain")
    page.get_by_text("History").click()
    assert page.locator(".history button").count() == 1
    area.fill("select nothing from nowhere")
    area.press("Control+Enter")
    page.wait_for_selector(".problem")
    assert "nowhere" in page.inner_text(".problem")
    console.complaints.clear()


def test_a_query_can_be_cancelled(console: Watched) -> None:
    page = console.open("sql")
    page.get_by_label("SQL").fill("select count(*) from bronze_clickstream_events a cross join bronze_orders b")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("text=Cancelled.")


def test_a_change_arrives_is_coloured_and_waits_while_paused(medallion: Served, console: Watched) -> None:
    page = console.open("changes/bronze_suppliers")
    push(medallion, "bronze_suppliers", {"insert": supplier(9001, HOSTILE)})
    page.wait_for_selector(".line.insert")
    assert page.locator(".line.insert").first.inner_text().count(HOSTILE) == 1
    assert page.locator("main img, main script").count() == 0
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Pause").click()
    push(medallion, "bronze_suppliers", {"delete": {"supplier_id": 9001}})
    until(page, "document.querySelector('#told').textContent.includes('1 waiting')")
    assert page.locator(".line.delete").count() == 0
    page.get_by_role("button", name="Go on").click()
    page.wait_for_selector(".line.delete")
    page.get_by_label("Filter").fill("no such thing")
    until(page, "document.querySelectorAll('.grid .line').length == 0")
    page.get_by_label("Filter").fill("")
    page.get_by_label("Go on after this epoch").fill("1")
    page.get_by_role("button", name="Follow").click()
    until(page, "document.querySelectorAll('.grid .line').length >= 2")


def test_a_view_tells_its_rules_and_is_verified(console: Watched) -> None:
    page = console.open("view/gold_order_status_summary")
    rules = page.inner_text("#explain")
    assert "incremental" in rules
    assert "group by" in rules
    page.get_by_role("button", name="Verify now").click()
    page.wait_for_selector("#verdict")
    assert "Equal to its full recompute" in page.inner_text("#verdict")


def test_a_past_epoch_is_read_and_compared(medallion: Served, console: Watched) -> None:
    page = console.open("time/gold_order_status_summary")
    newest = page.get_attribute(".page[data-page=time]", "data-shown")
    assert newest is not None
    page.locator("#to").focus()
    page.keyboard.press("Home")
    first = page.evaluate("document.querySelector('#shown').textContent")
    until(page, f"document.querySelector('.page').dataset.shown != '{newest}'")
    page.locator("#from").focus()
    page.keyboard.press("End")
    page.wait_for_selector(".line.insert")
    page.wait_for_selector(".line.delete")
    epoch = int(re.sub(r"\D", "", first.split("·")[0]))
    rows = medallion.query("SELECT * FROM gold_order_status_summary", epoch=epoch).json()["rows"]
    shown = page.locator(".grid").first.inner_text()
    assert all(str(row["order_count"]) in shown for row in rows)


def test_the_board_moves_with_a_push(medallion: Served, console: Watched) -> None:
    page = console.open("board")
    assert page.locator("svg.chart").count() == 2
    epoch = int(page.get_attribute(".page", "data-epoch") or 0)
    before = page.inner_html("main")
    page.get_by_role("button", name="Push the next hour").click()
    # It goes by itself after some seconds.
    page.wait_for_selector(".toast")
    until(page, f"Number(document.querySelector('.page').dataset.epoch) > {epoch}")
    assert page.inner_html("main") != before
    # A supplier that delivers after 10,000 days: whatever it supplies is about to run out.
    assert page.inner_text("#tile-alerts b") == "0"
    push(medallion, "bronze_suppliers", {"insert": {**supplier(1, "Slow and Sons"), "lead_time_days": 10_000}})
    until(page, "document.querySelector('#tile-alerts b').textContent != '0'")
    assert "Slow and Sons" in page.inner_text("main")


def test_a_source_is_paused_and_a_letter_replayed(medallion: Served, console: Watched, tmp_path: Path) -> None:
    folder = tmp_path / "arriving"
    folder.mkdir()
    arrive(folder, "1.ndjson", json.dumps({"insert": supplier(9101, "A")}))
    sql = f"CREATE SOURCE arriving INTO bronze_suppliers FROM FILES '{folder}'"
    medallion.client.post("/v1/scripts", json={"sql": sql}).raise_for_status()
    page = console.open("sources")
    row = page.locator("tr[data-source=arriving]")
    row.locator(".badge", has_text="Running").wait_for()
    row.get_by_role("button", name="Pause").click()
    row.locator(".badge", has_text="Paused").wait_for()
    wait_until(lambda: medallion.client.get("/v1/sources/arriving").json()["state"] == "Paused")
    row.get_by_role("button", name="Resume").click()
    row.locator(".badge", has_text="Running").wait_for()
    arrive(folder, "2.ndjson", json.dumps({"insert": {**supplier(9102, "B"), "supplier_id": "not a number"}}))
    page = console.open("letters/arriving")
    page.wait_for_selector("tr[data-letter]")
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator("#payload").fill(json.dumps({"insert": supplier(9102, HOSTILE)}))
    page.locator("#replay").click()
    page.wait_for_selector("text=No dead letters")
    rows = medallion.asked("SELECT supplier_name FROM bronze_suppliers WHERE supplier_id = 9102")
    assert rows == [{"supplier_name": HOSTILE}]
    medallion.client.post("/v1/scripts", json={"sql": "DROP SOURCE arriving"}).raise_for_status()


def test_a_feed_is_paused_and_goes_on(medallion: Served, console: Watched, tmp_path: Path) -> None:
    folder = tmp_path / "sent"
    sql = f"CREATE CHANGEFEED statuses FOR TABLE gold_order_status_summary INTO FILES '{folder}'"
    medallion.client.post("/v1/scripts", json={"sql": sql}).raise_for_status()
    page = console.open("sources")
    row = page.locator("tr[data-feed=statuses]")
    row.locator(".badge", has_text="Running").wait_for()
    row.get_by_role("button", name="Pause").click()
    row.locator(".badge", has_text="Paused").wait_for()
    assert medallion.client.get("/v1/changefeeds/statuses").json()["state"] == "Paused"
    row.get_by_role("button", name="Resume").click()
    row.locator(".badge", has_text="Running").wait_for()
    page = console.open("overview")
    assert page.locator("g.node.feed").count() == 1


def test_an_aggregates_timeline_and_its_state_then(medallion: Served, console: Watched) -> None:
    sql = "CREATE EVENT STORE IF NOT EXISTS happened"
    medallion.client.post("/v1/scripts", json={"sql": sql}).raise_for_status()
    for name in ("Ada", "Ada Lovelace"):
        event = {"event_type": "Named", "event_data": {"name": name}}
        medallion.client.post("/v1/events/Customer/c1?store=happened", json=event).raise_for_status()
    page = console.open("events")
    page.get_by_text("Customer c1").first.click()
    until(page, "document.querySelector('#state')?.textContent.includes('Ada Lovelace')")
    page.locator("#moment").focus()
    page.keyboard.press("Home")
    until(page, "!document.querySelector('#state').textContent.includes('Lovelace')")
    assert '"name": "Ada"' in page.inner_text("#state")


def test_keys_of_the_keyboard_and_the_dark(console: Watched) -> None:
    page = console.open("overview")
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_selector(".page[data-page=runtime][data-ready=true]")
    assert page.locator("svg.chart").count() >= 2
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")


def test_pictures_of_every_page(medallion: Served, browser: Any) -> None:
    """Kept in docs/console where CONSOLE_PICTURES is set; all pages are drawn in the light, two of them in the dark."""
    kept = Path("docs/console") if os.environ.get("CONSOLE_PICTURES") else None
    for theme in ("light", "dark"):
        watched = Watched(browser, medallion.url, color_scheme=theme)
        for path in PAGES if theme == "light" else DARK:
            page = watched.open(path)
            name = path.partition("/")[0]
            if name == "sql":
                page.wait_for_selector(".grid .line")
            assert page.locator("main .problem").count() == 0, name
            if kept is not None:
                page.wait_for_timeout(700)
                file = kept / (f"{name}.png" if theme == "light" else f"{name}-dark.png")
                page.screenshot(path=str(file), clip={"x": 0, "y": 0, "width": 1360, "height": 780})
        watched.close()


def test_who_has_no_key_signs_in(medallion: Served, browser: Any) -> None:
    with running(medallion.hr, api_keys=[KEY]) as served:
        watched = Watched(browser, served.url)
        page = watched.page
        page.goto(f"{served.url}/#/overview")
        page.get_by_label("API key").fill("a-key-that-is-forged")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector(".problem")
        page.get_by_label("API key").fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_selector("g.node.view")
        (cookie,) = watched.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert KEY not in cookie["value"]
        assert page.evaluate("document.cookie") == ""
        token = cookie["value"]
        assert asked(served.url, token).status_code == 200
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("API key").wait_for()
        assert asked(served.url, token).status_code == 401
        watched.complaints.clear()
        watched.close()


def asked(url: str, token: str) -> httpx.Response:
    return httpx.get(f"{url}/v1/graph", headers={"Cookie": f"headrace_session={token}"}, timeout=PATIENCE)


def push(served: Served, table: str, change: dict[str, Any]) -> None:
    answer = served.push(table, json.dumps(change))
    assert answer.status_code == 200, answer.text


def supplier(number: int, name: str) -> dict[str, Any]:
    return {"supplier_id": number, "supplier_name": name, "updated_at": "2025-12-01T00:00:00Z"}


def arrive(folder: Path, name: str, text: str) -> None:
    """A file that is whole when it is seen."""
    (folder / f".{name}").write_text(text + "\n")
    os.replace(folder / f".{name}", folder / name)
