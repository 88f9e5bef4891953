"""Exact rows of every type travel to Arrow and come back as they were."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.intake.arrow import to_arrow
from headrace.intake.identity import identity
from headrace.intake.values import converter

POINT = StructType([StructField("x", IntegerType(), False), StructField("tags", ArrayType(StringType()))])
LIMIT = (1 << 63) - 1

CASES: list[tuple[DataType, list[object]]] = [
    (BooleanType(), [True, False]),
    (ByteType(), [-128, 127]),
    (ShortType(), [-32768, 32767]),
    (IntegerType(), [-(2**31), 2**31 - 1]),
    (LongType(), [-(2**63), 2**63 - 1]),
    (FloatType(), ["NaN", "-Infinity", 0.1, -0.0]),
    (DoubleType(), ["NaN", "-Infinity", 0.1, -0.0, 5e-324]),
    (DecimalType(38, 10), ["9" * 28, "-0.0000000001", "0"]),
    (DecimalType(5, 5), ["0.99999"]),
    (StringType(), ["", "日本 \U0001f600", "a\x00b"]),
    (BinaryType(), ["", "AAH/"]),
    (DateType(), ["0001-01-01", "1969-12-31", "9999-12-31"]),
    (TimestampType(), ["0001-01-01T00:00:00", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999"]),
    (TimestampNTZType(), ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"]),
    (TimeType(), ["00:00", "23:59:59.999999"]),
    (
        DayTimeIntervalType(),
        ["PT0.000001S", "-1 00:00:00", timedelta(microseconds=LIMIT), timedelta(days=-106_751_991)],
    ),
    (ArrayType(TimestampType()), [[], [None, "2024-01-01T00:00:00Z"]]),
    (MapType(StringType(), DecimalType(5, 2)), [{}, {"a": "1.5", "b": None}]),
    (MapType(LongType(), POINT), [{"5": {"x": 1, "tags": ["a", None]}}]),
    (POINT, [{"x": 1}, {"x": 2, "tags": []}]),
    (ArrayType(POINT, False), [[{"x": 1}]]),
]


@pytest.mark.parametrize(("data_type", "values"), CASES, ids=lambda case: str(case)[:40])
def test_every_type_survives_arrow(data_type: DataType, values: list[object]) -> None:
    convert = converter(data_type)
    exact = [convert(value) for value in values]
    schema = StructType([StructField("id", IntegerType(), False), StructField("value", data_type)])
    table = to_arrow([*[(1, value) for value in exact], (2, None)], schema)
    table.validate(full=True)
    assert table.column_names == ["id", "value"]
    assert not table.schema.field("id").nullable
    back = table.column("value").to_pylist()
    assert back.pop() is None
    assert [identity(value, data_type) for value in back] == [identity(value, data_type) for value in exact]
    assert [identity(convert(value), data_type) for value in back] == [identity(value, data_type) for value in exact]


def test_types_are_those_that_spark_expects() -> None:
    schema = StructType([StructField("at", TimestampType()), StructField("amount", DecimalType(10, 2))])
    rows = [(datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.50"))]
    assert to_arrow(rows, schema).schema == pa.schema(
        [pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("amount", pa.decimal128(10, 2))]
    )


def test_no_rows_are_an_empty_table_of_the_same_types() -> None:
    schema = StructType([StructField("day", DateType()), StructField("value", DoubleType())])
    some = to_arrow([(date(2024, 1, 1), math.nan)], schema)
    none = to_arrow([], schema)
    assert none.num_rows == 0
    assert none.schema == some.schema


def test_times_of_day_keep_their_microseconds() -> None:
    schema = StructType([StructField("at", TimeType())])
    assert to_arrow([(time(1, 2, 3, 4),)], schema).column("at").to_pylist() == [time(1, 2, 3, 4)]
