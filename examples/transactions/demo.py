"""A support desk: transactions from Kafka, joined with their users, in PostgreSQL and behind an API within seconds.

Everything is embedded: a real Kafka and a real PostgreSQL on this machine, gone at the end. A front end of another
process sends transactions for some seconds and asks the API for them. At the end every answer of the API, and the Delta
table that the view is published as, must be what plain Python computes from what was sent. `make demo-transactions`
runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from deltalake import DeltaTable
from desk import RELATION, TABLES, desk_app

import headrace
from headrace import Headrace, Settings, local
from headrace.serving.server import serving

FOLDER = Path(__file__).parent
FLOW = """
CREATE SOURCE users INTO users FROM KAFKA '{bootstrap}/users' WITH (format = 'raw', raw = FALSE);
CREATE SOURCE transactions INTO transactions FROM KAFKA '{bootstrap}/transactions' WITH (format = 'raw', raw = FALSE);
CREATE CHANGEFEED desk FOR TABLE support_desk INTO POSTGRES 'env:DESK_TABLE'
    WITH (keys = 'transaction_id', indexes = 'user_id; user_id, timestamp DESC', batch_size = 10000,
          flush_interval_ms = 100);
"""
Row = dict[str, Any]


def main() -> None:
    """Run it, and end with an error if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long transactions are sent")
    parser.add_argument("--rate", type=int, default=200, help="how many a second")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    print("Starting Kafka and PostgreSQL ...", flush=True)
    with local.start(connect=False) as servers, tempfile.TemporaryDirectory() as folder:
        for topic in ("users", "transactions"):
            servers.create_topic(topic)
        # What may hold a password is named, and stands in no statement and no setting.
        os.environ["DESK_DSN"] = servers.postgres_dsn
        os.environ["DESK_TABLE"] = f"{servers.postgres_dsn}/{RELATION}"
        settings = Settings(data_postgres="env:DESK_DSN")
        with headrace.open(Path(folder) / "home", settings=settings) as hr:
            hr.execute(TABLES)
            hr.execute(FLOW.format(bootstrap=servers.bootstrap))
            with serving(desk_app(hr, settings)) as server:
                url = server.url
                print(f"The desk's API is at {url}/transactions/user/1. Sending transactions ...", flush=True)
                sent = send(servers.bootstrap, url, Path(folder) / "sent.json", chosen.seconds, chosen.rate)
                figures = told(sent["delays"], chosen.rate)
                expected = joined(sent)
                wait_until_equal(url, expected)
                compare_delta(hr, Path(folder) / "home" / "tables" / RELATION, expected)
                rows = sum(map(len, expected.values()))
                print(f"{rows} transactions of {len(expected)} users: API and Delta table have what was sent, joined.")
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


def send(bootstrap: str, url: str, out: Path, seconds: float, rate: int) -> dict[str, Any]:
    """Have the front end do its work; what it sent, and how long some of it took."""
    given = ["--bootstrap", bootstrap, "--api", url, "--seconds", str(seconds), "--rate", str(rate), "--out", str(out)]
    subprocess.run([sys.executable, str(FOLDER / "front_end.py"), *given], check=True, timeout=seconds + 300)
    return json.loads(out.read_text())


def joined(sent: dict[str, Any]) -> dict[int, list[Row]]:
    """What the desk must see of each user, newest first, from what was sent and nothing else."""
    users = {row["user_id"]: row for row in sent["users"]}
    by_user: defaultdict[int, list[Row]] = defaultdict(list)
    for row in sent["transactions"]:
        by_user[row["user_id"]].append({**row, **users[row["user_id"]]})
    for rows in by_user.values():
        rows.sort(key=lambda row: row["transaction_id"])
        rows.sort(key=lambda row: row["timestamp"], reverse=True)
    return dict(by_user)


def wait_until_equal(url: str, expected: dict[int, list[Row]], seconds: float = 60.0) -> None:
    """Until the API answers for every user with what is expected, page by page."""
    with httpx.Client(base_url=url, timeout=30) as client:
        ends = time.monotonic() + seconds
        for user, rows in expected.items():
            while (found := pages(client, user)) != rows:
                if time.monotonic() > ends:
                    raise SystemExit(f"the API's answer for user {user} is wrong: {found} instead of {rows}")
                time.sleep(0.2)


def pages(client: httpx.Client, user: int, limit: int = 7) -> list[Row]:
    """All transactions of a user, by limit and offset."""
    found: list[Row] = []
    while True:
        answer = client.get(f"/transactions/user/{user}", params={"limit": limit, "offset": len(found)}).json()
        found += answer["data"]
        if not answer["has_more"]:
            return found


def compare_delta(hr: Headrace, path: Path, expected: dict[int, list[Row]]) -> None:
    """The view is a Delta table as well, which any engine reads; it must hold the same."""
    hr.fold()
    held = pa.table(DeltaTable(path).to_pyarrow_table()).to_pylist()
    found = {row["transaction_id"]: (row["user_id"], row["name"], row["amount"], row["timestamp"]) for row in held}
    wanted = {
        row["transaction_id"]: (
            row["user_id"],
            row["name"],
            Decimal(row["amount"]),
            datetime.fromisoformat(row["timestamp"]),
        )
        for rows in expected.values()
        for row in rows
    }
    if found != wanted or len(held) != len(wanted):
        raise SystemExit(f"the Delta table has {len(held)} rows, and {len(wanted)} are expected")


def told(delays: list[float], rate: int) -> dict[str, Any]:
    """Print how long transactions took to get there."""
    cuts = statistics.quantiles(delays, n=100)
    print(f"From the send to Kafka to the API's answer at {rate} transactions a second ({len(delays)} watched):")
    print(f"  median {cuts[49]:.2f} s, 95th percentile {cuts[94]:.2f} s, largest {max(delays):.2f} s", flush=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load_after": round(os.getloadavg()[0], 1)}
    figures = {"rate": rate, "watched": len(delays), "p50": cuts[49], "p95": cuts[94], "largest": max(delays)}
    return {**figures, "machine": machine}


if __name__ == "__main__":
    main()
