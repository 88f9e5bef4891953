"""What a statement says of a PostgreSQL target, read and refused without asking one."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import DecimalType, IntegerType, LongType, StringType, StructField, StructType

from headrace.errors import FeedError
from headrace.feeds.postgres import PostgresSink
from headrace.feeds.postgres_names import IndexColumn, index_name, read_indexes, read_location, read_target
from headrace.feeds.postgres_types import postgres_type, takes
from tests.feed_batches import target_of
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
    named = read(options={"keys": "NAME, id", "mode": "UPSERT"})
    assert (named.keys, named.keys_named, named.mode) == (("name", "id"), True, "upsert")
    with pytest.raises(FeedError, match="has no key") as refused:
        read(has_key=False, key=("id", "name", "price"))
    assert "mode = 'insert'" in refused.value.hint
    assert read(has_key=False, key=("id", "name", "price"), options={"mode": "insert"}).keys == ()
    for options, told in {
        ("keys", "id, id"): "twice",
        ("keys", "id DESC"): "cannot have 'DESC' after id",
        ("keys", ""): "lacks a column",
        ("mode", "merge"): "mode cannot be 'merge'",
    }.items():
        with pytest.raises(FeedError, match=told):
            read(options=dict([options]))


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
