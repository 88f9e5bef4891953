"""A MariaDB followed without Kafka, where this machine has one."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.capture.connector import Arrival, Description
from headrace.capture.debezium.mysql import MYSQL
from headrace.errors import SourceError
from headrace.local import Servers
from tests.e2e import test_local_mariadb
from tests.e2e.test_capture_kafka import rows, shown
from tests.e2e.test_capture_postgres import data, polled, position_after
from tests.e2e.test_local_mariadb import mariadb, run
from tests.waiting import until

pytestmark = test_local_mariadb.pytestmark
__all__ = ["mariadb"]


def afters(arrivals: list[Arrival]) -> list[Any]:
    return [json.loads(one.record.value or b"{}")["payload"]["after"] for one in data(arrivals)]


@pytest.mark.slow
def test_it_is_followed_row_by_row(home: Any, mariadb: Servers, monkeypatch: Any) -> None:
    url = urlsplit(mariadb.mariadb_dsn)
    monkeypatch.setenv("SHOP_PASSWORD", str(url.password))
    run(
        mariadb,
        "CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount DECIMAL(10, 2))",
        "INSERT INTO orders SELECT seq, 'a', seq * 1.25 FROM seq_1_to_300",
    )
    home.execute("CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount DECIMAL(10, 2))")
    home.execute(
        f"CREATE SOURCE shop INTO orders FROM MYSQL 'mysql://{url.username}@{url.hostname}:{url.port}{url.path}' "
        "WITH (password = 'env:SHOP_PASSWORD')"
    )
    asked = "SELECT id, customer, amount FROM orders"
    until(lambda: rows(home, asked) == sorted(run(mariadb, asked)))
    run(mariadb, "UPDATE orders SET amount = amount + 1 WHERE id < 50", "DELETE FROM orders WHERE id % 7 = 0")
    until(lambda: rows(home, asked) == sorted(run(mariadb, asked)))
    home.execute("PAUSE SOURCE shop")
    run(mariadb, "INSERT INTO orders VALUES (1000, 'late', 1)", "UPDATE orders SET id = 2000 WHERE id = 1")
    home.execute("RESUME SOURCE shop")
    until(lambda: rows(home, asked) == sorted(run(mariadb, asked)))
    run(mariadb, "TRUNCATE TABLE orders", "INSERT INTO orders VALUES (1, 'new', 1)")
    until(lambda: rows(home, asked) == sorted(run(mariadb, asked)))
    assert (shown(home, "shop")["dead"], shown(home, "shop")["state"]) == (0, "Running")
    home.execute("DROP SOURCE shop")


def test_a_table_among_others_that_is_not_there_is_told(mariadb: Servers) -> None:
    url = urlsplit(mariadb.mariadb_dsn)
    location = f"mysql://{url.username}@{url.hostname}:{url.port}{url.path}"
    run(mariadb, "CREATE TABLE Named (id INT PRIMARY KEY)")
    reading = MYSQL.open(
        Description("none", location, {"password": str(url.password), "tables": "named, nameless"}), {}
    )
    try:
        with pytest.raises(SourceError, match=r"has no table \w+\.nameless\b"):
            polled(reading, lambda _: False)
    finally:
        reading.close()


@pytest.mark.slow
def test_what_its_tables_were_is_known_after_a_restart(mariadb: Servers) -> None:
    url = urlsplit(mariadb.mariadb_dsn)
    location = f"mysql://{url.username}@{url.hostname}:{url.port}{url.path}"
    description = Description("words", location, {"password": str(url.password), "tables": "words"})
    run(mariadb, "CREATE TABLE words (id INT PRIMARY KEY, word TEXT)", "INSERT INTO words VALUES (1, 'a')")
    reading = MYSQL.open(description, {})
    try:
        first = polled(reading, lambda found: len(data(found)) == 1)
        run(mariadb, "INSERT INTO words VALUES (2, 'b')")
        first += polled(reading, lambda found: len(data(found)) == 1 and found[-1].whole)
    finally:
        reading.close()
    run(
        mariadb,
        "INSERT INTO words VALUES (3, 'c')",
        "ALTER TABLE words ADD COLUMN length INT FIRST",
        "INSERT INTO words VALUES (1, 4, 'd')",
    )
    reading = MYSQL.open(description, position_after(first))
    try:
        found = polled(reading, lambda found: len(data(found)) == 2)
        assert afters(found) == [{"id": 3, "word": "c"}, {"length": 1, "id": 4, "word": "d"}]
    finally:
        reading.close()
