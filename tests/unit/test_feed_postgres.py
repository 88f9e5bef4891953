"""What a statement says of a PostgreSQL target, read and refused without asking one."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType, StructField, StructType

from headrace.catalog.catalog import Feed
from headrace.catalog.make import make_table
from headrace.errors import FeedError
from headrace.feeds.postgres import PostgresSink
from headrace.feeds.postgres_names import IndexColumn, index_name, read_indexes, read_location, read_target
from headrace.feeds.postgres_types import postgres_type, takes
from headrace.feeds.sink import Target
from headrace.feeds.target import target_of as relation_target
from headrace.intake.table import TableContract
from tests.feed_batches import ITEMS, target_of
from tests.unit.test_types import EXAMPLES

DATABASE = "postgresql://user@host:5432/shop"
COLUMNS = {"user_id": "user_id", "timestamp": "Timestamp", 'odd"name': 'odd"name'}


def test_a_location_is_the_url_of_a_database_and_a_table() -> None:
    assert read_location(f"{DATABASE}/items") == (DATABASE, None, "items")
    assert read_location(f"{DATABASE}/sales.Items?sslmode=require") == (f"{DATABASE}?sslmode=require", "sales", "Items")
    assert read_location(f"{DATABASE}/a%2Fb%2Ec") == (DATABASE, None, "a/b.c")
    assert read_location("postgres://u:p@h/d/t")[0] == "postgresql://u:p@h/d"


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://host/items",
        "postgresql://host/shop/",
        "postgresql://host/shop/a/b",
        "mysql://host/shop/items",
        "host/shop/items",
        "postgresql://host:port/shop/items",
        f"{DATABASE}/.items",
        f"{DATABASE}/{'x' * 64}",
        f"{DATABASE}/{'%C3%BC' * 32}",
        f"{DATABASE}/a%00b",
    ],
)
def test_what_is_no_location_is_refused(location: str) -> None:
    with pytest.raises(FeedError) as refused:
        PostgresSink().check(target_of(location))
    assert refused.value.hint


def test_indexes_are_parsed() -> None:
    read = read_indexes('user_id; USER_ID, timestamp DESC nulls last ;;"odd""name" asc; user_id', COLUMNS)
    assert read == (
        (IndexColumn("user_id"),),
        (IndexColumn("user_id"), IndexColumn("Timestamp", True, "LAST")),
        (IndexColumn('odd"name'),),
    )
    assert read_indexes("", COLUMNS) == read_indexes(" ; ", COLUMNS) == ()
    assert len(index_name("t" * 63, [IndexColumn("ü" * 31)]).encode()) <= 63
    assert index_name("t", read[0]) != index_name("t", read[1])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nobody", "names nobody, which is no column"),
        ("user_id,", "lacks a column"),
        ("user_id timestamp", "cannot have 'TIMESTAMP' after user_id"),
        ("user_id DESC NULLS", "cannot have 'NULLS' after user_id"),
        ("user_id); DROP TABLE x", r"names user_id\), which is no column"),
        ('"user_id', "cannot be read from"),
        ("user_id, user_id DESC", "names a column twice"),
        ("lower(user_id)", "is no column"),
    ],
)
def test_indexes_that_cannot_be_are_refused(text: str, told: str) -> None:
    with pytest.raises(FeedError, match=told):
        read_indexes(text, COLUMNS)


def test_the_key_is_the_relations_unless_the_statement_names_one() -> None:
    def read(**parts: Any) -> Any:
        return read_target(target_of(f"{DATABASE}/t", **parts))

    assert (read().keys, read().keys_named, read().mode) == (("id",), False, "mirror")
    named = read(key=("name", "id"), options={"keys": "NAME, id", "mode": "UPSERT"})
    assert (named.keys, named.keys_named, named.mode) == (("name", "id"), True, "upsert")
    with pytest.raises(FeedError, match="has no key") as refused:
        read(has_key=False, key=("id", "name", "price"))
    assert "mode = 'insert'" in refused.value.hint
    assert read(has_key=False, key=("id", "name", "price"), options={"mode": "insert"}).keys == ()
    with pytest.raises(FeedError, match="mode cannot be 'merge'"):
        read(options={"mode": "merge"})


@pytest.mark.parametrize("key", [("id",), ()])
def test_the_option_keys_names_the_key_of_events_and_of_the_table(key: tuple[str, ...]) -> None:
    columns = StructType([*ITEMS.fields, StructField('Odd "name", x', StringType())])
    relation = make_table(TableContract("items", columns, key))

    def read(keys: str | None) -> Target:
        options = {} if keys is None else {"keys": keys}
        feed = Feed("id-of-f", "f", "items", "postgres", f"{DATABASE}/t", options, "2026-01-02T03:04:05+00:00", 1)
        return relation_target(feed, PostgresSink(), relation)

    for keys, expected in {"NAME, id": ("name", "id"), '"odd ""Name"", X"': ('Odd "name", x',)}.items():
        target = read(keys)
        described = read_target(target)
        assert (target.key, target.has_key) == (expected, True)
        assert (described.keys, described.keys_named) == (expected, True)
    target = read(None)
    assert (target.key, target.has_key) == (key or tuple(columns.names), bool(key))
    for keys, told in {
        "id, id": "twice",
        "id DESC": "cannot have 'DESC' after id",
        "": "lacks a column",
        "nobody": "names nobody, which is no column",
        '"id': "cannot be read from",
    }.items():
        with pytest.raises(FeedError, match=told) as refused:
            read(keys)
        assert refused.value.hint


@pytest.mark.parametrize("name", ["xmin", "CTID", "x" * 64, "a\0b", "ü" * 32])
def test_columns_that_postgresql_cannot_have_are_refused(name: str) -> None:
    columns = StructType([StructField("id", IntegerType(), False), StructField(name, StringType())])
    with pytest.raises(FeedError, match="PostgreSQL takes no column called"):
        read_target(target_of(f"{DATABASE}/t", columns))


def test_every_type_has_one_of_postgresql() -> None:
    assert all(postgres_type(one.kind) for one in EXAMPLES)
    assert takes("bigint", IntegerType())
    assert not takes("integer", LongType())
    assert takes("numeric", DecimalType(10, 2))
    assert takes("numeric(12,3)", DecimalType(10, 2))
    assert not takes("numeric(10,3)", DecimalType(10, 2))
    assert not takes("numeric(10,0)", IntegerType())
    assert takes("character varying(10)", StringType())
    assert not takes("integer", StringType())
