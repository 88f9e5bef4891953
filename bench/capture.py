"""Capture, measured within one run on one real Kafka: a backlog, beside the usual pipeline, and changes as they come.

python bench/capture.py [--records 1000000] [--seconds 60] [--json bench/results/capture.json]

A backlog of Debezium's changes goes into two tables, three views and the raw table by Headrace, and into two Delta
tables by readStream, foreachBatch and MERGE. Then changes of a real PostgreSQL come through Debezium, 500 a second.
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
from capture_stream import PREFIX, TABLES, VIEWS, Shop, produce

import headrace
from headrace import local

_CUSTOMERS = 20_000


def main() -> None:
    """Measure, print, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="how many changes the backlog has")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long changes of PostgreSQL are written")
    parser.add_argument("--rate", type=int, default=500, help="how many of them a second")
    parser.add_argument("--transactions", type=int, default=20_000, help="of the load that costs the database")
    parser.add_argument("--batch", type=int, default=200_000, help="records in a batch of the usual pipeline")
    parser.add_argument("--only", choices=["backlog", "live"], help="a part of it")
    parser.add_argument("--json", type=Path, help="where the figures are kept")
    chosen = parser.parse_args()
    found: dict[str, Any] = {"machine": _machine()}
    if chosen.only != "live":
        with local.start(connect=False, postgres=False) as servers:
            found["backlog"] = backlog(servers, chosen.records, chosen.batch)
        print(json.dumps(found["backlog"], indent=2), flush=True)
    if chosen.only != "backlog":
        with local.start() as servers:
            found["database"] = database_cost(servers, chosen.transactions)
        print(json.dumps(found["database"], indent=2), flush=True)
        with local.start() as servers:
            found["live"] = live(servers, chosen.seconds, chosen.rate)
        print(json.dumps(found["live"], indent=2), flush=True)
    if chosen.json is not None:
        kept = json.loads(chosen.json.read_text()) if chosen.only and chosen.json.exists() else {}
        chosen.json.write_text(json.dumps({**kept, **found}, indent=2) + "\n")


def backlog(servers: local.Servers, count: int, batch: int) -> dict[str, Any]:
    """The same topics by Headrace and by the usual pipeline, one after the other."""
    for table in ("customers", "orders"):
        servers.create_topic(f"{PREFIX}.{table}", partitions=2)
    print(f"Writing {count:,} changes ...", flush=True)
    records = produce(servers.bootstrap, Shop(min(_CUSTOMERS, count // 10)), count)
    with tempfile.TemporaryDirectory() as folder:
        ours = _headrace(servers, Path(folder) / "home", records)
        print(f"Headrace: {count / ours['seconds']:,.0f} changes/s", flush=True)
        merge = _merge(servers, Path(folder) / "merge", batch)
    assert merge["rows"] == ours["rows"], (merge["rows"], ours["rows"])
    return {
        "changes": count,
        "records": records,
        "headrace": {**ours, "changes_per_second": count / ours["seconds"]},
        "merge": {**merge, "changes_per_second": count / merge["seconds"]},
        "faster_than_merge": merge["seconds"] / ours["seconds"],
    }


def _headrace(servers: local.Servers, home: Path, records: int) -> dict[str, Any]:
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
            (told,) = hr.execute("SHOW SOURCES").to_pylist()  # pyright: ignore[reportAttributeAccessIssue]
            if told["applied"] + told["stale"] + told["dead"] >= records:
                break
            assert told["state"] == "Running", told
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        assert (told["stale"], told["dead"]) == (0, 0), told
        rows = {name: _count(hr, name) for name in ("customers", "orders")}
        kept = {name: _count(hr, name) for name in (*VIEWS, "shop_raw")}
        assert hr.verify().ok
        return {"seconds": seconds, "epochs": hr.epoch - before - 1, "rows": rows, "kept": kept}


def _count(hr: headrace.Headrace, name: str) -> int:
    return int(hr.query(f"SELECT count(*) AS n FROM {name}").to_pylist()[0]["n"])


def _merge(servers: local.Servers, folder: Path, batch: int) -> dict[str, Any]:
    script = Path(__file__).with_name("capture_merge.py")
    command = [sys.executable, str(script), servers.bootstrap, str(folder), str(batch)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def _machine() -> dict[str, Any]:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "spark": pyspark.__version__}


if __name__ == "__main__":
    main()
