"""A real MySQL followed without Kafka, where this machine can run one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql.types import DecimalType, IntegerType, StringType, StructField, StructType

from headrace.capture.debezium.mysql import kind_of
from tests.bare_home import BareHome
from tests.mysql_server import connected, lacks, mysql_server
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(lacks() is not None, reason=str(lacks()))]
ORDERS = StructType(
    [
        StructField("id", IntegerType(), False),
        StructField("customer", StringType()),
        StructField("amount", DecimalType(10, 2)),
    ]
)
ASKED = "SELECT id, customer, amount FROM orders"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with mysql_server(tmp_path / "mysql") as found:
        yield found


def run(url: str, *statements: str) -> list[Any]:
    with connected(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return sorted(cursor.fetchall())


def test_it_is_followed_row_by_row(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = urlsplit(url)
    assert kind_of(at) == "mysql"
    monkeypatch.setenv("SHOP_PASSWORD", str(at.password))
    values = ", ".join(f"({number}, 'a', {number} * 1.25)" for number in range(1, 301))
    run(
        url,
        "CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount DECIMAL(10, 2))",
        f"INSERT INTO orders VALUES {values}",
    )
    home = BareHome(tmp_path / "home")
    try:
        home.create_table("orders", ORDERS, ("id",))

        def agree() -> bool:
            mine = sorted(tuple(row.values()) for row in home.query("SELECT * FROM orders").to_pylist())
            return mine == run(url, ASKED)

        def told() -> dict[str, Any]:
            (row,) = home.execute("SHOW SOURCES").to_pylist()
            assert row["state"] != "Error", row
            return row

        location = f"mysql://{at.username}@{at.hostname}:{at.port}{at.path}"
        home.execute(f"CREATE SOURCE shop INTO orders FROM MYSQL '{location}' WITH (password = 'env:SHOP_PASSWORD')")
        until(lambda: bool(told()) and agree())
        run(url, "UPDATE orders SET amount = amount + 1 WHERE id < 50", "DELETE FROM orders WHERE id % 7 = 0")
        until(lambda: bool(told()) and agree())
        # Also what happens while nobody reads.
        home.execute("PAUSE SOURCE shop")
        run(
            url,
            "INSERT INTO orders VALUES (1000, 'late', 1)",
            "UPDATE orders SET id = 2000 WHERE id = 1",
        )
        home.execute("RESUME SOURCE shop")
        until(lambda: bool(told()) and agree())
        # A table that was changed here behind the source's back is brought once more, between its changes.
        home.apply({"orders": [{"insert": {"id": 2, "customer": "wrong", "amount": 0}}]})
        home.execute("SNAPSHOT SOURCE shop TABLE orders")
        run(url, "UPDATE orders SET customer = 'd' WHERE id = 10")
        until(lambda: bool(told()) and agree())
        row = told()
        assert (row["dead"], row["state"]) == (0, "Running")
        home.execute("DROP SOURCE shop")
    finally:
        home.close()
