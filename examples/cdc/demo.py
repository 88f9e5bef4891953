"""A shop's PostgreSQL, followed through Debezium and Kafka: what is written there is in two views within seconds.

Everything is embedded: a real PostgreSQL, a real Kafka with Debezium, and Headrace, all on this machine, all gone at
the end. Orders are written for some seconds; in the middle Debezium is killed and started again. At the end the views
must be what PostgreSQL itself computes. `make demo-cdc` runs it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

import headrace
from headrace import local

TABLES = """
CREATE TABLE customers (id INT PRIMARY KEY, name STRING, city STRING);
CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount DECIMAL(10, 2), written_at TIMESTAMP);
CREATE VIEW revenue_by_city AS
    SELECT c.city, sum(o.amount) AS revenue, count(*) AS orders
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.city;
CREATE VIEW large_orders AS SELECT id, customer, amount FROM orders WHERE amount > 90;
"""
SAME_IN_POSTGRES = {
    "revenue_by_city": "SELECT c.city, sum(o.amount), count(*) FROM orders o JOIN customers c ON o.customer = c.id"
    " GROUP BY c.city",
    "large_orders": "SELECT id, customer, amount FROM orders WHERE amount > 90",
}


def main() -> None:
    """Run it, and end with an error if a view is not what PostgreSQL says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long orders are written")
    parser.add_argument("--rate", type=int, default=200, help="how many changes a second")
    chosen = parser.parse_args()
    print("Starting PostgreSQL, Kafka and Debezium ...", flush=True)
    with (
        local.start() as servers,
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(servers.postgres_dsn, autocommit=True) as database,
    ):
        prepare(database)
        servers.capture("shop", ["public.customers", "public.orders"])
        print("Opening a home and following the database ...", flush=True)
        with headrace.open(Path(folder) / "home") as hr:
            hr.execute(TABLES)
            topics = f"{servers.bootstrap}/shop.public.*"
            hr.execute(f"CREATE SOURCE shop FROM KAFKA '{topics}' WITH (format = 'debezium')")
            wait_until_equal(hr, database)
            print("The snapshot is there. Writing orders ...", flush=True)
            follow(hr, servers, database, chosen.seconds, chosen.rate)


def prepare(database: psycopg.Connection[Any]) -> None:
    """The shop's tables, with some rows that were there before anybody followed them."""
    database.execute("CREATE TABLE customers (id INT PRIMARY KEY, name TEXT, city TEXT)")
    database.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount NUMERIC(10, 2),"
        " written_at TIMESTAMPTZ DEFAULT clock_timestamp())"
    )
    database.execute(
        "INSERT INTO customers SELECT n, 'customer ' || n, (ARRAY['Oslo', 'Rome', 'Lima', 'Kyiv'])[n % 4 + 1]"
        " FROM generate_series(1, 100) n"
    )
    database.execute("INSERT INTO orders SELECT n, n % 100 + 1, n % 100 FROM generate_series(1, 1000) n")


def follow(
    hr: headrace.Headrace, servers: local.Servers, database: psycopg.Connection[Any], seconds: float, rate: int
) -> None:
    """Write changes, kill Debezium among them, and compare."""
    before = hr.epoch
    killer = threading.Timer(seconds / 2, kill_and_start, (servers,))
    killer.start()
    written = write(database, seconds, rate)
    killer.join()
    wait_until_equal(hr, database)
    sources = hr.execute("SHOW SOURCES")
    assert isinstance(sources, pa.Table)
    (shown,) = sources.to_pylist()
    print(
        f"\n{written} changes were written, Debezium was killed among them, and both views equal PostgreSQL's answer."
    )
    print(
        f"received {shown['received']} = applied {shown['applied']} + stale {shown['stale']} + dead {shown['dead']} "
        f"+ pending {shown['pending']}"
    )
    delays = latencies(hr, before)
    print(f"From the write in PostgreSQL to the view, {len(delays)} orders, those behind the kill included:")
    cuts = statistics.quantiles(delays, n=100)
    print(f"  median {cuts[49]:.2f} s, 90th percentile {cuts[89]:.2f} s, 99th {cuts[98]:.2f} s")
    calm = [one for one in delays if one < seconds / 4] or delays
    print(f"  without those that waited for Debezium to come back: median {statistics.median(calm):.2f} s")


def kill_and_start(servers: local.Servers) -> None:
    """What nobody plans for."""
    print("  kill -9 of Debezium ...", flush=True)
    servers.restart_connect()
    print("  ... and it is back.", flush=True)


def write(database: psycopg.Connection[Any], seconds: float, rate: int) -> int:
    """New orders, changed ones and deleted ones, so many a second."""
    dice, begun, written, number = random.Random(1), time.monotonic(), 0, 10_000
    while (passed := time.monotonic() - begun) < seconds:
        if written > passed * rate:
            time.sleep(0.005)
            continue
        written += 1
        kind = dice.random()
        if kind < 0.7:
            number += 1
            database.execute(
                "INSERT INTO orders (id, customer, amount) VALUES (%s, %s, %s)",
                (number, dice.randint(1, 100), dice.randint(1, 10_000) / 100),
            )
        elif kind < 0.9:
            database.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (dice.randint(10_000, number + 1),))
        else:
            database.execute("DELETE FROM orders WHERE id = %s", (dice.randint(1, 1000),))
    return written


def wait_until_equal(hr: headrace.Headrace, database: psycopg.Connection[Any], seconds: float = 180.0) -> None:
    """Until every view is what PostgreSQL computes from its own tables."""
    ends = time.monotonic() + seconds
    while True:
        different = [
            name
            for name, sql in SAME_IN_POSTGRES.items()
            if held(hr, name) != sorted(tuple(row) for row in database.execute(sql.encode()))
        ]
        if not different:
            return
        if time.monotonic() > ends:
            raise SystemExit(f"{', '.join(different)} is not what PostgreSQL says after {seconds:g} seconds")
        time.sleep(0.2)


def held(hr: headrace.Headrace, name: str) -> list[tuple[Any, ...]]:
    """The rows of a view, in an order of their own."""
    return sorted(tuple(row.values()) for row in hr.query(f"SELECT * FROM {name}").to_pylist())


def latencies(hr: headrace.Headrace, since: int) -> list[float]:
    """For each new order, the seconds from its write to the epoch that brought it, and all views with it."""
    new = hr.query("SELECT id, written_at FROM orders WHERE id > 10000").to_pylist()
    written = {row["id"]: row["written_at"] for row in new}
    changes = hr.changes("orders", since=since).to_pylist()
    return [
        (one["_commit_timestamp"] - written[one["id"]]).total_seconds()
        for one in changes
        if one["_change_type"] == "insert" and one["id"] in written
    ]


if __name__ == "__main__":
    main()
