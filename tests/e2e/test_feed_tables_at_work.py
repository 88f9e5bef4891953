"""Feeds of a home without Spark into a real PostgreSQL: by statements, over failures and restarts, each event once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from tests.bare_home import BareHome
from tests.feed_batches import ITEMS
from tests.feed_database import Database, item

OPTIONS = "flush_interval_ms = 10, batch_size = 50, max_retries = 1"


def until(check: Callable[[], bool], seconds: float = 40.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.05)


def feed(home: BareHome) -> dict[str, Any]:
    (one,) = home.execute("SHOW CHANGEFEEDS").to_pylist()
    return one


def equal(home: BareHome, database: Database) -> bool:
    """Whether the table has the rows of the relation, and no other."""
    try:
        found = database.rows()
    except psycopg.Error:
        return False
    rows = home.query("SELECT * FROM items").to_pylist()
    return found == sorted((tuple(row.values()) for row in rows), key=lambda row: row[0])


@pytest.fixture
def home(tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[BareHome]:
    monkeypatch.setenv("ITEMS_LOCATION", database.location())
    made = BareHome(tmp_path / "home")
    made.create_table("items", ITEMS, ("id",))
    made.apply({"items": [{"insert": item(number)} for number in range(500)]})
    made.execute(f"CREATE CHANGEFEED f FOR TABLE items INTO POSTGRES 'env:ITEMS_LOCATION' WITH ({OPTIONS})")
    yield made
    made.close()


def changed(home: BareHome, turn: int) -> None:
    """Rows that come, change and go."""
    changes: list[Any] = [{"insert": item(turn * 20 + number, f"of {turn}")} for number in range(60)]
    home.apply({"items": [*changes, *({"delete": {"id": turn * 20 + 100 + number}} for number in range(10))]})


def test_a_table_that_equals_its_relation_whatever_fails(home: BareHome, database: Database) -> None:
    until(lambda: equal(home, database))
    for turn in range(5):
        changed(home, turn)
    until(lambda: equal(home, database))
    assert feed(home)["state"] == "Running"
    database.servers.kill_postgres()
    changed(home, 6)
    until(lambda: feed(home)["error"] is not None)
    assert feed(home)["state"] == "Running"
    database.servers.postgres.start()
    changed(home, 7)
    until(lambda: equal(home, database))
    # Somebody writes into the table; a resync puts it right, and the count of runs tells of it.
    database.run("UPDATE {}.items SET name = 'wrong' WHERE id < 100")
    database.run("DELETE FROM {}.items WHERE id > 400")
    home.execute("RESYNC CHANGEFEED f")
    until(lambda: equal(home, database))
    changed(home, 8)
    until(lambda: equal(home, database))
    until(lambda: ("resync", "success") in database.run("SELECT kind, state FROM {}.headrace_feed_runs"))
    home.execute("DROP CHANGEFEED f")
    assert database.run("SELECT * FROM {}.headrace_feeds") == []
    assert len(database.rows()) == len(home.query("SELECT * FROM items"))


def test_another_process_goes_on(home: BareHome, database: Database, tmp_path: Path) -> None:
    until(lambda: equal(home, database))
    sequence = feed(home)["last_sequence"]
    home.close()
    again = BareHome(tmp_path / "home")
    try:
        for turn in range(5):
            changed(again, turn)
        until(lambda: equal(again, database))
        until(lambda: feed(again)["lag"] == 0)
        # Each event was written once.
        (events,) = database.run("SELECT sum(events)::int FROM {}.headrace_feed_runs")[0]
        assert events == feed(again)["last_sequence"] > sequence
    finally:
        again.close()


def test_refused_rows_are_parked_and_sent_after_all(home: BareHome, database: Database) -> None:
    until(lambda: equal(home, database))
    database.run("ALTER TABLE {}.items ADD CONSTRAINT positive CHECK (price > 0)")
    home.apply(
        {"items": [{"insert": item(1, "bad", "-1")}, {"insert": item(2, "bad", "-2")}, {"insert": item(3, "good")}]}
    )
    until(lambda: home.query("SELECT * FROM parked_events").num_rows == 2)
    assert [row[1] for row in database.rows()[1:4]] == ["n1", "n2", "good"]
    assert all("positive" in one["reason"] for one in home.query("SELECT * FROM parked_events").to_pylist())
    home.apply({"items": [{"insert": item(1, "later")}]})
    until(lambda: database.rows()[1][1] == "later")
    database.run("ALTER TABLE {}.items DROP CONSTRAINT positive")
    home.execute("REPLAY PARKED EVENTS")
    until(lambda: equal(home, database))
    assert [row[1:] for row in database.rows()[1:3]] == [("later", Decimal("1.50")), ("bad", Decimal("-2.00"))]


def test_columns_that_a_relation_gets_later(home: BareHome, database: Database) -> None:
    until(lambda: equal(home, database))
    home.replace_table("items", StructType([*ITEMS.fields, StructField("note", StringType())]), ("id",))
    until(lambda: feed(home)["state"] == "Error")
    home.apply({"items": [{"insert": {**item(number), "note": "new"}} for number in range(10)]})
    home.execute("RESYNC CHANGEFEED f")
    until(lambda: equal(home, database))
    assert [row[3] for row in database.rows()] == ["new"] * 10
