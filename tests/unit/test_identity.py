"""Equal values meet, as Spark's GROUP BY would have them meet, and sort as its ORDER BY would."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import UnsupportedStatement
from headrace.intake.identity import identity, rank_of, row_identity

NAN = math.nan
OTHER_NAN = -float("nan")
POINT = StructType([StructField("x", DoubleType()), StructField("y", DoubleType())])
TAGS = MapType(StringType(), DoubleType())
EAST = timezone(timedelta(hours=2))

EQUAL: list[tuple[DataType, object, object]] = [
    (DoubleType(), NAN, OTHER_NAN),
    (DoubleType(), 0.0, -0.0),
    (FloatType(), 0.0, -0.0),
    (FloatType(), NAN, OTHER_NAN),
    (DoubleType(), None, None),
    (DecimalType(10, 2), Decimal("1.50"), Decimal("1.5")),
    (DecimalType(10, 2), Decimal("-0.00"), Decimal("0.00")),
    (TimestampType(), datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 2, tzinfo=EAST)),
    (ArrayType(DoubleType()), [NAN, -0.0, None], [OTHER_NAN, 0.0, None]),
    (POINT, {"x": NAN, "y": -0.0}, {"y": 0.0, "x": OTHER_NAN}),
    (TAGS, [("a", 1.0), ("b", NAN)], [("b", OTHER_NAN), ("a", 1.0)]),
    (TAGS, [("a", 1.0)], {"a": 1.0}),
    (MapType(DoubleType(), StringType()), [(-0.0, "a")], [(0.0, "a")]),
    (ArrayType(TAGS), [[("a", 0.0), ("b", 1.0)], None], [[("b", 1.0), ("a", -0.0)], None]),
    (MapType(StringType(), TAGS), [("a", [("x", 0.0)])], [("a", [("x", -0.0)])]),
]

UNEQUAL: list[tuple[DataType, object, object]] = [
    (DoubleType(), None, NAN),
    (DoubleType(), 0.0, None),
    (DoubleType(), NAN, math.inf),
    (StringType(), "a", "A"),
    (StringType(), "", None),
    (BinaryType(), b"", None),
    (DateType(), date(2024, 1, 1), date(2024, 1, 2)),
    (ArrayType(IntegerType()), [1, 2], [2, 1]),
    (ArrayType(IntegerType()), [None], []),
    (ArrayType(IntegerType()), [], None),
    (POINT, {"x": None, "y": None}, None),
    (POINT, {"x": 1.0, "y": 2.0}, {"x": 2.0, "y": 1.0}),
    (TAGS, [("a", None)], []),
    (TAGS, [("a", 1.0)], [("a", 2.0)]),
]


@pytest.mark.parametrize(("data_type", "left", "right"), EQUAL, ids=str)
def test_equal_values_meet(data_type: DataType, left: object, right: object) -> None:
    assert identity(left, data_type) == identity(right, data_type)
    assert hash(identity(left, data_type)) == hash(identity(right, data_type))
    schema = StructType([StructField("id", IntegerType()), StructField("value", data_type)])
    assert row_identity((1, left), schema) == row_identity([1, right], schema)
    assert row_identity((1, left), schema) != row_identity([2, right], schema)
    assert len({row_identity((1, left), schema), row_identity((1, right), schema)}) == 1


@pytest.mark.parametrize(("data_type", "left", "right"), UNEQUAL, ids=str)
def test_other_values_stay_apart(data_type: DataType, left: object, right: object) -> None:
    assert identity(left, data_type) != identity(right, data_type)
    schema = StructType([StructField("value", data_type)])
    assert row_identity([left], schema) != row_identity([right], schema)


@pytest.mark.parametrize(
    ("data_type", "ascending"),
    [
        (IntegerType(), [-1, 0, 5]),
        (DoubleType(), [-math.inf, -1.0, 0.0, math.inf, NAN]),
        (StringType(), ["", "A", "a", "\uffff", "\U0001f600"]),
        (BinaryType(), [b"", b"\x00", b"\x7f", b"\x80"]),
        (ArrayType(IntegerType()), [[], [None], [1], [1, None], [1, 2], [2]]),
        (
            POINT,
            [{"x": None, "y": 9.0}, {"x": 0.0, "y": None}, {"x": 0.0, "y": 1.0}, {"x": NAN, "y": None}],
        ),
    ],
    ids=str,
)
def test_ranks_sort_as_spark_sorts(data_type: DataType, ascending: list[object]) -> None:
    rank = rank_of(data_type)
    ranks = [rank(value) for value in ascending]
    assert all(left < right for left, right in pairwise(ranks))


def test_ranks_of_equal_values_are_equal() -> None:
    assert rank_of(DoubleType())(0.0) == rank_of(DoubleType())(-0.0)
    assert rank_of(DoubleType())(NAN) == rank_of(DoubleType())(OTHER_NAN)


def test_what_cannot_be_told_apart_or_sorted_is_refused() -> None:
    with pytest.raises(UnsupportedStatement, match="a MAP has no order"):
        rank_of(TAGS)
    with pytest.raises(UnsupportedStatement, match="collation UTF8_LCASE"):
        identity("a", StringType("UTF8_LCASE"))
