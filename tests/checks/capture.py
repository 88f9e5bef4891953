"""Capture under kills: `python -m tests.checks.capture --minutes 10 --kills 20` runs pgbench and kills what carries it.

A real PostgreSQL under pgbench is followed into a home, through Debezium and Kafka, or by Debezium's connector alone
(`--way engine`). At random instants one part of it is killed with kill -9 and started again: the connector, the broker,
or the process that owns the home; by Debezium's connector alone, also while the accounts are read once more between
their changes (`SNAPSHOT SOURCE`, before every other kill). At the end every table must be PostgreSQL's row by row, each
event must have been kept once, and what was received must be what was applied, stale or dead.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import psycopg
import pyarrow as pa

import headrace
from headrace import local
from headrace.local.packages import postgres_files

TABLES = """
CREATE TABLE IF NOT EXISTS pgbench_accounts (aid INT PRIMARY KEY, bid INT, abalance INT, filler STRING);
CREATE TABLE IF NOT EXISTS pgbench_tellers (tid INT PRIMARY KEY, bid INT, tbalance INT, filler STRING);
CREATE TABLE IF NOT EXISTS pgbench_branches (bid INT PRIMARY KEY, bbalance INT, filler STRING);
CREATE TABLE IF NOT EXISTS pgbench_history
    (id BIGINT PRIMARY KEY, tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP, filler STRING);
CREATE VIEW IF NOT EXISTS by_branch AS
    SELECT bid, sum(delta) AS moved, count(*) AS moves FROM pgbench_history GROUP BY bid;
