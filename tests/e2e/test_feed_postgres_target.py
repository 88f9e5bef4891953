"""Tables of a real PostgreSQL whose rows or keys are not the feed's own, and servers that fall silent."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.feeds.batch import Mark
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable
from tests.feed_batches import ITEMS, batch_of, changes_between
from tests.feed_database import Database, item

NOTES = StructType([StructField("x", IntegerType()), StructField("y", StringType())])


KEY = ("name",)


def people(logins: str, price: str = "1.50") -> list[dict[str, Any]]:
    """Rows with the numbers 0, 1, ... and one letter each as their name; none where there is a space."""
    return [item(number, login, price) for number, login in enumerate(logins) if login != " "]


@pytest.mark.parametrize("size", [1, 2, 5, 9])
@pytest.mark.parametrize("own_key", [("id",), ()], ids=["keyed", "without a key"])
def test_rows_hand_their_keys_on_whatever_batches_they_come_in(
    database: Database, size: int, own_key: tuple[str, ...]
) -> None:
    for index in range(5):
        delivery = database.open(f"t{index}", key=KEY, options={"keys": "name"}, feed_id=f"f{index}")
        delivery.deliver(batch_of([("INSERT", row) for row in people("abcd")], key=KEY))
        # Each takes the name of the next; 3 gives its own up, and then all go back but 0, which is deleted.
        on = changes_between(people("abcd"), people("bcde"), own_key, KEY)
        back = changes_between(people("bcde"), people(" bcd"), own_key, KEY)
        for events in (on, back):
            random.Random(index).shuffle(events)
        events, epochs = [*on, *back], [2] * len(on) + [3] * len(back)
        for start in range(0, len(events), size):
            end = start + size
            delivery.deliver(batch_of(events[start:end], 5 + start, key=KEY, epochs=epochs[start:end]))
            if end == len(on):
                found = database.run(f"SELECT id, name FROM {{}}.t{index} ORDER BY 1")
                assert found == [(0, "b"), (1, "c"), (2, "d"), (3, "e")]
        found = database.run(f"SELECT id, name FROM {{}}.t{index} ORDER BY 1")
        assert found == [(1, "b"), (2, "c"), (3, "d")]
        delivery.close()


def test_a_late_row_does_not_come_over_the_one_that_took_its_key(database: Database) -> None:
    delivery = database.open(key=KEY, options={"keys": "name"})
    database.run("ALTER TABLE {}.items ADD CHECK (price > 0)")
    before = [item(1, "a"), item(2, "b")]
    delivery.deliver(batch_of([("INSERT", row) for row in before], key=KEY))
    # 1 takes the key that 2 leaves, and is refused; the key is then another's.
    events = changes_between(before, [item(1, "b", "-1"), item(2, "c")], ("id",), KEY)
    (late,) = (index for index, event in enumerate(events) if event[1]["name"] == "b")
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch_of(events, 3, key=KEY, epochs=[2, 2, 2]))
    assert list(refused.value.refused) == [late]
    # The row before stays under the key, and other events do not take the place of the refused one.
    assert database.run("SELECT id, name FROM {}.items ORDER BY 2") == [(2, "b"), (2, "c")]
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([events[late]], 3 + late, key=KEY))
    now = changes_between([item(1, "b", "-1"), item(2, "c")], [item(1, "d"), item(2, "c"), item(3, "b")], ("id",), KEY)
    delivery.deliver(batch_of(now, 6, key=KEY, epochs=[3, 3]))
    delivery.deliver(batch_of([("UPDATE", item(1, "b"), item(2, "b"))], 3 + late, key=KEY))
    assert database.run("SELECT id, name FROM {}.items ORDER BY 1") == [(1, "d"), (2, "c"), (3, "b")]


def test_mode_insert_adds_to_the_rows_of_others_and_deletes_none(database: Database) -> None:
    database.run("CREATE TABLE {}.audit (x int, y text, at timestamptz DEFAULT now(), more json)")
    database.run("INSERT INTO {}.audit (x, y) SELECT n, 'history' FROM generate_series(1, 100) n")
    parts: dict[str, Any] = {"has_key": False, "key": ("x", "y"), "options": {"mode": "insert"}, "columns": NOTES}
    rows: list[Any] = [
        ("INSERT", {"x": 1, "y": "new"}),
        ("INSERT", {"x": 1, "y": "new"}),
        ("INSERT", {"x": 1, "y": "history"}),
    ]
    delivery = database.open("audit", **parts)
    delivery.begin_scan(NOTES)
    delivery.deliver(batch_of(rows, columns=NOTES, key=("x", "y"), scan=True))
    assert database.run("SELECT count(*) FROM {}.audit") == [(100,)]
    delivery.end_scan(Mark(1, None, 3))
    assert database.run("SELECT count(*), count(at) FROM {}.audit") == [(103, 103)]
    # When all is told again, what the table lacks is added, as often as it lacks it.
    database.run("DELETE FROM {0}.audit WHERE ctid IN (SELECT ctid FROM {0}.audit WHERE y = 'new' LIMIT 1)")
    delivery.begin_scan(NOTES)
    delivery.deliver(batch_of([*rows, ("INSERT", {"x": None, "y": None})], 4, NOTES, ("x", "y"), scan=True))
    delivery.end_scan(Mark(2, None, 7))
    assert database.run("SELECT y, count(*) FROM {}.audit WHERE x = 1 OR x IS NULL GROUP BY 1 ORDER BY 1") == [
        ("history", 2),
        ("new", 2),
        (None, 1),
    ]
    assert database.run("SELECT count(*) FROM {}.audit") == [(104,)]


def test_mode_mirror_takes_the_rows_of_others_over_only_if_it_may(database: Database) -> None:
    database.run("CREATE TABLE {}.items (id int PRIMARY KEY, name text, price numeric(10, 2))")
    delivery = database.open()
    delivery.close()
    database.run("INSERT INTO {}.items VALUES (7, 'theirs', 1)")
    with pytest.raises(SinkEnded, match="has rows that this feed did not write, and mode 'mirror' would delete"):
        database.open(fence=1)
    assert database.run("SELECT * FROM {}.headrace_feeds WHERE fence = 1") == []
    delivery = database.open(fence=1, options={"take_over": True})
    # Once the feed has written into the table, its rows are those of the feed.
    for first in (1, 2):
        delivery.begin_scan(ITEMS)
        delivery.deliver(batch_of([("INSERT", item(1))], first, scan=True))
        delivery.end_scan(Mark(first, None, first))
        delivery.close()
        delivery = database.open(fence=1)
    assert [row[0] for row in database.rows()] == [1]


def test_a_column_that_the_feed_does_not_fill_is_no_fault_of_rows(database: Database) -> None:
    delivery = database.open()
    delivery.deliver(batch_of([("INSERT", item(1))]))
    database.run("ALTER TABLE {}.items ADD COLUMN region text NOT NULL DEFAULT 'x'")
    database.run("ALTER TABLE {}.items ALTER COLUMN region DROP DEFAULT, ALTER COLUMN name SET NOT NULL")
    batch = batch_of([("INSERT", item(number)) for number in range(2, 50)], 2)
    with pytest.raises(SinkUnavailable, match='column "region"'):
        delivery.deliver(batch)
    # The next session looks at the table again.
    with pytest.raises(SinkEnded, match="column region of items must not be NULL, has no default"):
        delivery.deliver(batch)
    database.run("ALTER TABLE {}.items ALTER COLUMN region SET DEFAULT 'y'")
    delivery = database.open(fence=1)
    rows: list[Any] = [("INSERT", item(2)), ("INSERT", {"id": 3, "name": None, "price": None})]
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch_of(rows, 2))
    assert list(refused.value.refused) == [1]
    assert [row[0] for row in database.rows()] == [1, 2]


def test_a_parked_event_is_forgotten_and_comes_over_no_later_row(database: Database) -> None:
    delivery = database.open()
    bad: list[Any] = [("INSERT", item(number, "\0")) for number in range(1, 301)]
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of(bad))
    delivery.give_up(range(1, 301))
    delivery.deliver(batch_of([("INSERT", item(1, "later")), ("INSERT", item(500))], 301, after=Mark(302, 1, 302)))
    told = database.run("SELECT told FROM {}.headrace_feeds")[0][0]
    assert told == "[302,[],[]]"
    assert database.run("SELECT count(*) FROM {}.headrace_feed_parked") == [(299,)]
    delivery.close()
    delivery = database.open(fence=1)
    after = Mark(302, 1, 302)
    delivery.deliver(batch_of([("INSERT", item(1, "sent again"))], 1, after=after))
    delivery.deliver(batch_of([("INSERT", item(2, "sent again"))], 2, after=after))
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(3, "\0"))], 3, after=after))
    delivery.deliver(batch_of([("UPDATE", item(4, "newer")), ("DELETE", item(5, "newer"))], 303))
    for number in (4, 5):
        delivery.deliver(batch_of([("INSERT", item(number, "sent again"))], number, after=Mark(304, 1, 304)))
    assert [row[:2] for row in database.rows()] == [(1, "later"), (2, "sent again"), (4, "newer"), (500, "n500")]
    assert database.run("SELECT told FROM {}.headrace_feeds") == [("[304,[],[]]",)]
    assert database.run("SELECT count(*) FROM {}.headrace_feed_parked") == [(296,)]
    # What a scan brings is newer than any parked event.
    delivery.begin_scan(ITEMS)
    assert database.run("SELECT count(*) FROM {}.headrace_feed_parked") == [(0,)]


def test_parked_events_of_earlier_versions_come_over_no_later_row(database: Database) -> None:
    database.run(
        "CREATE TABLE {}.headrace_feed_parked (feed_id text NOT NULL, sequence bigint NOT NULL, target_key uuid, "
        "owner_key uuid, PRIMARY KEY (feed_id, sequence))"
    )
    delivery = database.open()
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(number, "\0")) for number in (1, 2, 3)]))
    # A version had two keys of an event, and a version before it the text of the key.
    database.run("UPDATE {}.headrace_feeds SET told = regexp_replace(told, '\"([0-9a-f]{{32}})\"', '\"\\1\\1\"', 'g')")
    database.run('UPDATE {}.headrace_feeds SET told = regexp_replace(told, \'\\[3,"[^"]*"\', \'[3,"3"\')')
    delivery.close()
    delivery = database.open(fence=1)
    delivery.give_up([1, 2, 3])
    delivery.deliver(batch_of([("UPDATE", item(1, "later"))], 4))
    parked = database.run("SELECT sequence, target_key IS NULL, owner_key FROM {}.headrace_feed_parked ORDER BY 1")
    assert parked == [(2, False, None), (3, True, None)]
    for number in (1, 2, 3):
        delivery.deliver(batch_of([("INSERT", item(number, "sent again"))], number, after=Mark(4, 1, 4)))
    assert [row[1] for row in database.rows()] == ["later", "sent again", "sent again"]


def test_events_that_are_parked_last_are_noted_when_the_feed_stops(database: Database) -> None:
    delivery = database.open()
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(1, "\0"))]))
    delivery.give_up([1])
    delivery.close()
    assert database.run("SELECT told FROM {}.headrace_feeds") == [("[1,[],[]]",)]
    assert database.run("SELECT sequence FROM {}.headrace_feed_parked") == [(1,)]


def test_a_server_process_that_stops_is_reported(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = database.open()
    (backend,) = database.run("SELECT backend FROM {}.headrace_feeds")[0]
    monkeypatch.setattr("headrace.feeds.postgres_session._SILENT_SECONDS", 0.3)
    monkeypatch.setattr("headrace.feeds.postgres_session._STATEMENT_SECONDS", 0)
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(SinkUnavailable, match="has not answered for"):
            delivery.deliver(batch_of([("INSERT", item(1))]))
    finally:
        os.kill(backend, signal.SIGCONT)
    monkeypatch.undo()
    delivery.deliver(batch_of([("INSERT", item(1))]))
    assert [row[0] for row in database.rows()] == [1]
