"""Tables of a real PostgreSQL that feeds make, check and widen: every type, every name, indexes."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable
from tests.feed_batches import ITEMS, MOMENT, batch_of
from tests.feed_database import Database, item
from tests.unit.test_types import EXAMPLES


def table_of(*fields: tuple[str, Any]) -> StructType:
    return StructType([StructField("id", IntegerType(), False), *(StructField(name, kind) for name, kind in fields)])


def test_every_type_comes_back_as_it_was(database: Database) -> None:
    columns = table_of(*((f"c{index}", one.kind) for index, one in enumerate(EXAMPLES)))
    rows: list[dict[str, Any]] = [{"id": number} for number in range(3)]
    for index, one in enumerate(EXAMPLES):
        rows[0][f"c{index}"], rows[1][f"c{index}"] = one.values
    delivery = database.open(columns=columns)
    delivery.deliver(batch_of([("INSERT", row) for row in rows], columns=columns))
    found = database.rows()
    assert found[2] == (2, *(None for _ in EXAMPLES))
    for row, told in zip(rows[:2], found, strict=False):
        # Nested values are in their JSON form, a map as an object.
        expected = [dict(value) if _is_map(value) else value for value in row.values()]
        assert list(told) == expected


def _is_map(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], tuple)


def test_values_at_the_edges(database: Database) -> None:
    columns = table_of(
        ("text", StringType()),
        ("double", DoubleType()),
        ("float", FloatType()),
        ("long", LongType()),
        ("entries", MapType(StringType(), StringType())),
    )
    hostile = ["", "\\N", "\\.", "a\tb\nc\rd\\e", "'; DROP TABLE items; --", '"{},NULL', "ü€𝄞", " ", "\x01\x7f"]
    numbers = [0.1, -0.0, 1e308, 5e-324, float("inf"), float("-inf"), 1 / 3, 2.0**53, -1.5]
    rows = [
        {
            "id": index,
            "text": text,
            "double": number,
            "float": pa.scalar(number, pa.float32()).as_py(),
            "long": (-1) ** index * (2**63 - 1),
            "entries": [(text, text)],
        }
        for index, (text, number) in enumerate(zip(hostile, numbers, strict=True))
    ]
    database.open(columns=columns).deliver(batch_of([("INSERT", row) for row in rows], columns=columns))
    expected = [tuple({**row, "entries": dict(row["entries"])}.values()) for row in rows]
    found = database.run('SELECT id, text, "double", "float"::float8, long, entries FROM {}.items ORDER BY id')
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2:] for row in found] == [row[2:] for row in expected]


def test_times_of_any_year(database: Database) -> None:
    columns = table_of(("day", DateType()), ("at", TimestampType()), ("local", TimestampNTZType()))
    day = 86_400_000_000
    # 44 BC, the year 0 of ISO 8601, 10000, and the first day of PostgreSQL's calendar.
    days = [-735_233, -719_468, 2_932_897, -2_440_588, 0]
    table = pa.table(
        {
            "id": pa.array(range(5), pa.int32()),
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "at": pa.array([one * day + 1 for one in days], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "local": pa.array([one * day for one in days], pa.int64()).cast(pa.timestamp("us")),
        }
    )
    batch = batch_of([("INSERT", {"id": number}) for number in range(5)], columns=columns)
    object.__setattr__(batch, "rows", table)
    delivery = database.open(columns=columns)
    delivery.deliver(batch)
    read = "day - date '1970-01-01', extract(epoch FROM at) * 1000000, extract(epoch FROM local) * 1000000"
    found = database.run(f"SELECT {read} FROM {{}}.items ORDER BY id")
    assert [tuple(map(int, row)) for row in found] == [(one, one * day + 1, one * day) for one in days]
    before = batch_of([("INSERT", {"id": 9}), ("INSERT", {"id": 10, "day": date(2020, 1, 1)})], 6, columns=columns)
    object.__setattr__(
        before, "rows", before.rows.set_column(1, "day", pa.array([-2_440_589, 1], pa.int32()).cast(pa.date32()))
    )
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(before)
    assert refused.value.refused[0].startswith("day: its date is outside of PostgreSQL's calendar")
    assert database.run("SELECT count(*) FROM {}.items") == [(6,)]


def test_text_that_is_none_is_refused_with_its_row(database: Database) -> None:
    batch = batch_of([("INSERT", item(1)), ("INSERT", item(2))])
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 2, 4], pa.int32()).buffers()[1], pa.py_buffer(b"ok\xff\xfe")]
    )
    object.__setattr__(batch, "rows", batch.rows.set_column(1, "name", broken))
    with pytest.raises(EventsRefused) as refused:
        database.open().deliver(batch)
    assert refused.value.refused == {1: "name: its text is not UTF-8"}
    assert [row[:2] for row in database.rows()] == [(1, "ok")]


def test_hostile_names_are_names(database: Database) -> None:
    name = 'a"b; DROP TABLE x; --{}%s\\'
    long = "ü" * 31
    columns = StructType([StructField(name, IntegerType(), False), StructField(long, StringType())])
    table = "T\"a/b.c'%{}"
    from urllib.parse import quote

    encoded = quote(table, safe="").replace(".", "%2E")
    options = {"indexes": '"{}" DESC NULLS LAST, {}; {}'.format(name.replace('"', '""'), long, long)}
    parts: dict[str, Any] = {"columns": columns, "key": (name,)}
    delivery = database.open(encoded, options=options, **parts)
    delivery.deliver(batch_of([("INSERT", {name: 1, long: "x"}), ("UPDATE", {name: 1, long: "y"})], **parts))
    delivery.deliver(batch_of([("INSERT", {name: 2, long: "z"}), ("DELETE", {name: 1, long: "y"})], 3, **parts))
    found = database.run(
        "SELECT relname::text FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'", database.schema
    )
    assert (table,) in found
    quoted = '"' + table.replace('"', '""').replace("{", "{{").replace("}", "}}") + '"'
    assert database.run(f"SELECT * FROM {{}}.{quoted}") == [(2, "z")]


def test_indexes_of_the_statement(database: Database) -> None:
    options = {"indexes": "name; NAME, price DESC NULLS LAST; ; name"}
    database.open(options=options).close()
    database.open(options=options, fence=1)
    found = database.run(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = 'items'", database.schema
    )
    columns = sorted(one[0].partition("USING btree ")[2] for one in found)
    assert columns == ["(id)", "(name)", "(name, price DESC NULLS LAST)"]


def test_new_columns_are_added_while_it_runs(database: Database) -> None:
    delivery = database.open()
    delivery.deliver(batch_of([("INSERT", item(1))]))
    wider = StructType([*ITEMS.fields, StructField("note", StringType()), StructField("at", TimestampType())])
    delivery.deliver(batch_of([("INSERT", {**item(2), "note": "x", "at": MOMENT})], 2, wider))
    narrower = StructType([ITEMS.fields[0], wider.fields[3]])
    delivery.deliver(batch_of([("UPDATE", {"id": 1, "note": "y"})], 3, narrower))
    assert [row[0::3] for row in database.rows()] == [(1, "y"), (2, "x")]
    # Another session, with the columns of the relation as they were when the statement was run.
    again = database.open(fence=1)
    again.deliver(batch_of([("INSERT", {**item(3), "note": "z", "at": MOMENT})], 4, wider))
    assert [row[3] for row in database.rows()] == ["y", "x", "z"]


def test_tables_of_others_are_checked(database: Database) -> None:
    database.run("CREATE TYPE {}.mood AS ENUM ('n1', 'n2')")
    database.run("CREATE TABLE {0}.fits (id bigint UNIQUE NOT NULL, name {0}.mood, extra int DEFAULT 7)")
    delivery = database.open("fits", feed_id="fits")
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch_of([("INSERT", item(1)), ("INSERT", item(9))]))
    assert "invalid input value for enum" in refused.value.refused[1]
    assert database.run("SELECT id, name::text, extra, price FROM {}.fits") == [(1, "n1", 7, Decimal("1.50"))]
    for definition, told in {
        "id int": "has no primary key and no unique index",
        "id int PRIMARY KEY, name int": "column name of .* is integer, and string needs text",
        "id int PRIMARY KEY, price numeric(9,2)": "price",
        "id int PRIMARY KEY, other int NOT NULL": "must not be NULL, has no default",
        "id int PRIMARY KEY, name text GENERATED ALWAYS AS ('x') STORED": "is generated",
    }.items():
        database.run("DROP TABLE IF EXISTS {}.other")
        database.run(f"CREATE TABLE {{}}.other ({definition})")
        with pytest.raises(SinkEnded, match=told):
            database.open("other", feed_id="other")
    database.run("CREATE VIEW {}.seen AS SELECT 1 AS id")
    with pytest.raises(SinkEnded, match="is no table"):
        database.open("seen", feed_id="seen")


def test_what_people_can_mend_is_told_and_tried_again(database: Database) -> None:
    from headrace.feeds.postgres import PostgresSink
    from tests.feed_batches import target_of

    sink = PostgresSink()
    with pytest.raises(SinkUnavailable, match="password authentication failed") as refused:
        sink.open(target_of(database.location(), options={"password": "wrong-secret"}))
    assert "wrong-secret" not in str(refused.value)
    with pytest.raises(SinkUnavailable, match="does not exist"):
        sink.open(target_of(database.dsn.rpartition("/")[0] + "/nowhere/items"))
    with pytest.raises(SinkUnavailable, match="no schema missing"):
        sink.open(target_of(database.dsn + "/missing.items"))
    with pytest.raises(SinkUnavailable):
        sink.open(target_of("postgresql://postgres@127.0.0.1:1/postgres/items"))
    database.run("CREATE ROLE reader LOGIN PASSWORD 'reader'")
    try:
        host = database.dsn.partition("@")[2]
        with pytest.raises(SinkUnavailable, match="permission denied"):
            sink.open(target_of(f"postgresql://reader:reader@{host}/{database.schema}.items"))
    finally:
        database.run("DROP ROLE reader")


def test_times_and_intervals_are_those_of_postgresql(database: Database) -> None:
    from pyspark.sql.types import DayTimeIntervalType, TimeType

    columns = table_of(("clock", TimeType(6)), ("long", DayTimeIntervalType()), ("local", TimestampNTZType()))
    row = {"id": 1, "clock": time(23, 59, 59, 999_999), "long": timedelta(days=-3, microseconds=1)}
    row["local"] = datetime(1999, 12, 31, 23, 59, 59, 999_999)
    database.open(columns=columns).deliver(batch_of([("INSERT", row)], columns=columns))
    assert database.rows() == [tuple(row.values())]
