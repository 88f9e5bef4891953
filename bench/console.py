"""The console on this machine: its first paint, a stream of a thousand rows a second, and what it costs an epoch.

    python bench/console.py [--hours 24] [--seconds 20] [--rows 1000] [--json FILE]

A server of its own is started over the packaged medallion, and a real Chromium opens the pages. Epochs with an open
console and without one alternate, so that whatever else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.e2e.browser import CHROMIUM, MISSING, Watched, chromium

FRAMES = """milliseconds => new Promise(done => {
  const begun = performance.now(); let last = begun, frames = 0, longest = 0, long = 0;
  (function frame() {
    const now = performance.now(), gap = now - last;
    last = now; frames += 1; longest = Math.max(longest, gap); if (gap > 200) long += 1;
    if (now - begun < milliseconds) requestAnimationFrame(frame);
    else done({frames, longest: Math.round(longest), long});
  })();
})"""
ROW = "CREATE TABLE streamed (id BIGINT PRIMARY KEY, name STRING, amount DECIMAL(10,2), note STRING)"


@contextmanager
def served() -> Iterator[httpx.Client]:
    """A server over a new home, in a process of its own."""
    command = [str(Path(sys.executable).parent / "headrace"), "serve", "--port", "0", "--definitions", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*command, "--home", f"{folder}/home"], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            with httpx.Client(base_url=url, timeout=300) as client:
                yield client
        finally:
            process.terminate()
            process.wait(120)


def first_paint(browser: Any, url: str) -> dict[str, Any]:
    """Milliseconds until something is seen, and until the graph is there, of browsers that know nothing yet."""
    paints: list[float] = []
    drawn: list[float] = []
    sent = 0
    for _ in range(7):
        watched = Watched(browser, url)
        begun = time.perf_counter()
        page = watched.page
        page.goto(f"{url}/#/overview")
        page.wait_for_selector("g.node")
        drawn.append((time.perf_counter() - begun) * 1000)
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        sent = page.evaluate("performance.getEntriesByType('resource').reduce((sum, one) => sum + one.transferSize, 0)")
        watched.close()
    return {
        "first_paint_ms": {"median": round(statistics.median(paints)), "most": round(max(paints))},
        "graph_ms": {"median": round(statistics.median(drawn)), "most": round(max(drawn))},
        "bytes": sent,
    }


def stream(browser: Any, client: httpx.Client, seconds: float, rows: int) -> dict[str, Any]:
    """So many rows a second into a relation that a page follows: do they all come, and does the page stay quick?"""
    client.post("/v1/scripts", json={"sql": ROW}).raise_for_status()
    url = str(client.base_url).rstrip("/")
    watched = Watched(browser, url)
    page = watched.open("changes/streamed")
    session = watched.context.new_cdp_session(page)
    session.send("Performance.enable")
    pushed = 0

    def push() -> None:
        nonlocal pushed
        begun = time.perf_counter()
        with httpx.Client(base_url=url, timeout=60) as sender:
            while (gone := time.perf_counter() - begun) < seconds:
                due = int(gone * rows) - pushed
                if due >= rows // 10:
                    made = [{"id": n, "name": f"row {n}", "amount": "12.50", "note": "x" * 40} for n in range(due)]
                    lines = "\n".join(json.dumps({"insert": {**one, "id": pushed + one["id"]}}) for one in made)
                    sender.post("/v1/ingress/streamed?wait=true", content=lines).raise_for_status()
                    pushed += due
                time.sleep(0.01)

    pushing = threading.Thread(target=push)
    pushing.start()
    before = busy_seconds(session)
    frames = page.evaluate(FRAMES, seconds * 1000)
    busy = (busy_seconds(session) - before) / seconds
    pushing.join()
    given_up_at = time.monotonic() + 30
    while (kept := shown_rows(page)) < pushed and time.monotonic() < given_up_at:
        page.wait_for_timeout(200)
    watched.close()
    figures = {"pushed": pushed, "shown": kept, "rows_per_second": round(pushed / seconds)}
    return {**figures, "busy_percent": round(busy * 100, 1), **frames}


def busy_seconds(session: Any) -> float:
    """For how long the page's own thread has worked, whatever else the machine does."""
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def shown_rows(page: Any) -> int:
    """How many rows the page says that it keeps."""
    return int("".join(letter for letter in page.inner_text("#told").split("rows")[0] if letter.isdigit()))


def epochs(browser: Any, client: httpx.Client, hours: int) -> dict[str, Any]:
    """The seconds of epochs with an open console and without one, in turns."""
    url = str(client.base_url).rstrip("/")
    taken: dict[str, list[float]] = {"open": [], "closed": []}
    for _ in range(4):
        client.post("/v1/examples/medallion/push", json={}).raise_for_status()
    for number in range(hours):
        which = "open" if number % 2 else "closed"
        watched = Watched(browser, url) if which == "open" else None
        if watched is not None:
            watched.open("overview")
        time.sleep(1.0)
        taken[which].append(client.post("/v1/examples/medallion/push", json={}).raise_for_status().json()["seconds"])
        if watched is not None:
            watched.close()
    medians = {name: statistics.median(values) for name, values in taken.items()}
    return {
        "epochs": {name: len(values) for name, values in taken.items()},
        "seconds": {name: round(value, 4) for name, value in medians.items()},
        "quickest": {name: round(min(values), 4) for name, values in taken.items()},
        "slower_by_percent": round((medians["open"] / medians["closed"] - 1) * 100, 1),
    }


def main() -> None:
    """Measure all three, and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hours", type=int, default=24, help="epochs of the medallion, half of them with a console")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rows", type=int, default=1000, help="rows a second of the stream")
    parser.add_argument("--json", type=Path, help="where the figures are written as well")
    options = parser.parse_args()
    if CHROMIUM is None:
        sys.exit(MISSING)
    with served() as client, chromium() as browser:
        client.post("/v1/examples/medallion/start", json={"scale": 0.01}).raise_for_status()
        while (state := client.get("/v1/examples").json()[0])["state"] != "ready":
            if state["state"] == "failed":
                sys.exit(state["detail"])
            time.sleep(1)
        figures = {"load": [round(one, 1) for one in os.getloadavg()]}
        figures |= first_paint(browser, str(client.base_url).rstrip("/"))
        figures["stream"] = stream(browser, client, options.seconds, options.rows)
        figures["epoch"] = epochs(browser, client, options.hours)
        figures["load_after"] = [round(one, 1) for one in os.getloadavg()]
    print(json.dumps(figures, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
