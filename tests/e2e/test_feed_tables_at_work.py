"""Feeds of a home without Spark into a real PostgreSQL: by statements, over failures and restarts, each event once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from headrace.state.hashing import identity
from tests.bare_home import BareHome
from tests.feed_batches import ITEMS, rows_of
from tests.feed_database import Database, item
from tests.waiting import until

OPTIONS = "flush_interval_ms = 10, batch_size = 50, max_retries = 1"


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


def test_a_feed_that_gets_other_keys_delivers_all_rows_again(home: BareHome, database: Database) -> None:
    until(lambda: equal(home, database))
    until(lambda: feed(home)["lag"] == 0)
    sequence = feed(home)["last_sequence"]
    home.execute("ALTER CHANGEFEED f SET (keys = 'NAME', batch_size = 3)")
    until(lambda: feed(home)["state"] == "Error")
    assert "no unique index over (name)" in feed(home)["error"]
    database.run("ALTER TABLE {}.items DROP CONSTRAINT items_pkey, ADD UNIQUE (name)")
    home.execute("RESUME CHANGEFEED f")
    until(lambda: feed(home)["last_sequence"] >= sequence + 500)
    dice = random.Random(3)
    for _ in range(10):
        # Rows hand their names on.
        numbers = dice.sample(range(500), 20)
        names = {row["id"]: row["name"] for row in home.query("SELECT * FROM items").to_pylist()}
        taken = dice.sample(numbers, 20)
        home.apply({"items": [{"insert": item(one, names[other])} for one, other in zip(numbers, taken, strict=True)]})
    until(lambda: equal(home, database))
    assert feed(home)["error"] is None
    # Also if it has no such column any more, the feed is forgotten.
    home.replace_table("items", StructType([ITEMS.fields[0], ITEMS.fields[2]]), ("id",))
    until(lambda: feed(home)["state"] == "Error")
    home.execute("DROP CHANGEFEED f")
    assert database.run("SELECT * FROM {}.headrace_feeds") == []


def test_a_scan_that_is_cut_short_while_its_first_row_is_refused_loses_no_other(
    home: BareHome, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: equal(home, database))
    until(lambda: feed(home)["lag"] == 0)
    monkeypatch.setattr("headrace.feeds.blocked.pause_after", lambda _: 3600.0)
    # The first row in the order of a scan, which is that of its identities, is one that PostgreSQL does not take.
    bad = [item(number, "a\0b") for number in range(1_000, 50_000)]
    low, _ = identity(rows_of(ITEMS, bad).columns, len(bad))
    home.apply({"items": [{"insert": bad[int(low.argmin())]}]})
    held = home.core.relations()["items"][0].all()
    assert held.rows.column(0)[int(held.low.argmin())].as_py() >= 1_000
    home.execute("RESYNC CHANGEFEED f")
    until(lambda: ("beside",) in database.run("SELECT scan FROM {}.headrace_feeds") and feed(home)["waiting"] == 1)
    home.execute("PAUSE CHANGEFEED f")
    monkeypatch.setattr("headrace.feeds.blocked.pause_after", lambda _: 0.01)
    home.execute("RESUME CHANGEFEED f")
    until(lambda: ("resync", "success") in database.run("SELECT kind, state FROM {}.headrace_feed_runs"))
    until(lambda: feed(home)["lag"] == 0)
    assert [row[0] for row in database.rows()] == list(range(500))


def test_a_database_that_was_put_back_to_an_older_copy_is_noticed(home: BareHome, database: Database) -> None:
    until(lambda: equal(home, database))
    until(lambda: feed(home)["lag"] == 0)
    home.execute("PAUSE CHANGEFEED f")
    for table in ("items", "headrace_feeds"):
        database.run(f"CREATE TABLE {{0}}.copy_of_{table} AS SELECT * FROM {{0}}.{table}")
    home.execute("RESUME CHANGEFEED f")
    changed(home, 1)
    until(lambda: equal(home, database))
    home.execute("PAUSE CHANGEFEED f")
    for table in ("items", "headrace_feeds"):
        database.run(f"DELETE FROM {{0}}.{table}")
        database.run(f"INSERT INTO {{0}}.{table} SELECT * FROM {{0}}.copy_of_{table}")
    home.execute("RESUME CHANGEFEED f")
    until(lambda: feed(home)["state"] == "Error")
    assert "RESYNC CHANGEFEED f" in feed(home)["error"]
    home.execute("RESYNC CHANGEFEED f")
    until(lambda: equal(home, database))
    changed(home, 2)
    until(lambda: equal(home, database))


def test_two_feeds_do_not_share_a_table(home: BareHome, database: Database) -> None:
    until(lambda: equal(home, database))
    home.create_table("others", ITEMS, ("id",))
    home.apply({"others": [{"insert": item(9_999)}]})
    home.execute(
        "CREATE CHANGEFEED g FOR TABLE others INTO POSTGRES 'env:ITEMS_LOCATION' "
        "WITH (flush_interval_ms = 10, take_over = true)"
    )

    def second() -> dict[str, Any]:
        return next(one for one in home.execute("SHOW CHANGEFEEDS").to_pylist() if one["name"] == "g")

    until(lambda: second()["error"] is not None)
    assert "changefeed f delivers to" in second()["error"]
    assert equal(home, database)
    # The first is not disturbed, also when it connects again; the second goes on when the first is dropped.
    home.execute("PAUSE CHANGEFEED f; RESUME CHANGEFEED f")
    changed(home, 1)
    until(lambda: equal(home, database))
    home.execute("DROP CHANGEFEED f; RESUME CHANGEFEED g")
    until(lambda: [row[0] for row in database.rows()] == [9_999])
