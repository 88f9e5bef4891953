"""Rows that a relation holds many times are repeated no further than they are wanted."""

from __future__ import annotations

import resource
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.reading.plain_read import plain_read, read_plainly
from headrace.sql.statements import parse
from headrace.sql.syntax import Query
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import consolidate, weights_of
from headrace.state.repeat import first_of, repeat, repeated_bytes
from headrace.state.snapshot import Snapshot
from headrace.state.store import Store
from tests.costs import cost_of

OFTEN = 50_000_000
SCHEMA = StructType([StructField("country", StringType()), StructField("n", LongType())])


def held(*rows: tuple[str, int, int]) -> Snapshot:
    """A relation of countries, each with a number and how often it is there."""
    store = Store("v", arrow_schema([field.dataType for field in SCHEMA.fields]))
    columns = [pa.array([row[0] for row in rows]), pa.array([row[1] for row in rows], pa.int64())]
    store.apply(consolidate(pa.table(columns, schema=store.schema), weights_of([row[2] for row in rows])))
    return store.snapshot()


def read(snapshot: Snapshot, sql: str, rows: int | None = None) -> list[tuple[Any, ...]] | None:
    query = parse(sql)[0]
    assert isinstance(query, Query)
    plain = plain_read(query)
    assert plain is not None
    table = read_plainly(plain, {"v": (snapshot, SCHEMA)}, lambda _: (), rows)
    return None if table is None else [tuple(row.values()) for row in table.to_pylist()]


def test_the_first_rows_of_one_that_is_there_often_cost_next_to_nothing() -> None:
    def read_first(snapshot: Snapshot) -> None:
        assert read(snapshot, "SELECT * FROM v LIMIT 5") == [("CH", 1)] * 5
        assert read(snapshot, "SELECT * FROM v", 3) == [("CH", 1)] * 3
        assert read(snapshot, "SELECT * FROM v WHERE country = 'DE'") == [("DE", 2)] * 2
        assert read(snapshot, "SELECT * FROM v WHERE n = 1 LIMIT 2") == [("CH", 1)] * 2
        assert read(snapshot, "SELECT * FROM v WHERE n = 3") == []

    seldom, often = held(("CH", 1, 5), ("DE", 2, 2)), held(("CH", 1, OFTEN), ("DE", 2, 2))
    assert (often.size, often.count) == (2, OFTEN + 2)
    usual, before = cost_of(lambda: read_first(seldom)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert cost_of(lambda: read_first(often)) < 10 * usual
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_more_rows_than_are_held_at_hand_are_left_to_spark() -> None:
    snapshot = held(("CH", 1, OFTEN), ("DE", 2, 2))
    assert read(snapshot, "SELECT * FROM v") is None
    assert read(snapshot, "SELECT * FROM v", 10_000_000) is None
    assert read(snapshot, "SELECT * FROM v WHERE n = 1") is None
    wide = held(("x" * 1_000_000, 1, 10_000))
    assert read(wide, "SELECT * FROM v LIMIT 2") == [("x" * 1_000_000, 1)] * 2
    assert read(wide, "SELECT * FROM v") is None


@pytest.mark.parametrize("most", [0, 1, 2, 3, 5, 6, 7, 100])
def test_the_first_are_the_same_as_of_all(most: int) -> None:
    rows, weights = pa.table({"a": [1, 2, 3, 4]}), weights_of([2, 0, 3, 1])
    whole = repeat(rows, weights).column("a").to_pylist()
    assert whole == [1, 1, 3, 3, 3, 4]
    assert repeat(rows, first_of(weights, most)).column("a").to_pylist() == whole[:most]


def test_bytes_are_known_before_rows_are_repeated() -> None:
    rows = pa.table(
        {
            "s": ["abc", None, "x" * 1000],
            "b": [b"", b"12", None],
            "n": [1, 2, 3],
            "yes": [True, None, False],
            "l": pa.array([[1, 2], [], None], pa.list_(pa.int64())),
        }
    )
    for times in ([1, 1, 1], [0, 5, 0], [7, 0, 1000], [0, 0, 0]):
        weights = weights_of(times)
        real = repeat(rows, weights).combine_chunks()
        assert (
            repeated_bytes(rows, weights)
            >= sum(
                buffer.size
                for column in real.columns
                for chunk in column.chunks
                for buffer in chunk.buffers()
                if buffer
            )
            - 64 * 20
        )
    assert repeated_bytes(rows.select(["s", "n"]), weights_of([0, 0, 1000])) < 1_100_000
