"""Snapshot sources: Delta tables read whole into one epoch."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headrace
from headrace import (
    ChangesRejected,
    Headrace,
    RelationNameError,
    SourceError,
    Step,
    ViewEvaluationError,
)
from tests.thinned import thinned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(10,2))"
REVENUE = "CREATE VIEW revenue AS SELECT city, SUM(amount) AS amount FROM orders GROUP BY city"


def orders_table(*rows: tuple[int, str | None, str]) -> pa.Table:
    ids, cities, amounts = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array(cities, pa.string()),
            "amount": pa.array([Decimal(one) for one in amounts], pa.decimal128(10, 2)),
        }
    )


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """A Delta table of two versions."""
    path = str(tmp_path / "orders")
    write_deltalake(path, orders_table((1, "Oslo", "10.00"), (2, "Oslo", "5.50")))
    write_deltalake(path, orders_table((3, "Rome", "7.00")), mode="append")
    return path


def create(name: str, table: str, path: str | Path, more: str = "") -> str:
    return f"CREATE SOURCE {name} INTO {table} FROM DELTA '{path}' WITH (mode = 'snapshot'{more})"


def rows(hr: Headrace, sql: str) -> list[dict[str, Any]]:
    return hr.query(sql).to_pylist()


def test_a_snapshot_is_there_when_its_statement_returns(home: Headrace, orders: str) -> None:
    home.execute(ORDERS)
    home.execute(REVENUE)
    assert home.execute(create("shop", "orders", orders)) is None
    assert home.epoch == 3
    expected = [{"city": "Oslo", "amount": Decimal("15.50")}, {"city": "Rome", "amount": Decimal("7.00")}]
    assert rows(home, "SELECT * FROM revenue ORDER BY city") == expected
    assert home.verify().ok
    (shown,) = home.execute("SHOW SOURCES").to_pylist()
    assert {name: shown[name] for name in ("name", "table", "state", "version", "rows", "epoch")} == {
        "name": "shop",
        "table": "orders",
        "state": "Done",
        "version": 1,
        "rows": 3,
        "epoch": 3,
    }
    home.apply({"orders": [{"insert": {"id": 1, "city": "Rome", "amount": "1.00"}}]})
    assert home.verify().ok


def test_the_sources_of_a_script_are_read_into_one_epoch(home: Headrace, orders: str, tmp_path: Path) -> None:
    cities = tmp_path / "cities"
    write_deltalake(str(cities), pa.table({"land": ["NO"], "NAME": ["Oslo"]}))
    home.execute(
        f"{ORDERS}; {create('shop', 'orders', orders)}; CREATE TABLE cities (name STRING PRIMARY KEY, land STRING);"
        f"{create('lands', 'cities', cities)};"
        "CREATE VIEW by_land AS SELECT land, COUNT(*) AS n FROM orders JOIN cities ON city = name GROUP BY land"
    )
    shown = home.execute("SHOW SOURCES").to_pylist()
    assert {one["name"]: (one["rows"], one["epoch"]) for one in shown} == {"shop": (3, 4), "lands": (1, 4)}
    assert rows(home, "SELECT * FROM by_land") == [{"land": "NO", "n": 2}]
    assert home.query("SELECT * FROM orders", epoch=home.epoch - 1).num_rows == 0


def test_a_statement_that_reads_sees_the_sources_before_it(home: Headrace, orders: str) -> None:
    counted = home.execute(f"{ORDERS}; {create('shop', 'orders', orders)}; SELECT COUNT(*) AS n FROM orders")
    assert counted.to_pylist() == [{"n": 3}]


def test_a_source_is_read_once(spark: SparkSession, tmp_path: Path, orders: str) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute(f"{ORDERS}; {create('shop', 'orders', orders, ', version = 0')}")
        assert rows(hr, "SELECT COUNT(*) AS n FROM orders") == [{"n": 2}]
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        epoch = hr.epoch
        hr.execute(create("IF NOT EXISTS shop", "orders", orders))
        assert hr.epoch == epoch
        with pytest.raises(RelationNameError, match="source shop exists already"):
            hr.execute(create("shop", "orders", orders))
        (shown,) = hr.execute("SHOW SOURCES").to_pylist()
        assert (shown["version"], shown["rows"], shown["epoch"]) == (0, 2, epoch)


def test_a_source_is_dropped_and_its_rows_stay(spark: SparkSession, tmp_path: Path, orders: str) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute(f"{ORDERS}; {create('shop', 'orders', orders)}")
        with pytest.raises(RelationNameError, match="orders is in use") as error:
            hr.execute("DROP TABLE orders")
        assert error.value.hint == "write DROP SOURCE shop first"
        for verb, past in (("PAUSE", "paused"), ("RESUME", "resumed")):
            with pytest.raises(SourceError, match=f"source shop cannot be {past}") as refused:
                hr.execute(f"{verb} SOURCE shop")
            assert "read whole at epoch 2" in refused.value.detail
        hr.execute("DROP SOURCE shop")
        with pytest.raises(RelationNameError, match="there is no source shop"):
            hr.execute("DROP SOURCE shop")
        hr.execute("DROP SOURCE IF EXISTS shop")
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert hr.execute("SHOW SOURCES").num_rows == 0
        assert rows(hr, "SELECT COUNT(*) AS n FROM orders") == [{"n": 3}]
        hr.execute(create("shop", "orders", orders))
        assert rows(hr, "SELECT COUNT(*) AS n FROM orders") == [{"n": 3}]


def test_a_snapshot_replaces_the_rows_of_known_keys(home: Headrace, orders: str) -> None:
    home.execute(f"{ORDERS}; {REVENUE}; INSERT INTO orders VALUES (2, 'Rome', 1.00), (9, 'Rome', 1.00)")
    home.execute(create("shop", "orders", orders))
    assert rows(home, "SELECT id, city FROM orders ORDER BY id") == [
        {"id": 1, "city": "Oslo"},
        {"id": 2, "city": "Oslo"},
        {"id": 3, "city": "Rome"},
        {"id": 9, "city": "Rome"},
    ]
    assert home.verify().ok


def test_all_columns_that_do_not_fit_are_told_at_once(home: Headrace, orders: str) -> None:
    home.execute("CREATE TABLE t (id INT PRIMARY KEY, town STRING, amount DECIMAL(10,2))")
    with pytest.raises(SourceError, match="the columns of source s are not those of table t") as error:
        home.execute(create("s", "t", orders))
    assert error.value.detail == (
        "column id is bigint, not int; column town string is missing; column city string is not in t."
    )
    assert home.epoch == 1


def test_what_is_not_there_is_told(home: Headrace, orders: str, tmp_path: Path) -> None:
    home.execute(f"{ORDERS}; CREATE VIEW v AS SELECT id FROM orders")
    (tmp_path / "plain").mkdir()
    for path, more, message in (
        (tmp_path / "nowhere", "", "there is no Delta table at"),
        (tmp_path / "plain", "", "is not a Delta table"),
        (orders, ", version = 7", "version 7 of the Delta table"),
    ):
        with pytest.raises(SourceError, match=message) as error:
            home.execute(create("s", "orders", path, more))
        assert error.value.hint
    with pytest.raises(RelationNameError, match="v is a view"):
        home.execute(create("s", "v", orders))
    with pytest.raises(RelationNameError, match="there is no table t"):
        home.execute(create("s", "t", orders))
    assert home.execute("SHOW SOURCES").num_rows == 0


def test_a_key_that_comes_twice_is_refused_by_name(home: Headrace, orders: str, tmp_path: Path) -> None:
    path = str(tmp_path / "twice")
    write_deltalake(path, orders_table((1, "Oslo", "1.00"), (2, "Oslo", "2.00"), (1, "Rome", "3.00")))
    home.execute(f"{ORDERS}; CREATE TABLE others (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(10,2))")
    with pytest.raises(ChangesRejected) as error:
        home.execute(f"{create('good', 'others', orders)}; {create('bad', 'orders', path)}")
    assert [one.reason for one in error.value.rejections] == ["key {'id': 1} comes 2 times"]
    assert home.execute("SHOW SOURCES").num_rows == 0
    assert rows(home, "SELECT COUNT(*) AS n FROM others") == [{"n": 0}]


def test_a_missing_value_is_refused(home: Headrace, tmp_path: Path) -> None:
    path = str(tmp_path / "gaps")
    write_deltalake(path, orders_table((1, "Oslo", "1.00"), (2, None, "2.00")))
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, city STRING NOT NULL, amount DECIMAL(10,2))")
    with pytest.raises(ChangesRejected, match="column city is NULL"):
        home.execute(create("s", "t", path))


def test_a_view_that_fails_on_the_snapshot_refuses_it(home: Headrace, orders: str) -> None:
    home.execute(f"{ORDERS}; CREATE VIEW v AS SELECT id, 1 / (id - 2) AS x FROM orders")
    with pytest.raises(ViewEvaluationError, match="view v cannot be computed"):
        home.execute(create("shop", "orders", orders))
    assert home.execute("SHOW SOURCES").num_rows == 0
    assert rows(home, "SELECT COUNT(*) AS n FROM orders") == [{"n": 0}]


def test_a_table_with_a_sequence_takes_snapshots(home: Headrace, tmp_path: Path) -> None:
    path = str(tmp_path / "readings")
    write_deltalake(path, pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array([5, 5], pa.int64())}))
    home.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, at BIGINT NOT NULL) SEQUENCE BY at")
    home.execute(create("first", "t", path))
    home.apply({"t": [{"insert": {"id": 1, "at": 9}}, {"delete": {"id": 2, "at": 8}}]})
    home.execute(create("again", "t", path))
    assert rows(home, "SELECT * FROM t") == [{"id": 1, "at": 9}]


def test_a_bag_takes_equal_rows(home: Headrace, tmp_path: Path) -> None:
    path = str(tmp_path / "bag")
    write_deltalake(path, pa.table({"a": pa.array([1, 1, 2], pa.int32())}))
    home.execute(f"CREATE TABLE bag (a INT); {create('s', 'bag', path)}")
    assert rows(home, "SELECT a, COUNT(*) AS n FROM bag GROUP BY a ORDER BY a") == [{"a": 1, "n": 2}, {"a": 2, "n": 1}]


SPARK_TABLES = {
    "vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = true)",
    "partitioned": "PARTITIONED BY (city)",
    "mapped": "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "plain": "",
}


@pytest.mark.parametrize("kind", thinned(SPARK_TABLES, 4))
def test_tables_that_spark_wrote(home: Headrace, spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Whatever the table asks of its readers, its rows are those that Spark reads; ancient instants included."""
    path = tmp_path / kind
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, city STRING, at TIMESTAMP, day DATE, tags ARRAY<STRING>) "
        f"USING delta {SPARK_TABLES[kind]}"
    )
    spark.sql(
        f"INSERT INTO delta.`{path}` VALUES "
        "(1, 'Oslo', TIMESTAMP '2025-01-01 12:00:00.123456', DATE '2025-01-01', array('a', NULL)), "
        "(2, 'Rome', TIMESTAMP '1600-01-01 00:00:00', DATE '1500-03-01', array()), (3, NULL, NULL, NULL, NULL)"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (4, 'Rome', NULL, NULL, NULL)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 4")
    if kind == "plain":
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (late INT)")
    late = ", late INT" if kind == "plain" else ""
    home.execute(
        f"CREATE TABLE t (id BIGINT PRIMARY KEY, city STRING, at TIMESTAMP, day DATE, tags ARRAY<STRING>{late});"
        f"{create('s', 't', path)}"
    )
    found = rows(home, "SELECT * FROM t ORDER BY id")
    assert [one["id"] for one in found] == [1, 2, 3]
    assert found[0]["at"] == dt.datetime(2025, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
    assert (found[1]["at"], found[1]["day"]) == (dt.datetime(1600, 1, 1, tzinfo=dt.UTC), dt.date(1500, 3, 1))
    assert [one["tags"] for one in found] == [["a", None], [], None]
    assert [one["city"] for one in found] == ["Oslo", "Rome", None]
    assert home.execute("SHOW SOURCES").column("rows").to_pylist() == [3]


def test_an_empty_table_is_a_source_too(home: Headrace, tmp_path: Path) -> None:
    path = str(tmp_path / "empty")
    write_deltalake(path, orders_table((1, "Oslo", "1.00")).slice(0, 0))
    home.execute(f"{ORDERS}; {REVENUE}; {create('shop', 'orders', path)}")
    assert home.execute("SHOW SOURCES").column("rows").to_pylist() == [0]
    assert home.query("SELECT * FROM revenue").num_rows == 0


def test_who_listens_is_told_how_far_it_is(home: Headrace, orders: str) -> None:
    steps: list[Step] = []
    home.execute(ORDERS)
    with home.watch(steps.append):
        home.execute(create("shop", "orders", orders))
        home.execute(REVENUE)
    heard = len(steps)
    home.execute("CREATE VIEW more AS SELECT id FROM orders")
    assert len(steps) == heard
    tables = [one for one in steps if one.kind == "table"]
    assert (tables[0].relation, tables[0].done) == ("orders", 0)
    assert (tables[-1].done, tables[-1].total) == (3, 3)
    views = [one for one in steps if one.kind == "view"]
    assert {one.relation for one in views} == {"revenue"}
    assert views[0].done == 0
    assert views[-1].done == views[-1].total == 2


@pytest.mark.slow
def test_a_large_snapshot_goes_by_way_of_files(home: Headrace, tmp_path: Path) -> None:
    """More rows than a rule may bring to the driver: every view over them is filled, and maintained from there on."""
    count = 300_000
    path = str(tmp_path / "large")
    table = pa.table(
        {"id": pa.array(range(count), pa.int64()), "g": pa.array([i % 7 for i in range(count)], pa.int64())}
    )
    write_deltalake(path, table)
    home.execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT);"
        "CREATE VIEW kept AS SELECT id, g FROM t WHERE g < 6;"
        "CREATE VIEW n AS SELECT g, COUNT(*) AS n FROM kept GROUP BY g;"
        f"{create('s', 't', path)}"
    )
    assert home.verify().ok
    home.apply({"t": [{"delete": {"id": 0}}, {"insert": {"id": 1, "g": 5}}, {"insert": {"id": -1, "g": 0}}]})
    assert home.verify().ok
    counts = {one["g"]: one["n"] for one in rows(home, "SELECT * FROM n")}
    expected = {g: sum(i % 7 == g for i in range(count)) for g in range(6)}
    assert counts == {**expected, 1: expected[1] - 1, 5: expected[5] + 1}
