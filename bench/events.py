"""Event stores, measured: durable appends from 8 clients, one append alone, a replay, and states with snapshots.

python bench/events.py [--seconds 20] [--replay 1000000] [--long 10000] [--json FILE]

- batches: 8 threads append batches of 50 events each, to aggregates of their own, over one projection; each append
  returns when its epoch is synced to disk and the projection is current.
- single: one client appends one event after the other, with the projection and without any view.
- replay: so many events are there, and CREATE PROJECTION makes a fresh projection of all of them.
- state: an aggregate of so many events, its state by all of them and by a snapshot.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

import headrace

CLIENTS = 8
BATCH = 50
PROJECTION = """CREATE PROJECTION {name} FOR EVENT STORE events AGGREGATE TYPE '{kind}'
    (name STRING, email STRING, city STRING FROM '$.address.city', visits BIGINT) DELETED BY '{kind}Deleted'"""


def event(number: int) -> dict[str, Any]:
    """An event as applications have them."""
    data = {"email": f"user{number}@example.com", "visits": number, "address": {"city": f"city-{number % 100}"}}
    return {"event_type": "CustomerChanged", "event_data": data, "metadata": {"user": f"u{number % 50}"}}


def batches(store: headrace.EventStore, seconds: float) -> dict[str, float]:
    """Events a second that 8 clients have acknowledged, each in batches."""
    store.append("Customer", "warm", [event(n) for n in range(BATCH)])
    until = time.perf_counter() + seconds
    counts, waits = [0] * CLIENTS, [list[float]() for _ in range(CLIENTS)]

    def client(number: int) -> None:
        turn = 0
        while time.perf_counter() < until:
            began = time.perf_counter()
            store.append("Customer", f"c{number}-{turn % 50}", [event(turn * BATCH + n) for n in range(BATCH)])
            waits[number].append(time.perf_counter() - began)
            counts[number] += BATCH
            turn += 1

    began = time.perf_counter()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    listed = [one for each in waits for one in each]
    return {"events_per_second": sum(counts) / took, "events": sum(counts), "append_p95": percentile(listed)}


def single(store: headrace.EventStore, seconds: float) -> dict[str, float]:
    """How long one append of one event takes."""
    waits: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        store.append("Customer", f"s{len(waits) % 100}", [event(len(waits))])
        waits.append(time.perf_counter() - began)
    return {"median": statistics.median(waits), "p95": percentile(waits), "appends": len(waits)}


def percentile(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[math.ceil(len(values) * 0.95) - 1] if values else 0.0


def replay(hr: headrace.Headrace, store: headrace.EventStore, count: int) -> dict[str, float]:
    """A fresh projection of very many events, and the same while the old one serves, which it then replaces."""
    began = time.perf_counter()
    for start in range(0, count, 50_000):
        store.append_many(
            [
                {
                    "aggregate_type": "Account",
                    "aggregate_id": f"a{start // 50 + one}",
                    "events": events(start + one * 50),
                }
                for one in range(1000)
            ]
        )
    loaded = time.perf_counter() - began
    took: list[float] = []
    for number in range(2):
        began = time.perf_counter()
        hr.execute(PROJECTION.format(name=f"accounts{number}", kind="Account"))
        took.append(time.perf_counter() - began)
    rows = hr.query("SELECT count(*) AS n FROM accounts1").to_pylist()[0]["n"]
    assert rows == count // 50, rows
    return {
        "events": count,
        "load_seconds": loaded,
        "seconds": took[1],
        "first_seconds": took[0],
        "events_per_second": count / took[1],
    }


def events(begin: int) -> list[dict[str, Any]]:
    """Fifty events in a row."""
    return [event(begin + n) for n in range(50)]


def states(store: headrace.EventStore, count: int) -> dict[str, float]:
    """The state of a long aggregate by all events and by a snapshot."""
    for start in range(0, count, 1000):
        store.append("Long", "one", [event(start + n) for n in range(1000)])
    whole = measured(lambda: store.state("Long", "one", snapshots=False))
    assert store.snapshot("Long", "one")
    store.append("Long", "one", [event(count)])
    short = measured(lambda: store.state("Long", "one"))
    assert store.state("Long", "one") == store.state("Long", "one", snapshots=False)
    return {"events": count, "without": whole, "with": short, "faster": whole / short}


def measured(run: Callable[[], object], times: int = 20) -> float:
    """The median of some runs, after some to warm up."""
    for _ in range(3):
        run()
    took: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def main() -> None:
    """Measure, print, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--replay", type=int, default=1_000_000)
    parser.add_argument("--long", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        with headrace.open(Path(folder) / "home", pause_garbage_collection=True) as hr:
            hr.execute("CREATE EVENT STORE events WITH (snapshot_events = 0)")
            store = hr.events("events")
            figures["single_without_views"] = single(store, chosen.seconds / 2)
            _told("single_without_views", figures)
            hr.execute(PROJECTION.format(name="customers", kind="Customer"))
            single(store, chosen.seconds / 2)
            figures["single"] = single(store, chosen.seconds)
            _told("single", figures)
            batches(store, chosen.seconds / 2)
            figures["batches"] = batches(store, chosen.seconds)
            _told("batches", figures)
            figures["state"] = states(store, chosen.long)
            _told("state", figures)
            assert hr.verify().ok
        with headrace.open(Path(folder) / "other", pause_garbage_collection=True) as hr:
            hr.execute("CREATE EVENT STORE events WITH (snapshot_events = 0)")
            figures["replay"] = replay(hr, hr.events("events"), chosen.replay)
            _told("replay", figures)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "spark": pyspark.__version__}
    if chosen.json is not None:
        kept = {"machine": machine, "load_before": load, **figures}
        chosen.json.write_text(json.dumps(kept, indent=2) + "\n")


def _told(part: str, figures: dict[str, Any]) -> None:
    print(part, json.dumps(figures[part]), f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
