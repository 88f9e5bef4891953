"""The data API at a million rows, beside a bare FastAPI and psycopg handler of the same query in the same run.

Three servers answer for the newest 20 transactions of a user: the bare one and Headrace from the same table of a real
PostgreSQL, which a changefeed keeps, and Headrace straight from its state. Each is asked in turn as fast as it answers,
then at half of what it could. `make bench-api` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyspark

import headrace
from headrace import Settings, local
from headrace.serving.app import build_app
from headrace.serving.server import serving

FOLDER = Path(__file__).parent
INDEXES = "user_id; user_id, timestamp DESC"
TABLE = """
CREATE TABLE desk (transaction_id BIGINT PRIMARY KEY, user_id INT, amount DECIMAL(12, 2), merchant STRING,
                   status STRING, timestamp TIMESTAMP);
INSERT INTO desk SELECT id, CAST(id * 7919 % 50000 AS INT), CAST(id % 100000 AS DECIMAL(12, 2)) / 100,
    concat('merchant ', id % 50), 'settled', timestamp_seconds(1767225600 + id) FROM range({rows});
"""
FEED = f"""
CREATE CHANGEFEED serving FOR TABLE desk INTO POSTGRES 'env:DESK_TABLE'
    WITH (indexes = '{INDEXES}', batch_size = 50000, flush_interval_ms = 100)
"""
QUESTION = "/v1/data/desk?user_id=eq.{user}&order=timestamp.desc&limit=20"


def main() -> None:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    load_before = os.getloadavg()[0]
    with ExitStack() as opened:
        servers = opened.enter_context(local.start(kafka=False, connect=False))
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        os.environ["DESK_DSN"] = servers.postgres_dsn
        os.environ["DESK_TABLE"] = f"{servers.postgres_dsn}/desk"
        hr = opened.enter_context(headrace.open(Path(folder) / "home"))
        print(f"Writing {chosen.rows:,} rows and feeding them into PostgreSQL ...", flush=True)
        hr.execute(TABLE.format(rows=chosen.rows))
        hr.execute(FEED)
        wait_for_feed(servers.postgres_dsn, chosen.rows)
        table = opened.enter_context(serving(build_app(hr, Settings(data_postgres="env:DESK_DSN")))).url
        straight = opened.enter_context(serving(build_app(hr, Settings(data_indexes={"desk": INDEXES})))).url
        bare = opened.enter_context(bare_server())
        urls = {
            "bare": f"{bare}/transactions/user/{{user}}?limit=20",
            "table": table + QUESTION,
            "straight": straight + QUESTION,
        }
        refuse_different(urls)
        results = measured(urls, chosen.rounds, chosen.seconds)
    results["rows"] = chosen.rows
    results["load_before"] = load_before
    results["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "spark": pyspark.__version__}
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


def wait_for_feed(dsn: str, rows: int) -> None:
    """Until the table has all rows."""
    ends = time.monotonic() + 300
    with psycopg.connect(dsn, autocommit=True) as database:
        while True:
            made = database.execute("SELECT to_regclass('desk'), to_regclass('headrace_feeds')").fetchone()
            if made is not None and None not in made:
                whole = database.execute("SELECT scan IS NULL AND epoch IS NOT NULL FROM headrace_feeds").fetchone()
                count = database.execute("SELECT count(*) FROM desk").fetchone()
                if whole == (True,) and count == (rows,):
                    break
            if time.monotonic() > ends:
                raise SystemExit("the table is not filled after five minutes")
            time.sleep(1)
        database.execute("VACUUM ANALYZE desk")


@contextmanager
def bare_server() -> Generator[str, None, None]:
    """The bare handler, in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {**os.environ, "DESK_PORT": str(port)}
    process = subprocess.Popen([sys.executable, str(FOLDER / "api_bare.py")], env=given)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                httpx.get(f"{url}/transactions/user/1")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def refuse_different(urls: dict[str, str]) -> None:
    """All three must answer the same."""
    for user in (0, 7, 49_999):
        answers = {name: httpx.get(url.replace("{user}", str(user)), timeout=60).json() for name, url in urls.items()}
        ids = {
            name: [row["transaction_id"] for row in (found if name == "bare" else found["data"])]
            for name, found in answers.items()
        }
        if not ids["bare"] or ids["bare"] != ids["table"] or ids["bare"] != ids["straight"]:
            raise SystemExit(f"the answers for user {user} differ: {ids}")


def measured(urls: dict[str, str], rounds: int, seconds: float) -> dict[str, Any]:
    """What each server can do, in turn, and how long answers take at half of it."""
    for url in urls.values():
        load(url, 2)
    found: dict[str, list[float]] = {name: [] for name in urls}
    for _ in range(rounds):
        for name, url in urls.items():
            found[name].append(load(url, seconds)["per_second"])
    results: dict[str, Any] = {}
    for name, url in urls.items():
        capacity = statistics.median(found[name])
        half = load(url, 2 * seconds, capacity / 2)
        results[name] = {"capacity": capacity, "rounds": found[name], "half": half}
        told = f"at half of it p50 {half['p50_ms']:.1f} ms, p99 {half['p99_ms']:.1f} ms"
        print(f"{name:9} {capacity:7.0f}/s; {told}", flush=True)
    for name in ("table", "straight"):
        results[name]["of_bare"] = results[name]["capacity"] / results["bare"]["capacity"]
        print(f"{name}: {results[name]['of_bare']:.2f} of the bare handler")
    return results


def load(url: str, seconds: float, rate: float = 0.0) -> dict[str, Any]:
    """Ask a server for some seconds."""
    given = [sys.executable, str(FOLDER / "api_load.py"), url, "--seconds", str(seconds), "--rate", str(rate)]
    ran = subprocess.run(given, capture_output=True, text=True, timeout=seconds + 120, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr or ran.stdout)
    return json.loads(ran.stdout)


if __name__ == "__main__":
    main()
