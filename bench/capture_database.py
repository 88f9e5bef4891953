"""A real PostgreSQL through Debezium and Kafka into views: how late changes are there, and what they cost it."""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psycopg

import headrace
from headrace import local

_MADE = """
CREATE TABLE accounts (id INT PRIMARY KEY, branch INT, balance BIGINT, written_at TIMESTAMP);
CREATE TABLE history (id BIGINT PRIMARY KEY, account INT, amount INT, written_at TIMESTAMP);
CREATE VIEW by_branch AS SELECT branch, count(*) AS n, sum(balance) AS balance FROM accounts GROUP BY branch;
CREATE VIEW moved AS
    SELECT a.branch, count(*) AS n, sum(h.amount) AS amount
    FROM history h JOIN accounts a ON h.account = a.id GROUP BY a.branch;
CREATE VIEW latest AS SELECT account, max(id) AS last FROM history GROUP BY account;
"""
_TABLES = ("public.accounts", "public.history")
_ACCOUNTS = 1_000


def live(servers: local.Servers, seconds: float, rate: int) -> dict[str, Any]:
    """Write so many changes a second, each a transaction of its own, and see when each is in the views."""
    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(servers.postgres_dsn, autocommit=True) as database,
        headrace.open(Path(folder) / "home", pause_garbage_collection=True) as hr,
    ):
        _make(database)
        servers.capture("bank", _TABLES)
        hr.execute(_MADE)
        hr.execute(f"CREATE SOURCE bank FROM KAFKA '{servers.bootstrap}/bank.public.*' WITH (format = 'debezium')")
        _write(database, 5.0, rate)
        _until(hr, database)
        seen: dict[int, float] = {}
        done = threading.Event()
        watch = threading.Thread(target=_watch, args=(hr, seen, done))
        watch.start()
        before = hr.epoch
        first = _count(database)
        written = _write(database, seconds, rate)
        _until(hr, database)
        done.set()
        watch.join()
        delays = [
            seen[row["_commit_version"]] - row["written_at"].timestamp()
            for row in hr.changes("history", since=before).to_pylist()
            if row["id"] > first and row["_commit_version"] in seen
        ]
        cuts = statistics.quantiles(delays, n=100)
        epochs = len([one for one in seen if one > before])
        return {
            "rate": rate,
            "seconds": seconds,
            "changes": written,
            "measured": len(delays),
            "epochs": epochs,
            "median": cuts[49],
            "p90": cuts[89],
            "p99": cuts[98],
            "largest": max(delays),
        }


def database_cost(servers: local.Servers, transactions: int) -> dict[str, Any]:
    """CPU seconds of PostgreSQL for the same load, before anybody captures it and while it is captured."""
    with psycopg.connect(servers.postgres_dsn, autocommit=True) as database:
        _make(database)
        pid = database.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'").fetchone()
        assert pid is not None
        postmaster = int(Path(f"/proc/{pid[0]}/stat").read_text().rpartition(")")[2].split()[1])
        found: dict[str, Any] = {"transactions": transactions}
        for name in ("without", "with"):
            if name == "with":
                servers.capture("cost", _TABLES)
                time.sleep(5)
            began = _cpu(postmaster)
            _load(servers.postgres_dsn, transactions)
            if name == "with":
                _caught_up(database)
            found[name] = _cpu(postmaster) - began
        return found | {"ratio": found["with"] / found["without"]}


def _make(database: psycopg.Connection[Any]) -> None:
    for table in ("accounts", "history"):
        database.execute(f"DROP TABLE IF EXISTS {table}".encode())
    database.execute("CREATE TABLE accounts (id INT PRIMARY KEY, branch INT, balance BIGINT, written_at TIMESTAMPTZ)")
    database.execute(
        "CREATE TABLE history (id BIGSERIAL PRIMARY KEY, account INT, amount INT,"
        " written_at TIMESTAMPTZ DEFAULT clock_timestamp())"
    )
    database.execute(f"INSERT INTO accounts SELECT n, n % 10, 0, now() FROM generate_series(1, {_ACCOUNTS}) n".encode())


def _write(database: psycopg.Connection[Any], seconds: float, rate: int) -> int:
    """Pairs of changes, as a bank makes them: an account is changed, and its history has a row more."""
    dice, begun, written = random.Random(1), time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        if written > passed * rate:
            time.sleep(0.002)
            continue
        _one(database, dice)
        written += 2
    return written


def _one(database: psycopg.Connection[Any], dice: random.Random) -> None:
    account, amount = dice.randint(1, _ACCOUNTS), dice.randint(-100, 100)
    database.execute(
        "WITH moved AS (UPDATE accounts SET balance = balance + %s, written_at = clock_timestamp() WHERE id = %s)"
        " INSERT INTO history (account, amount) VALUES (%s, %s)",
        (amount, account, account, amount),
    )


def _load(dsn: str, transactions: int) -> None:
    dice = random.Random(2)
    with psycopg.connect(dsn, autocommit=True) as database:
        for _ in range(transactions):
            _one(database, dice)


def _count(database: psycopg.Connection[Any]) -> int:
    row = database.execute("SELECT coalesce(max(id), 0) FROM history").fetchone()
    return int(row[0]) if row else 0


def _watch(hr: headrace.Headrace, seen: dict[int, float], done: threading.Event) -> None:
    """When each epoch could first be read."""
    last = hr.epoch
    while not done.is_set():
        now = hr.epoch
        if now != last:
            at = time.time()
            seen.update(dict.fromkeys(range(last + 1, now + 1), at))
            last = now
        time.sleep(0.001)


def _until(hr: headrace.Headrace, database: psycopg.Connection[Any], seconds: float = 180) -> None:
    """Until the views have all that was written."""
    ends = time.monotonic() + seconds
    wanted = database.execute("SELECT count(*), coalesce(sum(amount), 0) FROM history").fetchone()
    while True:
        got = hr.query("SELECT coalesce(sum(n), 0) AS n, coalesce(sum(amount), 0) AS a FROM moved").to_pylist()[0]
        if wanted is not None and (int(got["n"]), int(got["a"])) == (int(wanted[0]), int(wanted[1])):
            return
        assert time.monotonic() < ends, (got, wanted, hr.execute("SHOW SOURCES"))
        time.sleep(0.3)


def _caught_up(database: psycopg.Connection[Any]) -> None:
    """Until every slot has been sent all that there is."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        row = database.execute(
            "SELECT bool_and(sent_lsn >= (SELECT pg_current_wal_flush_lsn())) FROM pg_stat_replication"
        ).fetchone()
        if row and row[0]:
            return
        time.sleep(0.2)


def _cpu(postmaster: int) -> float:
    """CPU seconds of a server's processes so far, those that have ended included."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parts = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(folder.name) == postmaster:
            # Its own, and those of the children that it has seen end.
            ticks += sum(map(int, parts[11:15]))
        elif int(parts[1]) == postmaster:
            ticks += sum(map(int, parts[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")
