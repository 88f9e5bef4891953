"""The tables of a PostgreSQL that a source names: some that are not there, some that may not be published, emptied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.capture.debezium import reading
from headrace.capture.debezium.postgres import POSTGRES, forget
from headrace.errors import SourceError, SourceUnavailable
from tests.bare_home import BareHome
from tests.e2e.test_capture_postgres import Database, data, polled
from tests.waiting import until

if TYPE_CHECKING:
    from headrace.local import Servers

COLUMNS = StructType([StructField("id", IntegerType(), False), StructField("name", StringType())])


@pytest.fixture
def database(
    request: pytest.FixtureRequest, postgres_server: Servers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    made = Database(postgres_server, f"t{abs(hash(request.node.name)) % 10**9}")
    monkeypatch.setenv("SHOP_PASSWORD", made.password)
    made.run("CREATE TABLE orders (id INT PRIMARY KEY, name TEXT)", "INSERT INTO orders VALUES (1, 'a'), (2, 'b')")
    yield made
    made.connection.close()


def refused(database: Database, **options: str) -> SourceError:
    source = POSTGRES.open(database.description("refused", **options), {})
    try:
        with pytest.raises(SourceError) as raised:
            polled(source, lambda _: False)
    finally:
        source.close()
    assert not isinstance(raised.value, SourceUnavailable)
    assert database.run("SELECT pubname FROM pg_publication") == []
    return raised.value


def test_a_table_among_others_that_is_not_there_is_told(database: Database) -> None:
    assert "no table public.ordres" in refused(database, tables="orders, ordres").message


@pytest.mark.slow
def test_a_table_whose_rows_nobody_could_change_any_more_is_not_published(database: Database) -> None:
    database.run(
        "CREATE TABLE audit (n INT)",
        "INSERT INTO audit VALUES (1)",
        "CREATE TABLE quiet (id INT PRIMARY KEY)",
        "ALTER TABLE quiet REPLICA IDENTITY NOTHING",
    )
    told = refused(database, tables="orders, audit, quiet")
    assert "ALTER TABLE public.audit REPLICA IDENTITY FULL" in told.hint
    assert "ALTER TABLE public.quiet REPLICA IDENTITY FULL" in told.hint
    database.run("UPDATE audit SET n = 2", "ALTER TABLE audit REPLICA IDENTITY FULL", "DROP TABLE quiet")
    description = database.description("allowed", tables="orders, audit")
    source = POSTGRES.open(description, {})
    try:
        polled(source, lambda found: len(data(found)) == 3)
        database.run("UPDATE audit SET n = 3")
        polled(source, lambda found: len(data(found)) == 1)
        assert source.lag().note is None
    finally:
        source.close()
        forget(description)


def test_no_password_where_one_is_asked_for_is_told_and_not_tried_again(database: Database) -> None:
    assert "the option password" in refused(database, password="").hint


@pytest.mark.slow
def test_a_table_that_is_renamed_is_told_and_one_that_is_emptied_is_empty(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_LOOK_SECONDS", 1.0)
    home = BareHome(tmp_path / "home")
    try:
        home.create_table("orders", COLUMNS, ("id",))
        home.execute(
            f"CREATE SOURCE shop FROM POSTGRES '{database.location}' "
            "WITH (tables = 'orders, none*', password = 'env:SHOP_PASSWORD')"
        )

        def rows() -> list[tuple[int, str]]:
            return sorted(tuple(row.values()) for row in home.query("SELECT * FROM orders").to_pylist())

        def warning() -> str | None:
            (row,) = home.execute("SHOW SOURCES").to_pylist()
            assert row["state"] == "Running", row
            return row["warning"]

        until(lambda: rows() == [(1, "a"), (2, "b")])
        until(lambda: warning() == "the database has no table public.none*: nothing comes of it")
        database.run("TRUNCATE orders", "INSERT INTO orders VALUES (3, 'c')")
        until(lambda: rows() == [(3, "c")])
        database.run("ALTER TABLE orders RENAME TO purchases")
        until(lambda: "public.orders" in str(warning()))
        database.run("ALTER TABLE purchases RENAME TO orders", "CREATE TABLE none_yet (id INT PRIMARY KEY)")
        until(lambda: warning() is None)
        home.execute("DROP SOURCE shop")
    finally:
        home.close()
