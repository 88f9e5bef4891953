"""Capture, measured on real servers: a backlog beside the usual pipeline, changes as they come, what they cost.

python bench/capture.py [--part backlog --part latency --part source-cpu --part readers] [--json FILE]

- backlog: changes of Debezium wait in Kafka. Headrace takes them into two tables, three views and the raw table;
  readStream, foreachBatch and MERGE take the same topics into two Delta tables, for no longer than --limit.
- latency: changes of a real PostgreSQL come through Debezium and Kafka, 500 a second, and are watched for in the views.
- source-cpu: what PostgreSQL uses for the same load, without anybody who captures it and with.
- readers: Structured Streaming and the consumer at the ledger's offsets, on one topic, up to the driver's hands.

Each part starts its own servers and writes its own figures, beside those that the file has of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyspark
from capture_database import database_cost, live
from capture_readers import readers
from capture_stream import PREFIX, TABLES, VIEWS, Shop, produce

import headrace
from headrace import local

_CUSTOMERS = 20_000
_PARTS = ("backlog", "latency", "source-cpu", "readers")


def main() -> None:
    """Measure, print, and keep it part by part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=_PARTS, action="append", help="only this; may be given more than once")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many changes the backlog has")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds after which either way is given up")
    parser.add_argument("--batch", type=int, default=200_000, help="records in a batch of the usual pipeline")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long changes of PostgreSQL are written")
    parser.add_argument("--rate", type=int, default=500, help="how many of them a second")
    parser.add_argument("--transactions", type=int, default=20_000, help="of the load that costs the database")
    parser.add_argument("--json", type=Path, help="where the figures are kept")
    chosen = parser.parse_args()
    for part in chosen.part or _PARTS:
        began = time.perf_counter()
        load = os.getloadavg()[0]
        figures = _measured(part, chosen)
        print(json.dumps({part: figures, "load_before": load}, indent=2), flush=True)
        print(f"{part}: {time.perf_counter() - began:.0f} s in all", flush=True)
        if chosen.json is not None:
            kept = json.loads(chosen.json.read_text()) if chosen.json.exists() else {}
            kept |= {"machine": _machine(), part: {**figures, "load_before": load}}
            chosen.json.write_text(json.dumps(kept, indent=2) + "\n")


def _measured(part: str, chosen: argparse.Namespace) -> dict[str, Any]:
    if part == "backlog":
        with local.start(connect=False, postgres=False) as servers:
            return backlog(servers, chosen.records, chosen.batch, chosen.limit)
    if part == "readers":
        with local.start(connect=False, postgres=False) as servers:
            return readers(servers, min(chosen.records, 200_000), min(chosen.seconds, 20.0), chosen.rate)
    with local.start() as servers:
        if part == "latency":
            return live(servers, chosen.seconds, chosen.rate)
        return database_cost(servers, chosen.transactions)


def backlog(servers: local.Servers, count: int, batch: int, limit: float) -> dict[str, Any]:
    """The same topics by Headrace and by the usual pipeline, one after the other."""
    for table in ("customers", "orders"):
        servers.create_topic(f"{PREFIX}.{table}", partitions=2)
    print(f"Writing {count:,} changes ...", flush=True)
    records = produce(servers.bootstrap, Shop(min(_CUSTOMERS, count // 10)), count)
    with tempfile.TemporaryDirectory() as folder:
        ours = _headrace(servers, Path(folder) / "home", records, limit)
        print(f"Headrace: {ours['taken'] * count / records / ours['seconds']:,.0f} changes/s", flush=True)
        merge = _merge(servers, Path(folder) / "merge", batch, limit)
    if merge["taken"] == ours["taken"] == records:
        assert merge["rows"] == ours["rows"], (merge["rows"], ours["rows"])
    # A tombstone is a record and no change, so that each way is judged by the share of the records that it took.
    for way in (ours, merge):
        way["changes_per_second"] = way["taken"] * count / records / way["seconds"]
    return {
        "changes": count,
        "records": records,
        "headrace": ours,
        "merge": merge,
        "faster_than_merge": ours["changes_per_second"] / merge["changes_per_second"],
    }


def _headrace(servers: local.Servers, home: Path, records: int, limit: float) -> dict[str, Any]:
    with headrace.open(home, pause_garbage_collection=True) as hr:
        hr.execute(TABLES)
        for name, query in VIEWS.items():
            hr.execute(f"CREATE VIEW {name} AS {query}")
        before = hr.epoch
        began = time.perf_counter()
        hr.execute(
            f"CREATE SOURCE shop FROM KAFKA '{servers.bootstrap}/{PREFIX}.*' "
            "WITH (format = 'debezium', decimal_mode = 'string')"
        )
        while True:
            shown: Any = hr.execute("SHOW SOURCES")
            (told,) = shown.to_pylist()
            seconds = time.perf_counter() - began
            taken = told["applied"] + told["stale"] + told["dead"]
            if taken >= records or seconds > limit:
                break
            assert told["state"] == "Running", told
            time.sleep(0.02)
        assert (told["stale"], told["dead"]) == (0, 0), told
        epochs = hr.epoch - before - 1
        rows = {name: _count(hr, name) for name in ("customers", "orders")}
        kept = {name: _count(hr, name) for name in (*VIEWS, "shop_raw")}
        if taken >= records:
            assert hr.verify().ok
        return {"seconds": seconds, "taken": taken, "epochs": epochs, "rows": rows, "kept": kept}


def _count(hr: headrace.Headrace, name: str) -> int:
    return int(hr.query(f"SELECT count(*) AS n FROM {name}").to_pylist()[0]["n"])


def _merge(servers: local.Servers, folder: Path, batch: int, limit: float) -> dict[str, Any]:
    script = Path(__file__).with_name("capture_merge.py")
    command = [sys.executable, str(script), servers.bootstrap, str(folder), str(batch), str(limit)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=limit + 120)
    return json.loads(done.stdout.strip().splitlines()[-1])


def _machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "spark": pyspark.__version__}


if __name__ == "__main__":
    main()
