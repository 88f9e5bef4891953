"""Rows of older columns are read under newer ones by the ids of the columns."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.catalog.columns import ColumnHistory, Columns, convert, converted
from headrace.ledger.ledger import Entry
from headrace.sql.widening import is_wider, wider_types

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def columns(*fields: tuple[int, str, DataType]) -> Columns:
    schema = StructType([StructField(name, kind) for _, name, kind in fields])
    return Columns(0, 0, schema, tuple(one for one, _, _ in fields))


def table(under: Columns, *rows: tuple[Any, ...]) -> pa.Table:
    assert under.arrow is not None
    values = list(zip(*rows, strict=True))
    return pa.table([pa.array(v, f.type) for v, f in zip(values, under.arrow, strict=True)], schema=under.arrow)


def defined(name: str, ids: list[int] | None, *names: str) -> dict[str, Any]:
    schema = StructType([StructField(one, LongType()) for one in names]).jsonValue()
    return {"name": name, "kind": "table", "schema": schema, **({} if ids is None else {"ids": ids})}


def test_added_columns_are_null_and_dropped_ones_left_out() -> None:
    old = columns((0, "a", LongType()), (1, "b", StringType()))
    new = columns((1, "renamed", StringType()), (2, "c", IntegerType()))
    rows = convert(table(old, (1, "x"), (2, "y")), old, new)
    assert rows.to_pylist() == [{"c0": "x", "c1": None}, {"c0": "y", "c1": None}]
    assert rows.schema == new.arrow


def test_rows_that_differed_only_in_a_dropped_column_are_summed() -> None:
    old = columns((0, "a", LongType()), (1, "b", StringType()))
    new = columns((0, "a", LongType()))
    delta = converted(table(old, (1, "x"), (1, "y"), (2, "x")), np.array([-1, 1, 1]), old, new)
    assert (delta.rows.to_pylist(), delta.weights.tolist()) == ([{"c0": 2}], [1])


WIDER: list[tuple[DataType, DataType, list[Any]]] = [
    (ByteType(), ShortType(), [-128, 127, None]),
    (ShortType(), IntegerType(), [-(2**15), 2**15 - 1, None]),
    (IntegerType(), LongType(), [-(2**31), 2**31 - 1, None]),
    (IntegerType(), DoubleType(), [-(2**31), 2**31 - 1, None]),
    (IntegerType(), DecimalType(12, 2), [-(2**31), 2**31 - 1, None]),
    (LongType(), DecimalType(20, 0), [-(2**63), 2**63 - 1, None]),
    (FloatType(), DoubleType(), [0.1, float("inf"), None]),
    (DecimalType(5, 2), DecimalType(8, 4), [Decimal("-999.99"), Decimal("0.01"), None]),
    (DateType(), TimestampNTZType(), [date(1, 1, 1), date(9999, 12, 31), None]),
]


@pytest.mark.parametrize(("narrow", "wide", "values"), WIDER, ids=lambda one: str(one))
def test_a_widened_value_comes_back_as_it_was(narrow: DataType, wide: DataType, values: list[Any]) -> None:
    assert is_wider(narrow, wide)
    assert wider_types(narrow)
    old, new = columns((0, "a", narrow)), columns((0, "a", wide))
    rows = table(old, *((value,) for value in values))
    there = convert(rows, old, new)
    assert there.schema == new.arrow
    assert convert(there, new, old).equals(rows)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LongType(), IntegerType()),
        (LongType(), DoubleType()),
        (LongType(), DecimalType(19, 0)),
        (IntegerType(), IntegerType()),
        (IntegerType(), DecimalType(10, 2)),
        (IntegerType(), StringType()),
        (DoubleType(), FloatType()),
        (DecimalType(5, 2), DecimalType(5, 2)),
        (DecimalType(5, 2), DecimalType(6, 4)),
        (DecimalType(5, 2), DecimalType(8, 1)),
        (DateType(), TimestampType()),
        (StringType(), LongType()),
    ],
    ids=str,
)
def test_what_would_lose_a_value_is_not_wider(old: DataType, new: DataType) -> None:
    assert not is_wider(old, new)


def test_a_definition_without_ids_has_its_places_as_ids() -> None:
    history = ColumnHistory()
    history = history.recorded(1, {"define": [defined("t", None, "a", "b")], "reset": ["t"]})
    found = history.at("t", 5)
    assert found is not None
    assert (found.since, found.born, found.ids) == (1, 1, (0, 1))
    assert history.at("t", 0) is None
    assert history.fresh_id("t") == 2


def test_an_id_is_never_given_twice() -> None:
    history = ColumnHistory()
    history = history.recorded(1, {"define": [defined("t", [0, 1], "a", "b")], "reset": ["t"]})
    history = history.recorded(4, {"define": [defined("t", [0], "a")], "closed": ["t"]})
    assert history.fresh_id("t") == 2
    assert [(one.since, one.born, one.has_cut_content) for one in history.between("t", 1, 9)] == [(4, 1, True)]


def test_a_table_made_again_begins_anew() -> None:
    history = ColumnHistory()
    history = history.recorded(1, {"define": [defined("t", [0], "a")], "reset": ["t"]})
    history = history.recorded(3, {"drop": ["t"]})
    history = history.recorded(5, {"define": [defined("t", [0], "a")], "reset": ["t"]})
    assert history.at("t", 4) is None
    born = [None if (one := history.at("t", epoch)) is None else one.born for epoch in range(1, 6)]
    assert born == [1, 1, None, None, 5]


def test_entries_are_read_under_the_columns_asked_for() -> None:
    history = ColumnHistory()
    history = history.recorded(1, {"define": [defined("t", [0, 1], "a", "b")], "reset": ["t"]})
    history = history.recorded(3, {"define": [defined("t", [0, 1, 2], "a", "b", "c")]})
    first, last = history.at("t", 2), history.at("t", 3)
    assert first is not None
    assert last is not None
    entries = [
        Entry(2, NOW, "t", table(first, (1, 2)), np.array([1])),
        Entry(4, NOW, "t", table(last, (1, 2, 3)), np.array([1])),
    ]
    read = history.under(entries, last)
    assert [tuple(entry.rows.to_pylist()[0].values()) for entry in read] == [(1, 2, None), (1, 2, 3)]