"""
COLUMNS = {
    "pgbench_accounts": "aid, bid, abalance",
    "pgbench_tellers": "tid, bid, tbalance",
    "pgbench_branches": "bid, bbalance",
    "pgbench_history": "id, tid, bid, aid, delta",
}
SOURCE = "bench"
PASSWORD = "CAPTURE_CHECK_PASSWORD"
# Kills come this far apart at least, so that what was killed has a chance to come back to work.
_APART_SECONDS = 4.0
_SETTLE_SECONDS = 300.0


@dataclass
class Owner:
    """The process that owns the home; killed and started again."""

    home: Path
    statement: str
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.checks.capture", "--own", str(self.home), "--statement", self.statement],
                env={**os.environ, **self.environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )

    def tell(self, statement: str) -> None:
        """Have it run a statement, whenever it is through with those before."""
        assert self.process is not None
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(statement.encode() + b"\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def engines(self) -> list[int]:
        """The connectors that run as its children."""
        assert self.process is not None
        found: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and b"Engine.java" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found


@dataclass
class Figures:
    """What was done, for the last line."""

    kills: dict[str, int] = field(default_factory=dict[str, int])
    transactions: int = 0
    snapshots: int = 0
    settled_seconds: float = 0.0


def own(home: str, statement: str) -> None:
    """Own a home until somebody kills it, or closes its input, and run the statements that come there."""
    with headrace.open(home) as hr:
        hr.execute(TABLES)
        hr.execute(statement)
        print("owned", flush=True)
        for line in sys.stdin:
            hr.execute(line)
            print(f"ran {line.strip()}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 1 if a row, an event or a count is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.capture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--way", choices=("kafka", "engine"), default="kafka")
    parser.add_argument("--rate", type=int, default=50, help="transactions a second, of four changes each")
    parser.add_argument("--scale", type=int, default=1, help="100,000 accounts each")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--own", help=argparse.SUPPRESS)
    parser.add_argument("--statement", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.own:
        own(chosen.own, chosen.statement)
        return 0
    seed = chosen.seed if chosen.seed is not None else int(time.time())
    print(f"seed {seed}, way {chosen.way}", flush=True)
    through_kafka = chosen.way == "kafka"
    with (
        local.start(kafka=through_kafka, connect=through_kafka) as servers,
        tempfile.TemporaryDirectory(prefix="headrace-capture-") as folder,
    ):
        findings = run(servers, Path(folder), chosen, random.Random(seed))
    for finding in findings:
        print(f"WRONG: {finding}", flush=True)
    return 1 if findings else 0


def run(servers: local.Servers, folder: Path, chosen: argparse.Namespace, dice: random.Random) -> list[str]:
    """Load, follow, kill, and compare."""
    url = urlsplit(servers.postgres_dsn)
    pgbench(servers, "-i", "-q", "-s", str(chosen.scale)).wait()
    with psycopg.connect(servers.postgres_dsn, autocommit=True) as database:
        # Its rows have no key of their own, and would be a heap that no two can compare.
        database.execute("ALTER TABLE pgbench_history ADD COLUMN id BIGSERIAL PRIMARY KEY")
        tables = [f"public.{name}" for name in COLUMNS]
        if chosen.way == "kafka":
            servers.capture(SOURCE, tables)
            statement = (
                f"CREATE SOURCE IF NOT EXISTS {SOURCE} FROM KAFKA '{servers.bootstrap}/{SOURCE}.public.*' "
                "WITH (format = 'debezium')"
            )
        else:
            where = f"postgresql://{url.username}@{url.hostname}:{url.port}{url.path}"
            statement = (
                f"CREATE SOURCE IF NOT EXISTS {SOURCE} FROM POSTGRES '{where}' "
                f"WITH (tables = '{', '.join(tables)}', password = 'env:{PASSWORD}', heartbeat_seconds = 5)"
            )
        os.environ[PASSWORD] = str(url.password)
        owner = Owner(folder / "home", statement, {PASSWORD: str(url.password)}, folder / "owner.log")
        owner.start()
        figures = Figures()
        load = pgbench(servers, "-T", str(int(chosen.minutes * 60)), "-R", str(chosen.rate), "-c", "2", "-j", "1")
        try:
            kill_parts(servers, owner, chosen, dice, figures)
        finally:
            said = load.communicate()[0].decode()
            owner.kill()
        figures.transactions = _processed(said)
        return compare(servers, database, owner, chosen, figures)


def pgbench(servers: local.Servers, *options: str) -> subprocess.Popen[bytes]:
    """PostgreSQL's own bench, against the server."""
    url = urlsplit(servers.postgres_dsn)
    where = ["-h", str(url.hostname), "-p", str(url.port), "-U", str(url.username), url.path.lstrip("/")]
    return subprocess.Popen(
        [str(postgres_files().program("pgbench")), *options, *where],
        env={**os.environ, "PGPASSWORD": str(url.password)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def kill_parts(
    servers: local.Servers, owner: Owner, chosen: argparse.Namespace, dice: random.Random, figures: Figures
) -> None:
    """Kill one part after the other, spread over the time, each at a random instant."""
    begun, share = time.monotonic(), chosen.minutes * 60 / (chosen.kills + 1)
    parts: list[tuple[str, Callable[[], None]]] = [("headrace", lambda: _restart_owner(owner))]
    if chosen.way == "kafka":
        parts += [("connector", servers.restart_connect), ("broker", servers.restart_broker)]
    else:
        parts.append(("connector", lambda: _kill_engines(owner)))
    for number in range(chosen.kills):
        at = begun + share * (number + 1) + dice.uniform(-0.4, 0.4) * max(0.0, share - _APART_SECONDS)
        time.sleep(max(0.0, at - time.monotonic()))
        # Each part has its turn, in an order that nobody knows.
        name, kill = parts[number % len(parts)] if number < len(parts) else dice.choice(parts)
        if chosen.way == "engine" and number % 2:
            # Killed a moment later, it must go on with what it had read, or begin anew, and lose no change for it.
            owner.tell(f"SNAPSHOT SOURCE {SOURCE} TABLE 'public.pgbench_accounts'")
            time.sleep(dice.uniform(0.5, 3.0))
            name_told, figures.snapshots = f"{name}, in a snapshot", figures.snapshots + 1
        else:
            name_told = name
        print(f"{time.monotonic() - begun:6.1f} s  kill -9: {name_told}", flush=True)
        kill()
        figures.kills[name] = figures.kills.get(name, 0) + 1


def _restart_owner(owner: Owner) -> None:
    owner.kill()
    owner.start()


def _kill_engines(owner: Owner) -> None:
    for pid in owner.engines():
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def compare(
    servers: local.Servers,
    database: psycopg.Connection[Any],
    owner: Owner,
    chosen: argparse.Namespace,
    figures: Figures,
) -> list[str]:
    """What is not as it must be, once all has come, or nothing more comes."""
    begun = time.monotonic()
    with headrace.open(owner.home) as hr:
        while ((different := _different(hr, database)) or _in_snapshot(hr)) and (
            time.monotonic() - begun < _SETTLE_SECONDS
        ):
            time.sleep(1.0)
        figures.settled_seconds = time.monotonic() - begun
        findings = [f"table {name} is not PostgreSQL's" for name in different]
        if _in_snapshot(hr):
            findings.append("a further snapshot did not come to its end")
        ((reads,),) = _rows(hr, f"SELECT count(*) FROM {SOURCE}_raw WHERE operation = 'read'")
        (shown,) = [one for one in _table(hr.execute("SHOW SOURCES")) if one["name"] == SOURCE]
        ((events, distinct),) = _rows(hr, f"SELECT count(*), count(DISTINCT event_id) FROM {SOURCE}_raw")
        ends = shown["applied"] + shown["stale"] + shown["dead"] + shown["pending"]
        if shown["received"] != ends:
            findings.append(f"{shown['received']} were received, and {ends} applied, stale, dead or pending")
        if shown["dead"]:
            findings.append(f"{shown['dead']} are dead letters")
        if events != distinct:
            findings.append(f"{events} events were kept, of which {distinct} differ")
        sent = _sent(servers, hr, chosen.way)
        if events != sent:
            findings.append(f"{sent} events were sent, and {events} kept")
        if not hr.verify().ok:
            findings.append("a view is not what its query gives")
    killed = ", ".join(f"{count} of {name}" for name, count in sorted(figures.kills.items()))
    print(
        f"{figures.transactions} transactions of pgbench in {chosen.minutes:g} minutes, {sum(figures.kills.values())} "
        f"kills ({killed}), {figures.snapshots} of them in a further snapshot; {events} events, "
        f"{reads} of them rows that were read, each kept once; "
        f"received {shown['received']} = applied "
        f"{shown['applied']} + stale {shown['stale']} + dead {shown['dead']} + pending {shown['pending']}; equal to "
        f"PostgreSQL {figures.settled_seconds:.0f} s after the last start of the home: "
        f"{'NO' if findings else 'yes'}",
        flush=True,
    )
    if findings:
        print(owner.log.read_text(errors="replace")[-4000:])
    return findings


def _different(hr: headrace.Headrace, database: psycopg.Connection[Any]) -> list[str]:
    # The small ones first: while they differ, the large one need not be read.
    for name, columns in reversed(COLUMNS.items()):
        sql = f"SELECT {columns} FROM {name}"
        if _rows(hr, sql) != sorted(tuple(row) for row in database.execute(sql.encode())):
            return [name]
    return []


def _in_snapshot(hr: headrace.Headrace) -> bool:
    """Whether tables are still read between their changes, or are about to be."""
    ((position,),) = _rows(hr, f"SELECT position FROM source_progress WHERE source = '{SOURCE}'")
    told = json.loads(position)
    return bool(told.get("asked")) or any(name.startswith("incremental_snapshot") for name in told.get("offset") or {})


def _sent(servers: local.Servers, hr: headrace.Headrace, way: str) -> int:
    """How many changes were sent: pgbench deletes nothing, so that every record of a topic is one."""
    if way == "engine":
        ((number,),) = _rows(hr, "SELECT CAST(get_json_object(position, '$.number') AS BIGINT) FROM source_progress")
        return number
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers.bootstrap, "group.id": "check"})
    try:
        topics = consumer.list_topics(timeout=30).topics
        ends = [
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition(name, partition), timeout=30)[1]
            for name, topic in topics.items()
            if name.startswith(f"{SOURCE}.public.")
            for partition in topic.partitions
        ]
        return sum(ends)
    finally:
        consumer.close()


def _rows(hr: headrace.Headrace, sql: str) -> list[Any]:
    return sorted(tuple(row.values()) for row in hr.query(sql).to_pylist())


def _table(answer: Any) -> list[dict[str, Any]]:
    assert isinstance(answer, pa.Table)
    return answer.to_pylist()


def _processed(said: str) -> int:
    found = [line for line in said.splitlines() if "transactions actually processed" in line]
    return int(found[0].rpartition(":")[2].split("/")[0]) if found else 0


if __name__ == "__main__":
    sys.exit(main())
