"""A real PostgreSQL as a sink: what is delivered is there once, and the table equals the relation."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.feeds.batch import Mark
from headrace.feeds.sink import EventsRefused, SinkEnded
from tests.feed_batches import ITEMS, batch_of, changes_between
from tests.feed_database import Database, item


def test_a_batch_is_one_transaction_with_its_mark(database: Database) -> None:
    delivery = database.open()
    assert delivery.known_mark() is None
    delivery.deliver(batch_of([("INSERT", item(1)), ("INSERT", item(2)), ("UPDATE", item(1, "x"))]))
    assert database.rows() == [(1, "x", Decimal("1.50")), (2, "n2", Decimal("1.50"))]
    assert delivery.known_mark() == Mark(3, 1, 3)
    delivery.deliver(batch_of([("DELETE", item(2)), ("INSERT", item(3)), ("DELETE", item(3))], 4))
    assert database.rows() == [(1, "x", Decimal("1.50"))]
    primary = database.run(
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) "
        "WHERE indisprimary AND indrelid = %s::regclass",
        f"{database.schema}.items",
    )
    assert primary == [("id",)]


def test_what_was_told_is_not_told_again(database: Database) -> None:
    delivery = database.open()
    first = batch_of([("INSERT", item(1)), ("UPDATE", item(1, "second"))])
    delivery.deliver(first)
    delivery.deliver(batch_of([("UPDATE", item(1, "third"))], 3))
    # An older row never comes over a newer one.
    delivery.deliver(first)
    assert database.rows() == [(1, "third", Decimal("1.50"))]
    # A batch that is cut otherwise brings only what is new.
    delivery.deliver(batch_of([("UPDATE", item(1, "second")), ("UPDATE", item(1, "third")), ("INSERT", item(2))], 2))
    assert [row[1] for row in database.rows()] == ["third", "n2"]
    assert delivery.known_mark() == Mark(4, 1, 4)


def test_events_that_waited_for_a_refused_one_come_late_and_once(database: Database) -> None:
    delivery = database.open()
    bad = batch_of([("INSERT", item(1)), ("INSERT", item(2, "a\0b")), ("INSERT", item(3))])
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(bad)
    assert list(refused.value.refused) == [1]
    assert "NUL" in refused.value.refused[1]
    assert [row[0] for row in database.rows()] == [1, 3]
    # All that is told is before it, so that a restart tries it again.
    assert delivery.known_mark() == bad.mark_before(1)
    with pytest.raises(EventsRefused):
        database.open(fence=1).deliver(bad)
    delivery = database.open(fence=2)
    # 4 waits for it; 5 is of another key.
    delivery.deliver(batch_of([("INSERT", item(5))], 5, numbers=[5], after=bad.mark_before(1)))
    delivery.deliver(
        batch_of([("UPDATE", item(2, "mended")), ("DELETE", item(2))], 2, numbers=[2, 4], after=Mark(5, 1, 5))
    )
    assert [row[0] for row in database.rows()] == [1, 3, 5]
    assert delivery.known_mark() == Mark(5, 1, 5)


def test_a_parked_event_does_not_come_over_a_later_one_of_its_key(database: Database) -> None:
    delivery = database.open()
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(1, "\0")), ("INSERT", item(2, "\0"))]))
    delivery.deliver(batch_of([("UPDATE", item(1, "later"))], 3))
    # Both were parked, and are sent after all.
    for number in (1, 2):
        delivery.deliver(batch_of([("INSERT", item(number, "parked"))], number, after=Mark(3, 1, 3)))
    assert [row[1] for row in database.rows()] == ["later", "parked"]


def test_of_a_key_whose_newest_row_is_refused_the_one_before_is_there(database: Database) -> None:
    delivery = database.open()
    events = [("INSERT", item(1, "good")), ("UPDATE", item(1, "\0")), ("UPDATE", item(1, "\0\0")), ("INSERT", item(2))]
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch_of(events))
    assert sorted(refused.value.refused) == [1, 2]
    assert [row[1] for row in database.rows()] == ["good", "n2"]
    # One that a later row takes the place of is nobody's loss.
    delivery.deliver(batch_of([("UPDATE", item(2, "\0")), ("UPDATE", item(2, "fine"))], 5))
    assert [row[1] for row in database.rows()] == ["good", "fine"]


def test_rows_that_the_table_does_not_take_are_found_among_many(database: Database) -> None:
    database.run("CREATE TABLE {}.items (id int PRIMARY KEY, name varchar(5), price numeric(10,2) CHECK (price >= 0))")
    delivery = database.open()
    rows = [item(number, "name", "-1" if number % 100 == 7 else "1") for number in range(1000)]
    rows[500] = item(500, "too long")
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch_of([("INSERT", row) for row in rows]))
    bad = sorted([500, *range(7, 1000, 100)])
    assert sorted(refused.value.refused) == bad
    assert "check constraint" in refused.value.refused[7]
    assert "too long" in refused.value.refused[500]
    assert [row[0] for row in database.rows()] == [number for number in range(1000) if number not in bad]
    assert database.run("SELECT events, written, refused FROM {}.headrace_feed_runs") == [(1000, 989, 11)]


def test_a_row_that_others_refer_to_is_not_deleted_and_told(database: Database) -> None:
    delivery = database.open()
    delivery.deliver(batch_of([("INSERT", item(1)), ("INSERT", item(2))]))
    database.run("CREATE TABLE {0}.orders (item int REFERENCES {0}.items DEFERRABLE INITIALLY DEFERRED)")
    database.run("INSERT INTO {}.orders VALUES (1)")
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch_of([("DELETE", item(1)), ("DELETE", item(2))], 3))
    assert list(refused.value.refused) == [0]
    assert [row[0] for row in database.rows()] == [1]


def test_modes(database: Database) -> None:
    first = [("INSERT", item(1)), ("INSERT", item(2)), ("UPDATE", item(1, "new")), ("DELETE", item(2))]
    for mode, expected in {
        "mirror": [(1, "new")],
        "upsert": [(1, "new"), (2, "n2")],
        "insert": [(1, "n1"), (2, "n2")],
    }.items():
        database.open(mode, options={"mode": mode}, feed_id=mode).deliver(batch_of(first))
        assert [row[:2] for row in database.rows(mode)] == expected
    bag = {"has_key": False, "key": tuple(ITEMS.names), "options": {"mode": "insert"}, "feed_id": "bag"}
    delivery = database.open("bag", **bag)
    batch = batch_of([("INSERT", item(1)), ("INSERT", item(1)), ("DELETE", item(1))], key=tuple(ITEMS.names))
    delivery.deliver(batch)
    delivery.deliver(batch)
    assert [row[0] for row in database.rows("bag")] == [1, 1]


def test_keys_of_the_statement_move_with_their_rows(database: Database) -> None:
    key = ("name",)
    before = [item(1, "a"), item(2, "b"), item(3, "d")]
    moved = changes_between(before, [item(1, "c"), item(2, "a"), item(3, "d", "7")], ("id",), key)
    for mode, expected in {
        "mirror": [(2, "a", 1.5), (1, "c", 1.5), (3, "d", 7)],
        "upsert": [(2, "a", 1.5), (2, "b", 1.5), (1, "c", 1.5), (3, "d", 7)],
        "insert": [(1, "a", 1.5), (2, "b", 1.5), (1, "c", 1.5), (3, "d", 1.5)],
    }.items():
        delivery = database.open(mode, key=key, feed_id=mode, options={"keys": "NAME", "mode": mode})
        delivery.deliver(batch_of([("INSERT", row) for row in before], key=key))
        delivery.deliver(batch_of(moved, 4, key=key))
        assert database.run(f"SELECT id, name, price::float8 FROM {{}}.{mode} ORDER BY 2") == expected
        with pytest.raises(EventsRefused) as refused:
            delivery.deliver(batch_of([("INSERT", {"id": 3, "name": None, "price": None})], 9, key=key))
        assert "has a NULL" in refused.value.refused[0]


def test_of_two_rows_with_one_key_the_newest_is_there(database: Database) -> None:
    key = ("name",)
    delivery = database.open(key=key, options={"keys": "name"})
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(1, "a")), ("INSERT", item(2, "a"))], key=key, scan=True))
    delivery.end_scan(Mark(2, None, 2))
    delivery.deliver(batch_of([("INSERT", item(3, "a"))], 3, key=key))
    assert [row[:2] for row in database.rows()] == [(3, "a")]
    events = changes_between([item(1, "a"), item(2, "a")], [item(4, "a"), item(5, "a")], ("id",), key)
    delivery.deliver(batch_of(events, 4, key=key))
    assert [row[1] for row in database.rows()] == ["a"]
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(4, "a")), ("INSERT", item(5, "a"))], 9, key=key, scan=True))
    delivery.end_scan(Mark(9, None, 10))
    assert [row[:2] for row in database.rows()] == [(5, "a")]


def test_a_key_of_a_view_may_be_null(database: Database) -> None:
    columns = StructType([StructField("kind", StringType()), StructField("n", IntegerType())])
    parts: dict[str, Any] = {"columns": columns, "key": ("kind",)}
    delivery = database.open("by_kind", **parts)
    delivery.deliver(batch_of([("INSERT", {"kind": "a", "n": 1})], **parts))
    delivery.deliver(batch_of([("INSERT", {"kind": None, "n": 2}), ("UPDATE", {"kind": "a", "n": 2})], 2, **parts))
    delivery.deliver(batch_of([("UPDATE", {"kind": None, "n": 3})], 4, **parts))
    assert database.rows("by_kind") == [("a", 2), (None, 3)]
    # Another session finds it as it is.
    again = database.open("by_kind", fence=1, **parts)
    again.deliver(batch_of([("DELETE", {"kind": None, "n": 3}), ("UPDATE", {"kind": "a", "n": 5})], 5, **parts))
    assert database.rows("by_kind") == [("a", 5)]
    again.begin_scan(columns)
    again.deliver(batch_of([("INSERT", {"kind": None, "n": 9})], 7, scan=True, **parts))
    again.end_scan(Mark(9, None, 7))
    assert database.rows("by_kind") == [(None, 9)]


def test_a_scan_takes_the_place_of_all_rows_at_once(database: Database) -> None:
    delivery = database.open(options={"indexes": "name DESC"})
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(number)) for number in range(2000)], scan=True))
    delivery.end_scan(Mark(2000, None, 2000))
    database.run("CREATE VIEW {0}.names AS SELECT name FROM {0}.items")
    seen: set[int] = set()
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            seen.add(database.run("SELECT count(*) FROM {}.names")[0][0])

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        delivery.begin_scan(ITEMS)
        for start in range(0, 3000, 500):
            rows = [("INSERT", item(number + 1000)) for number in range(start, start + 500)]
            delivery.deliver(batch_of(rows, 2001 + start, scan=True))
        # A restart in the middle goes on where it was.
        delivery.close()
        delivery = database.open(fence=1, options={"indexes": "name DESC"})
        assert database.run("SELECT count(*) FROM {}.items") == [(2000,)]
        delivery.end_scan(Mark(5001, None, 5000))
        delivery.end_scan(Mark(5001, None, 5000))
    finally:
        done.set()
        reader.join()
    assert seen <= {2000, 3000}
    assert [row[0] for row in database.rows()] == list(range(1000, 4000))
    assert database.run("SELECT count(*) FROM {}.names") == [(3000,)]
    assert delivery.known_mark() == Mark(5001, None, 5000)
    runs = database.run("SELECT kind, state, events, written, deleted FROM {}.headrace_feed_runs ORDER BY run_id")
    # Of the second scan, 1000 rows are as they were.
    assert ("resync", "success", 2000, 2000, 0) in runs
    assert ("resync", "success", 3000, 2000, 1000) in runs
    assert database.run("SELECT count(*) FROM pg_class WHERE relname LIKE 'headrace_scan%'") == [(0,)]


def test_older_refused_events_say_nothing_after_a_scan(database: Database) -> None:
    delivery = database.open()
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(1, "\0"))]))
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(1, "scanned"))], 2, scan=True))
    delivery.end_scan(Mark(2, 1, 2))
    delivery.deliver(batch_of([("INSERT", item(1, "late"))]))
    assert [row[1] for row in database.rows()] == ["scanned"]


def test_a_table_that_is_gone_is_told_and_a_scan_brings_it_back(database: Database) -> None:
    database.open().deliver(batch_of([("INSERT", item(1))]))
    database.run("DROP TABLE {}.items")
    delivery = database.open(fence=1)
    with pytest.raises(SinkEnded, match="is gone"):
        delivery.deliver(batch_of([("INSERT", item(2))], 2))
    delivery.close()
    runs = database.run("SELECT state FROM {}.headrace_feed_runs ORDER BY run_id")
    assert runs == [("interrupted",), ("failed",)]
    delivery = database.open(fence=2)
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(1)), ("INSERT", item(2))], 2, scan=True))
    delivery.end_scan(Mark(3, 1, 3))
    assert [row[0] for row in database.rows()] == [1, 2]


def test_a_database_that_has_lost_it_all_says_so(database: Database) -> None:
    with pytest.raises(SinkEnded, match="RESYNC CHANGEFEED"):
        database.open().deliver(batch_of([("INSERT", item(7))], 7))
    delivery = database.open(fence=1)
    delivery.begin_scan(ITEMS)
    delivery.end_scan(Mark(8, None, 7))
    delivery.deliver(batch_of([("INSERT", item(8))], 8))
    assert [row[0] for row in database.rows()] == [8]


def test_a_scan_that_the_database_no_longer_knows_ends_the_feed(database: Database) -> None:
    delivery = database.open()
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(1))], scan=True))
    delivery.end_scan(Mark(1, None, 1))
    with pytest.raises(SinkEnded, match="no longer has the scan"):
        delivery.deliver(batch_of([("INSERT", item(2))], 2, scan=True))


def test_a_feed_that_is_made_anew_begins_anew(database: Database) -> None:
    first = database.open()
    first.deliver(batch_of([("INSERT", item(1)), ("INSERT", item(2))]))
    first.close()
    from headrace.feeds.postgres import PostgresSink
    from tests.feed_batches import target_of

    PostgresSink().forget(target_of(database.location()))
    assert database.run("SELECT * FROM {}.headrace_feeds") == []
    with pytest.raises(SinkEnded, match="take_over = true"):
        database.open(feed_id="another")
    again = database.open(feed_id="another", options={"take_over": True})
    assert again.known_mark() is None
    again.begin_scan(ITEMS)
    again.deliver(batch_of([("INSERT", item(2, "x"))], scan=True))
    again.end_scan(Mark(1, 1, 1))
    assert [row[:2] for row in database.rows()] == [(2, "x")]


def test_how_fresh_a_table_is(database: Database) -> None:
    delivery = database.open()
    delivery.resolved(Mark(7, None, 0), 1_800_000_000.0)
    row = database.run("SELECT epoch, extract(epoch FROM committed_at)::int, target FROM {}.headrace_feeds")
    assert row == [(7, 1_800_000_000, f"{database.schema}.items")]
