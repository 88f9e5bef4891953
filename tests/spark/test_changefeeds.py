"""Changefeeds by their statements: what is told, in which order, and what is known of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import FeedError, RelationNameError
from tests.waiting import await_end_of_thread, until


def events(folder: Path) -> list[dict[str, Any]]:
    """All events of the files of a folder, in the order of their names."""
    told: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.ndjson")):
        told += [json.loads(line) for line in path.read_text().splitlines()]
    return told


def feed(home: Any, name: str = "f") -> dict[str, Any]:
    return next(one for one in home.execute("SHOW CHANGEFEEDS").to_pylist() if one["name"] == name)


def rebuilt(told: list[dict[str, Any]]) -> dict[str, Any]:
    """What a receiver holds that keeps the newest row of each key."""
    rows: dict[str, Any] = {}
    for one in told:
        if one["operation"] == "RESET":
            rows.clear()
        elif one["operation"] == "DELETE":
            rows.pop(json.dumps(one["key"]), None)
        else:
            rows[json.dumps(one["key"])] = one["new_row"]
    return rows


@pytest.fixture
def shop(home: Any) -> Any:
    home.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(10,2))")
    home.execute("INSERT INTO orders VALUES (1, 'Oslo', 5.50), (2, 'Rome', 7.00), (3, 'Oslo', 1.00)")
    return home


def test_a_scan_then_changes_then_pause_resume_and_drop(shop: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shop.execute(
        f"CREATE CHANGEFEED f FOR TABLE orders INTO FILES '{out}' "
        "WITH (flush_interval_ms = 10, include_old_values = true)"
    )
    until(lambda: len(events(out)) == 3)
    first = events(out)
    assert [one["sequence"] for one in first] == [1, 2, 3]
    assert {one["operation"] for one in first} == {"INSERT"}
    shop.execute("UPDATE orders SET city = 'Bergen' WHERE id = 1")
    shop.execute("DELETE FROM orders WHERE id = 2")
    until(lambda: len(events(out)) == 5)
    updated, deleted = events(out)[3:]
    assert updated["operation"] == "UPDATE"
    assert (updated["new_row"]["city"], updated["old_row"]["city"]) == ("Bergen", "Oslo")
    assert (deleted["operation"], deleted["new_row"], deleted["key"]) == ("DELETE", None, {"id": 2})
    assert deleted["old_row"] == {"id": 2, "city": "Rome", "amount": "7.00"}
    until(lambda: feed(shop)["lag"] == 0)
    shown = feed(shop)
    assert list(shown)[:8] == [
        "name", "table", "state", "last_sequence", "events_delivered", "lag", "error", "created",
    ]  # fmt: skip
    assert (shown["state"], shown["last_sequence"], shown["events_delivered"]) == ("Running", 5, 5)
    shop.execute("PAUSE CHANGEFEED f")
    assert feed(shop)["state"] == "Paused"
    shop.execute("INSERT INTO orders VALUES (9, 'Paris', 1.00)")
    await_end_of_thread("headrace-feed-f")
    assert len(events(out)) == 5
    shop.execute("RESUME CHANGEFEED f")
    until(lambda: len(events(out)) == 6)
    assert [one["sequence"] for one in events(out)] == [1, 2, 3, 4, 5, 6]
    shop.execute("DROP CHANGEFEED f")
    assert shop.execute("SHOW CHANGEFEEDS").num_rows == 0
    with pytest.raises(RelationNameError, match="no changefeed f"):
        shop.execute("PAUSE CHANGEFEED f")


def test_a_view_without_a_key_and_repeated_rows(shop: Any, tmp_path: Path) -> None:
    shop.execute("CREATE VIEW cities AS SELECT city FROM orders")
    shop.execute(f"CREATE CHANGEFEED f FOR TABLE cities INTO FILES '{tmp_path}' WITH (flush_interval_ms = 10)")
    until(lambda: len(events(tmp_path)) == 3)
    assert sorted(one["key"]["city"] for one in events(tmp_path)) == ["Oslo", "Oslo", "Rome"]


def test_a_filter_sees_the_new_row_and_exits_are_told_when_asked(shop: Any, tmp_path: Path) -> None:
    plain, exits = tmp_path / "plain", tmp_path / "exits"
    for name, folder, more in (("plain", plain, ""), ("exits", exits, ", filter_exits = true")):
        shop.execute(
            f"CREATE CHANGEFEED {name} FOR TABLE orders INTO FILES '{folder}' "
            f"WITH (flush_interval_ms = 10, filter = 'city = ''Oslo'' AND amount > 0'{more})"
        )
    until(lambda: len(events(plain)) == len(events(exits)) == 2)
    shop.execute("UPDATE orders SET city = 'Rome' WHERE id = 1")
    shop.execute("UPDATE orders SET city = 'Oslo' WHERE id = 2")
    shop.execute("DELETE FROM orders WHERE id = 3")
    until(lambda: len(events(plain)) == 4 and len(events(exits)) == 5)
    assert [(one["operation"], one["key"]["id"]) for one in events(plain)[2:]] == [("UPDATE", 2), ("DELETE", 3)]
    assert [(one["operation"], one["key"]["id"]) for one in events(exits)[2:]] == [
        ("DELETE", 1), ("INSERT", 2), ("DELETE", 3),
    ]  # fmt: skip
    for condition in ("nothing > 1", "1 = 1) OR (1 = 1", "id IN (SELECT id FROM orders)", "reflect('a', 'b') = 1"):
        with pytest.raises(FeedError, match="filter of changefeed"):
            shop.execute(f"CREATE CHANGEFEED bad FOR TABLE orders INTO FILES '{plain}' WITH (filter = \"{condition}\")")


def test_a_home_that_is_opened_again_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        hr.execute(f"CREATE CHANGEFEED f FOR TABLE t INTO FILES '{out}' WITH (flush_interval_ms = 10, batch_size = 2)")
        hr.execute("INSERT INTO t SELECT CAST(id AS INT), 1 FROM range(5)")
        until(lambda: len(events(out)) == 5)
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        hr.execute("UPDATE t SET n = 2 WHERE id = 3")
        until(lambda: len(events(out)) == 6)
        assert [one["sequence"] for one in events(out)] == [1, 2, 3, 4, 5, 6]
        hr.execute("ALTER TABLE t ADD COLUMN more STRING")
        hr.execute("INSERT INTO t VALUES (7, 7, 'x')")
        until(lambda: len(rebuilt(events(out))) == 6)
        operations = [one["operation"] for one in events(out)]
        assert operations.count("RESET") == 1
        assert [one["sequence"] for one in events(out)] == list(range(1, len(operations) + 1))
        hr.execute("RESYNC CHANGEFEED f")
        until(lambda: [one["operation"] for one in events(out)].count("RESET") == 2)
        until(lambda: len(rebuilt(events(out))) == 6)
        with pytest.raises(RelationNameError, match="t is in use"):
            hr.execute("DROP TABLE t")
        hr.execute("DROP TABLE t CASCADE")
    with headrace.open(str(tmp_path / "home"), spark=spark, read_only=True) as reader:
        listed: Any = reader.execute("SHOW CHANGEFEEDS")
        assert listed.num_rows == 0


def test_options_that_cannot_be_are_refused(shop: Any, tmp_path: Path) -> None:
    def create(options: str, table: str = "orders", location: str = str(tmp_path)) -> None:
        shop.execute(f"CREATE CHANGEFEED g FOR TABLE {table} INTO FILES '{location}' WITH ({options})")

    with pytest.raises(FeedError) as caught:
        create("batchsize = 10")
    assert caught.value.hint == "did you mean batch_size?"
    for options in ("batch_size = 0", "envelope = 'x'", "resolved = 'soon'", "cursor = 999", "filter_exits = true"):
        with pytest.raises(FeedError):
            create(options)
    with pytest.raises(RelationNameError, match="no table or view nowhere"):
        create("batch_size = 1", "nowhere")
    with pytest.raises(FeedError, match="would keep a secret"):
        create("batch_size = 1", location="file://me:secret@host/x")
    assert shop.execute("SHOW CHANGEFEEDS").num_rows == 0


def test_scans_and_cursors(shop: Any, tmp_path: Path) -> None:
    epoch = shop.epoch
    shop.execute("UPDATE orders SET amount = 2 WHERE id = 1")

    def create(name: str, options: str) -> Path:
        folder = tmp_path / name
        shop.execute(
            f"CREATE CHANGEFEED {name} FOR TABLE orders INTO FILES '{folder}' WITH (flush_interval_ms = 1, {options})"
        )
        return folder

    since = create("since", f"cursor = {epoch}")
    changes = create("changes", "initial_scan = 'no'")
    only = create("only", "initial_scan = 'only', resolved = true")
    until(lambda: feed(shop, "only")["state"] == "Done" and len(events(since)) == 1)
    shop.execute("DELETE FROM orders WHERE id = 1")
    until(lambda: len(events(since)) == 2 and len(events(changes)) == 1)
    assert [one["operation"] for one in events(since)] == ["UPDATE", "DELETE"]
    assert len(events(only)) == 3
    shop.execute("ALTER CHANGEFEED changes SET (envelope = 'debezium')")
    shop.execute("DELETE FROM orders WHERE id = 2")
    until(lambda: len(events(changes)) == 2)
    assert events(changes)[1]["op"] == "d"
