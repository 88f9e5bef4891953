"""Changefeeds by their statements into a real PostgreSQL and a real Redis: what is there equals the relation."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace
from tests.e2e.test_feed_redis import Store
from tests.feed_database import Database
from tests.redis_server import MISSING, PROGRAM, RedisServer
from tests.waiting import until

_MADE = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(10,2), at TIMESTAMP);
CREATE VIEW by_city AS SELECT city, count(*) AS n, sum(amount) AS total FROM orders GROUP BY city;
INSERT INTO orders VALUES (1, 'Oslo', 5.50, TIMESTAMP'2026-01-02 03:04:05'), (2, 'Rome', 7.00, NULL),
    (3, NULL, 1.00, NULL)
"""


def feed(home: Any, name: str) -> dict[str, Any]:
    return next(one for one in home.execute("SHOW CHANGEFEEDS").to_pylist() if one["name"] == name)


@pytest.fixture
def shop(home: Any, database: Database, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SHOP_LOCATION", database.location("orders"))
    monkeypatch.setenv("CITIES_LOCATION", database.location("by_city"))
    home.execute(_MADE)
    return home


def test_tables_that_equal_their_relations(shop: Any, database: Database) -> None:
    options = "flush_interval_ms = 10, batch_size = 100"
    shop.execute(
        f"CREATE CHANGEFEED o FOR TABLE orders INTO POSTGRES 'env:SHOP_LOCATION' "
        f"WITH ({options}, indexes = 'city; city, at DESC');"
        f"CREATE CHANGEFEED c FOR TABLE by_city INTO POSTGRES 'env:CITIES_LOCATION' WITH ({options})"
    )
    until(lambda: equal_rows(shop, database, "orders", 3) and equal_rows(shop, database, "by_city", 3))
    shop.execute("UPDATE orders SET city = 'Rome' WHERE id = 1; DELETE FROM orders WHERE id = 3")
    shop.execute("INSERT INTO orders SELECT id + 100, 'Bergen', 1.25, now() FROM range(1000)")
    until(lambda: equal_rows(shop, database, "orders", 1002) and equal_rows(shop, database, "by_city", 2))
    shop.execute("ALTER TABLE orders ADD COLUMN note STRING; INSERT INTO orders VALUES (9, 'Oslo', 1, NULL, 'new')")
    until(lambda: equal_rows(shop, database, "orders", 1003))
    assert database.run("SELECT note FROM {}.orders WHERE id = 9") == [("new",)]
    # Somebody writes into the table; a resync puts it right.
    database.run(
        "UPDATE {}.orders SET city = 'wrong'; DELETE FROM {}.orders WHERE id > 500".replace("{}", database.schema)
    )
    shop.execute("RESYNC CHANGEFEED o")
    until(lambda: equal_rows(shop, database, "orders", 1003))
    shop.execute("DROP CHANGEFEED o; DROP CHANGEFEED c")
    assert database.run("SELECT * FROM {}.headrace_feeds") == []
    assert len(database.rows("orders")) == 1003


def test_a_row_that_the_table_refuses_is_parked_and_sent_after_all(shop: Any, database: Database) -> None:
    shop.execute(
        "CREATE CHANGEFEED o FOR TABLE orders INTO POSTGRES 'env:SHOP_LOCATION' "
        "WITH (flush_interval_ms = 10, max_retries = 1)"
    )
    until(lambda: equal_rows(shop, database, "orders", 3))
    database.run("ALTER TABLE {}.orders ADD CONSTRAINT positive CHECK (amount > 0)")
    shop.execute("INSERT INTO orders VALUES (10, 'Oslo', -1, NULL), (11, 'Oslo', 1, NULL)")
    until(lambda: shop.execute("SELECT * FROM parked_events").num_rows == 1)
    assert [row[0] for row in database.rows("orders")] == [1, 2, 3, 11]
    (parked,) = shop.execute("SELECT * FROM parked_events").to_pylist()
    assert "positive" in parked["reason"]
    database.run("ALTER TABLE {}.orders DROP CONSTRAINT positive")
    shop.execute("REPLAY PARKED EVENTS")
    until(lambda: equal_rows(shop, database, "orders", 5))
    shop.execute("DROP CHANGEFEED o")


def test_a_server_that_is_away_for_a_while(shop: Any, database: Database) -> None:
    shop.execute("CREATE CHANGEFEED o FOR TABLE orders INTO POSTGRES 'env:SHOP_LOCATION' WITH (flush_interval_ms = 10)")
    until(lambda: equal_rows(shop, database, "orders", 3))
    database.servers.kill_postgres()
    shop.execute("INSERT INTO orders SELECT id + 100, 'Bergen', 1.25, NULL FROM range(500)")
    until(lambda: feed(shop, "o")["error"] is not None)
    assert feed(shop, "o")["state"] == "Running"
    assert "password" not in str(feed(shop, "o"))
    database.servers.postgres.start()
    until(lambda: equal_rows(shop, database, "orders", 503))
    until(lambda: feed(shop, "o")["error"] is None)
    shop.execute("DROP CHANGEFEED o")


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_hashes_of_a_view(home: Any, tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    home.execute(_MADE)
    with RedisServer(folder) as server:
        store = Store(server)
        home.execute(f"CREATE CHANGEFEED r FOR TABLE orders INTO REDIS '{store.url}' WITH (flush_interval_ms = 10)")
        until(lambda: len(store.client.keys("orders:*")) == 3)
        assert store.client.hgetall('orders:{"id":1}') == {
            "id": "1",
            "city": "Oslo",
            "amount": "5.50",
            "at": "2026-01-02T03:04:05+00:00",
        }
        home.execute("UPDATE orders SET amount = 8 WHERE id = 1; DELETE FROM orders WHERE id = 2")
        until(lambda: len(store.client.keys("orders:*")) == 2)
        until(lambda: store.client.hget('orders:{"id":1}', "amount") == "8.00")
        store.client.hset('orders:{"id":77}', "id", "77")
        home.execute("RESYNC CHANGEFEED r")
        until(lambda: len(store.client.keys("orders:*")) == 2)
        home.execute("DROP CHANGEFEED r")
        store.close()


def test_what_a_statement_cannot_say(shop: Any) -> None:
    for text, told in {
        "'postgresql://u@h/d'": "needs the URL of a database and the name of a table",
        "'postgresql://u:secret@h/d/t' WITH (mode = 'merge')": "mode cannot be",
        "'env:SHOP_LOCATION' WITH (keys = 'nobody')": "is no column",
        "'env:SHOP_LOCATION' WITH (mode = 'merge')": "mode cannot be",
    }.items():
        with pytest.raises(headrace.HeadraceError, match=told) as refused:
            shop.execute(f"CREATE CHANGEFEED x FOR TABLE orders INTO POSTGRES {text}")
        assert refused.value.hint
        assert "secret@" not in str(refused.value)


def equal_rows(home: Any, database: Database, name: str, count: int) -> bool:
    """Whether a table has these many rows and each is the relation's."""
    try:
        found = database.rows(name)
    except Exception:
        # It is not there yet, or its server is not.
        return False
    if len(found) != count:
        return False
    expected = [tuple(row.values()) for row in home.query(f"SELECT * FROM {name}").to_pylist()]
    return sorted(found, key=repr_of) == sorted(expected, key=repr_of)


def repr_of(row: tuple[Any, ...]) -> str:
    return repr([str(one) if isinstance(one, Decimal) else one for one in row[:1]])
