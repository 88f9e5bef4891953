"""The outbox of a real PostgreSQL, followed by Debezium: its rows become events exactly once, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from tests.e2e.test_capture_postgres import Database, database, engines
from tests.ending_with_us import ending_with_us
from tests.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database"]

_OUTBOX = """CREATE TABLE outbox (id UUID PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype VARCHAR(255) NOT NULL,
    aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload JSONB, traceparent TEXT)"""
# A process that owns the home, follows the outbox, and tells how many events there are until it is killed.
_FOLLOW = """
import sys, time
import headrace
with headrace.open(sys.argv[1]) as hr:
    hr.execute("CREATE EVENT STORE events WITH (snapshot_events = 0)")
    hr.execute("CREATE PROJECTION orders FOR EVENT STORE events AGGREGATE TYPE 'order' (n INT, total INT)")
    hr.execute(f"CREATE SOURCE shop FROM POSTGRES '{sys.argv[2]}' "
        "WITH (tables = 'public.outbox', password = 'env:SHOP_PASSWORD')")
    store, told = hr.events("events"), 0
    while True:
        try:
            store.follow_outbox("shop_raw")
        except headrace.RelationNameError:
            pass
        count = store.read().num_rows
        if count != told:
            print(count, flush=True)
            told = count
        time.sleep(0.05)
"""


def order(database: Database, number: int) -> None:
    """What an application does: its own change and the event of it in one transaction, and the row is gone at once."""
    with database.connection.transaction():
        database.run(
            f"INSERT INTO orders VALUES ({number}, 'c{number % 3}', {number}, now())",
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, traceparent) VALUES "
            f"('order', '{number % 5}', 'OrderPlaced', '{{\"n\": {number}, \"total\": {number * 10}}}', 't{number}')",
            # Every second application leaves it there.
            f"DELETE FROM outbox WHERE payload->>'n' = '{number}'" if number % 2 else "SELECT 1",
        )


@pytest.mark.slow
def test_rows_of_an_outbox_become_events_once_though_both_followers_are_killed(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    database.run(_OUTBOX)
    for number in range(1, 11):
        order(database, number)
    home = str(tmp_path / "home")
    command = ending_with_us([sys.executable, "-c", _FOLLOW, home, database.location])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            told = process.stdout
            assert told is not None
            # Of those that were gone before it looked, the first reading knows nothing: no log is kept of before.
            until(lambda: int(told.readline() or -1) >= 5)
            for number in range(11, 61):
                order(database, number)
            until(lambda: int(told.readline() or -1) > 5)
        finally:
            # In the midst of it: what it has appended is there, how far it was may not be.
            process.send_signal(signal.SIGKILL)
    for number in range(61, 101):
        order(database, number)
    with headrace.open(home, spark=spark) as hr:
        store = hr.events("events")
        wanted = {2, 4, 6, 8, 10, *range(11, 161)}

        def numbers() -> list[int]:
            return [json.loads(one)["n"] for one in store.read().column("event_data").to_pylist()]

        until(lambda: 100 in numbers())
        for engine in engines():
            os.kill(engine, signal.SIGKILL)
        for number in range(101, 161):
            order(database, number)
        until(lambda: 160 in numbers())
        assert sorted(numbers()) == sorted(wanted)
        assert store.parked() == []
        events: list[dict[str, Any]] = store.read().to_pylist()
        assert [one["position"] for one in events] == list(range(1, len(wanted) + 1))
        # In the order of the log, also of each aggregate.
        assert [json.loads(one["event_data"])["n"] for one in events][5:] == list(range(11, 161))
        ids = {str(one) for (one,) in database.run("SELECT id FROM outbox")}
        assert ids == {one["event_id"] for one in events if json.loads(one["event_data"])["n"] % 2 == 0}
        assert json.loads(events[-1]["metadata"]) == {"outbox": {"traceparent": "t160"}}
        kept = {row["aggregate_id"]: row["total"] for row in hr.query("SELECT * FROM orders").to_pylist()}
        assert kept == {str(n): (155 + n if n else 160) * 10 for n in range(5)}
        assert hr.verify().ok
        hr.execute("DROP SOURCE shop")
