"""Every documented way to write a value, into every column that takes it; and what is refused, with its reason."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

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

from headrace.capture.formats.connect import described_columns
from headrace.capture.formats.debezium import DebeziumJson
from headrace.capture.messages import RowChange, Undecodable
from headrace.capture.options import FormatOptions, read_options
from headrace.errors import SourceError
from headrace.intake.reasons import BadValue
from headrace.intake.table import TableContract
from tests.debezium_events import Schema, decimal, envelope, envelope_schema, field, record, struct, wrapped

TIMESTAMP, NTZ, DATE, TIME, STRING, LONG = (
    TimestampType(),
    TimestampNTZType(),
    DateType(),
    TimeType(6),
    StringType(),
    LongType(),
)
INTERVAL, BINARY, DOUBLE = DayTimeIntervalType(), BinaryType(), DoubleType()
MONEY = DecimalType(12, 2)
LOCAL = datetime(2018, 6, 20, 15, 13, 16, 945104)
INSTANT = LOCAL.replace(tzinfo=UTC)
MILLIS = LOCAL.replace(microsecond=945000)
POINT = StructType(
    [StructField("x", DOUBLE), StructField("y", DOUBLE), StructField("wkb", BINARY), StructField("srid", LONG)]
)


def digits(number: int) -> str:
    """A number's two's complement as base64."""
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def taken(
    value: Any, data_type: DataType, schema: Schema | None, options: FormatOptions | None = None, **source: Any
) -> Any:
    """What a column of a type holds after a row with this value was read, and taken by the intake."""
    table = TableContract("t", StructType([StructField("id", LongType()), StructField("c", data_type)]), ("id",))
    decoder = DebeziumJson(table, options or FormatOptions())
    payload = envelope("c", None, {"id": 1, "c": value}, **source)
    whole = (
        payload
        if schema is None
        else wrapped(payload, envelope_schema([field("id", "int64"), {**schema, "field": "c"}]))
    )
    message = decoder.decode(record(whole))
    assert isinstance(message, RowChange)
    (change,) = message.changes
    row = table.decode(change).row
    assert row is not None
    return row[1]


def debezium(name: str, kind: str) -> Schema:
    return field("c", kind, f"io.debezium.{name}")


def connect(name: str, kind: str) -> Schema:
    return field("c", kind, f"org.apache.kafka.connect.data.{name}")


WITH_SCHEMA: list[tuple[Schema, Any, DataType, Any]] = [
    # Plain types.
    (field("c", "boolean"), True, BooleanType(), True),
    (field("c", "int16"), 1, BooleanType(), True),
    (field("c", "int8"), -128, ByteType(), -128),
    (field("c", "int16"), 32767, ShortType(), 32767),
    (field("c", "int32"), 7, IntegerType(), 7),
    (field("c", "int64"), 1 << 62, LONG, 1 << 62),
    (field("c", "float"), Decimal("0.1"), FloatType(), 0.10000000149011612),
    (field("c", "double"), Decimal("0.1"), DOUBLE, 0.1),
    (field("c", "double"), "NaN", DOUBLE, "nan"),
    (field("c", "double"), "-Infinity", DOUBLE, float("-inf")),
    (field("c", "string"), "é\u0000", STRING, "é\u0000"),
    (field("c", "int32"), 7, STRING, "7"),
    (field("c", "boolean"), False, STRING, "false"),
    (field("c", "double"), Decimal("1.50"), STRING, "1.50"),
    (field("c", "string"), "17", LONG, 17),
    # Decimals: precise, with a scale of their own, as text, as doubles.
    (decimal("c", 2), digits(1234), MONEY, Decimal("12.34")),
    (decimal("c", 2), digits(-1), MONEY, Decimal("-0.01")),
    (decimal("c", 0), digits(0), MONEY, Decimal("0.00")),
    (decimal("c", -3), digits(12), MONEY, Decimal("12000.00")),
    (decimal("c", 2), Decimal("12.34"), MONEY, Decimal("12.34")),
    (
        decimal("c", 10),
        digits(123456789012345678901234567890),
        DecimalType(38, 10),
        Decimal("12345678901234567890.1234567890"),
    ),
    (decimal("c", 2), digits(1234), STRING, "12.34"),
    (decimal("c", 2), digits(1250), DOUBLE, 12.5),
    (decimal("c", 0), digits(1 << 40), LONG, 1 << 40),
    (decimal("c", 2), digits(1200), LONG, 12),
    (debezium("data.VariableScaleDecimal", "struct"), {"scale": 3, "value": digits(12340)}, MONEY, Decimal("12.34")),
    (debezium("data.VariableScaleDecimal", "struct"), {"scale": -2, "value": digits(5)}, STRING, "500"),
    (field("c", "string"), "12.34", MONEY, Decimal("12.34")),
    (field("c", "string"), "12.5", DOUBLE, 12.5),
    (field("c", "string"), "NAN", DOUBLE, "nan"),
    (field("c", "string"), "NEGATIVE_INFINITY", DOUBLE, float("-inf")),
    (field("c", "double"), Decimal("12.34"), MONEY, Decimal("12.34")),
    # Dates.
    (debezium("time.Date", "int32"), 17702, DATE, date(2018, 6, 20)),
    (connect("Date", "int32"), -719162, DATE, date(1, 1, 1)),
    (debezium("time.IsoDate", "string"), "2018-06-20Z", DATE, date(2018, 6, 20)),
    (debezium("time.StructuredDate", "struct"), {"year": 2018, "month": 6, "day": 20}, DATE, date(2018, 6, 20)),
    (debezium("time.Date", "int32"), 17702, TIMESTAMP, datetime(2018, 6, 20, tzinfo=UTC)),
    (debezium("time.Date", "int32"), 17702, LONG, 17702),
    (debezium("time.Date", "int32"), 17702, STRING, "2018-06-20"),
    (debezium("time.Timestamp", "int64"), 1529452800000, DATE, date(2018, 6, 20)),
    # Times of day.
    (debezium("time.Time", "int32"), 14711789, TIME, time(4, 5, 11, 789000)),
    (debezium("time.MicroTime", "int64"), 14711789123, TIME, time(4, 5, 11, 789123)),
    (debezium("time.NanoTime", "int64"), 14711789123000, TIME, time(4, 5, 11, 789123)),
    (connect("Time", "int32"), 86399999, TIME, time(23, 59, 59, 999000)),
    (debezium("time.IsoTime", "string"), "04:05:11.789Z", TIME, time(4, 5, 11, 789000)),
    (
        debezium("time.StructuredTime", "struct"),
        {"hour": 4, "minute": 5, "second": 6, "nanos": 7000},
        TIME,
        time(4, 5, 6, 7),
    ),
    (debezium("time.ZonedTime", "string"), "04:05:11Z", STRING, "04:05:11Z"),
    (debezium("time.ZonedTime", "string"), "04:05:11Z", TIME, time(4, 5, 11)),
    (debezium("time.MicroTime", "int64"), 90_000_000_000, INTERVAL, timedelta(hours=25)),
    (debezium("time.MicroTime", "int64"), -1, INTERVAL, timedelta(microseconds=-1)),
    (debezium("time.MicroTime", "int64"), 14711789123, STRING, "04:05:11.789123"),
    # Timestamps.
    (debezium("time.Timestamp", "int64"), 1529507596945, NTZ, MILLIS),
    (debezium("time.MicroTimestamp", "int64"), 1529507596945104, NTZ, LOCAL),
    (debezium("time.NanoTimestamp", "int64"), 1529507596945104000, NTZ, LOCAL),
    (debezium("time.MicroTimestamp", "int64"), 1529507596945104, TIMESTAMP, INSTANT),
    (debezium("time.MicroTimestamp", "int64"), 1529507596945104, LONG, 1529507596945104),
    (debezium("time.MicroTimestamp", "int64"), 1529507596945104, STRING, "2018-06-20T15:13:16.945104"),
    (debezium("time.MicroTimestamp", "int64"), -62135596800000000, NTZ, datetime(1, 1, 1)),
    (connect("Timestamp", "int64"), 1529507596945, TIMESTAMP, MILLIS.replace(tzinfo=UTC)),
    (debezium("time.IsoTimestamp", "string"), "2018-06-20T15:13:16.945104Z", NTZ, LOCAL),
    (debezium("time.IsoTimestamp", "string"), "2018-06-20T15:13:16.945104Z", TIMESTAMP, INSTANT),
    (debezium("time.ZonedTimestamp", "string"), "2018-06-20T15:13:16.945104Z", TIMESTAMP, INSTANT),
    (debezium("time.ZonedTimestamp", "string"), "2018-06-20T17:13:16.945104+02:00", TIMESTAMP, INSTANT),
    (debezium("time.ZonedTimestamp", "string"), "2018-06-20T15:13:16.945104Z", STRING, "2018-06-20T15:13:16.945104Z"),
    (
        debezium("time.StructuredTimestamp", "struct"),
        {
            "year": 2018,
            "month": 6,
            "day": 20,
            "hour": 15,
            "minute": 13,
            "second": 16,
            "nanos": 945104000,
            "precision": 6,
        },
        NTZ,
        LOCAL,
    ),
    (
        debezium("time.StructuredZonedTimestamp", "struct"),
        {
            "year": 2018,
            "month": 6,
            "day": 20,
            "hour": 17,
            "minute": 13,
            "second": 16,
            "nanos": 945104000,
            "offsetSeconds": 7200,
        },
        TIMESTAMP,
        INSTANT,
    ),
    # Years and intervals.
    (debezium("time.Year", "int32"), 2018, IntegerType(), 2018),
    (
        debezium("time.MicroDuration", "int64"),
        93784000005,
        INTERVAL,
        timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5),
    ),
    (debezium("time.MicroDuration", "float64"), Decimal("9.0E10"), INTERVAL, timedelta(hours=25)),
    (debezium("time.MicroDuration", "int64"), 5, LONG, 5),
    (debezium("time.NanoDuration", "int64"), 5000, INTERVAL, timedelta(microseconds=5)),
    (
        debezium("time.Interval", "string"),
        "P0Y0M1DT2H3M4.5S",
        INTERVAL,
        timedelta(days=1, hours=2, minutes=3, seconds=4.5),
    ),
    (debezium("time.Interval", "string"), "P1Y2M3DT4H5M6.78S", STRING, "P1Y2M3DT4H5M6.78S"),
    (
        debezium("time.StructuredDuration", "struct"),
        {"days": 1, "hours": -2, "nanos": 3000},
        INTERVAL,
        timedelta(days=1, hours=-2, microseconds=3),
    ),
    # Bytes.
    (field("c", "bytes"), "AP8=", BINARY, b"\x00\xff"),
    (field("c", "bytes"), "AP8=", STRING, "AP8="),
    (debezium("data.Bits", "bytes"), "BQ==", BINARY, b"\x05"),
    (debezium("data.Bits", "bytes"), "AAE=", LONG, 256),
    # Text with a meaning.
    (debezium("data.Json", "string"), '{"a": [1, 2.50]}', STRING, '{"a": [1, 2.50]}'),
    (debezium("data.Json", "string"), '{"a": 1}', StructType([StructField("a", LONG)]), {"a": 1}),
    (debezium("data.Json", "string"), '{"k": "v"}', MapType(STRING, STRING), [("k", "v")]),
    (debezium("data.Xml", "string"), "<a/>", STRING, "<a/>"),
    (
        debezium("data.Uuid", "string"),
        "a1b2c3d4-0000-4000-8000-000000000000",
        STRING,
        "a1b2c3d4-0000-4000-8000-000000000000",
    ),
    (debezium("data.Enum", "string"), "red", STRING, "red"),
    (debezium("data.EnumSet", "string"), "red,blue", STRING, "red,blue"),
    (debezium("data.Ltree", "string"), "Top.Science", STRING, "Top.Science"),
    (debezium("data.Tsvector", "string"), "'direct':6", STRING, "'direct':6"),
    (field("c", "string"), "[2020-01-01,2020-02-01)", STRING, "[2020-01-01,2020-02-01)"),
    (field("c", "string"), "192.168.1.0/24", STRING, "192.168.1.0/24"),
    # What has parts.
    (
        debezium("data.geometry.Point", "struct")
        | {"fields": [field("x", "double"), field("y", "double"), field("wkb", "bytes"), field("srid", "int32")]},
        {"x": Decimal("1.5"), "y": 2, "wkb": "AP8=", "srid": None},
        POINT,
        {"x": 1.5, "y": 2.0, "wkb": b"\x00\xff", "srid": None},
    ),
    (struct("c", [field("a", "int32")]), {"a": 1}, STRING, '{"a":1}'),
    (field("c", "array", items=field("", "int32")), [1, None, 3], ArrayType(LONG), [1, None, 3]),
    (field("c", "array", items=debezium("time.Date", "int32")), [17702], ArrayType(DATE), [date(2018, 6, 20)]),
    (field("c", "array", items=decimal("", 2)), [digits(150), None], ArrayType(MONEY), [Decimal("1.50"), None]),
    (field("c", "array", items=field("", "string")), ["a"], STRING, '["a"]'),
    (
        field("c", "map", keys=field("", "string"), values=field("", "string")),
        {"k": "v", "n": None},
        MapType(STRING, STRING),
        [("k", "v"), ("n", None)],
    ),
    (
        field("c", "map", keys=field("", "int16"), values=field("", "double")),
        [[1, Decimal("0.5")]],
        MapType(ShortType(), DOUBLE),
        [(1, 0.5)],
    ),
    (
        field("c", "array", "io.debezium.data.FloatVector", items=field("", "float")),
        [Decimal("0.5")],
        ArrayType(FloatType()),
        [0.5],
    ),
]


@pytest.mark.parametrize(
    ("mode", "text"),
    [("bytes", "/+8="), ("base64", "/+8="), ("base64-url-safe", "_-8="), ("base64-url-safe", "_-8"), ("hex", "ffEF")],
)
def test_text_stands_for_bytes_as_the_connector_was_told(mode: str, text: str) -> None:
    options = read_options({"binary_mode": mode})
    for schema in (field("c", "string"), None):
        assert taken(text, BINARY, schema, options) == b"\xff\xef"
    listed = field("c", "array", items=field("", "string"))
    assert taken([text, None], ArrayType(BINARY), listed, options) == [b"\xff\xef", None]
    # What is bytes for Connect is base64 in JSON, whatever the mode.
    assert taken("/+8=", BINARY, field("c", "bytes"), options) == b"\xff\xef"


@pytest.mark.parametrize(("schema", "value", "data_type", "expected"), WITH_SCHEMA)
def test_a_value_is_read_as_its_schema_says(schema: Schema, value: Any, data_type: DataType, expected: Any) -> None:
    found = taken(value, data_type, schema)
    assert (str(found) if expected == "nan" else found) == expected
    assert taken(None, data_type, schema) is None


REFUSED: list[tuple[Schema | None, Any, DataType, str]] = [
    (debezium("time.NanoTimestamp", "int64"), 1529507596945104001, NTZ, "would be rounded"),
    (debezium("time.ZonedTimestamp", "string"), "2018-06-20T15:13:16.1234567Z", TIMESTAMP, "would be rounded"),
    (debezium("time.MicroTimestamp", "int64"), 9223372036825200000, NTZ, "infinity"),
    (debezium("time.Timestamp", "int64"), 1 << 62, NTZ, "out of range"),
    (debezium("time.Date", "int32"), 1 << 30, DATE, "out of range"),
    (debezium("time.MicroTime", "int64"), 86_400_000_000, TIME, "out of range"),
    (debezium("time.MicroTime", "int64"), 1, TIMESTAMP, "expected a timestamp"),
    (debezium("time.Timestamp", "int64"), 1529507596945, DATE, "rounded"),
    (debezium("time.Timestamp", "int64"), Decimal("1.5"), NTZ, "would be rounded"),
    (debezium("time.Timestamp", "int64"), Decimal("1e300"), NTZ, "expected a whole number"),
    (debezium("time.Timestamp", "int64"), True, NTZ, "expected a whole number"),
    (debezium("time.ZonedTime", "string"), "04:05:11+02:00", TIME, "expected a time"),
    (debezium("time.ZonedTimestamp", "string"), "2018-06-20T15:13:16Z", NTZ, "without a zone"),
    (debezium("time.Interval", "string"), "P1Y2M3DT4H5M6.78S", INTERVAL, "has months"),
    (debezium("time.StructuredDuration", "struct"), {"months": 1}, INTERVAL, "has months"),
    (debezium("time.StructuredTimestamp", "struct"), {"specialValue": "POSITIVE_INFINITY"}, NTZ, "POSITIVE_INFINITY"),
    (debezium("time.StructuredDate", "struct"), {"year": 0, "month": 0, "day": 0}, DATE, "out of range"),
    (debezium("time.StructuredDate", "struct"), {"year": "2018", "month": 6, "day": 20}, DATE, "a whole year"),
    (field("c", "int64"), 1529507596945, NTZ, "expected a timestamp"),
    (decimal("c", 2), "12.34", MONEY, "decimal_mode = 'string'"),
    (decimal("c", 4), digits(123456), MONEY, "would be rounded"),
    (decimal("c", 2), digits(10**20), MONEY, "out of range"),
    (decimal("c", 2), "", MONEY, "of 1 to 1024 bytes"),
    (decimal("c", 2), "A" * 4000, MONEY, "of 1 to 1024 bytes"),
    (
        debezium("data.VariableScaleDecimal", "struct"),
        {"scale": 10**9, "value": digits(1)},
        STRING,
        "of 1 to 1024 bytes",
    ),
    (debezium("data.VariableScaleDecimal", "struct"), {"scale": "2"}, MONEY, "scale and value"),
    (field("c", "string"), "NAN", MONEY, "expected a number"),
    (field("c", "string"), "many", DOUBLE, "expected a number"),
    (field("c", "string"), "1.5", LONG, "expected a whole number"),
    (field("c", "bytes"), "not base64!", BINARY, "base64"),
    (debezium("data.Json", "string"), "{broken", MapType(STRING, STRING), "is no JSON"),
    (field("c", "array", items=debezium("time.Date", "int32")), [0, "x"], ArrayType(DATE), "[1]"),
    (field("c", "array", items=field("", "int32")), {"a": 1}, ArrayType(LONG), "expected a list"),
    (field("c", "string"), {"a": 1}, LONG, "object with scale and value"),
]


@pytest.mark.parametrize(("schema", "value", "data_type", "reason"), REFUSED)
def test_what_would_change_on_the_way_is_refused(schema: Schema, value: Any, data_type: DataType, reason: str) -> None:
    with pytest.raises((Undecodable, BadValue)) as refused:
        taken(value, data_type, schema)
    assert reason in str(refused.value)
    assert str(refused.value).startswith("column c")


WITHOUT_SCHEMA: list[tuple[dict[str, Any], str, Any, DataType, Any]] = [
    # Options, connector, value, column, what it holds.
    ({}, "postgresql", 1529507596945104, NTZ, LOCAL),
    ({}, "mysql", 1529507596945, NTZ, MILLIS),
    ({}, "mariadb", 1529507596945, TIMESTAMP, MILLIS.replace(tzinfo=UTC)),
    ({"time_units": "C: microseconds"}, "mysql", 1529507596945104, NTZ, LOCAL),
    ({"time_units": {"c": "nanoseconds"}}, "sqlserver", 1529507596945104000, NTZ, LOCAL),
    ({"time_precision": "connect"}, "oracle", 1529507596945, NTZ, MILLIS),
    ({"time_precision": "microseconds"}, "mysql", 1529507596945104, NTZ, LOCAL),
    ({"time_precision": "nanoseconds"}, "sqlserver", 1529507596945104000, NTZ, LOCAL),
    ({"time_precision": "isostring"}, "postgresql", "2018-06-20T15:13:16.945104Z", NTZ, LOCAL),
    ({"time_precision": "structured"}, "postgresql", {"year": 2018, "month": 6, "day": 20}, DATE, date(2018, 6, 20)),
    ({}, "postgresql", "2018-06-20T15:13:16.945104Z", TIMESTAMP, INSTANT),
    ({}, "postgresql", 17702, DATE, date(2018, 6, 20)),
    ({}, "postgresql", 14711789, TimeType(3), time(4, 5, 11, 789000)),
    ({}, "postgresql", 14711789123, TimeType(6), time(4, 5, 11, 789123)),
    ({"time_precision": "adaptive_time_microseconds"}, "mysql", 14711789000, TimeType(3), time(4, 5, 11, 789000)),
    ({"time_precision": "connect"}, "postgresql", 14711789, TimeType(6), time(4, 5, 11, 789000)),
    ({}, "postgresql", 5, INTERVAL, timedelta(microseconds=5)),
    ({}, "postgresql", digits(1234), MONEY, Decimal("12.34")),
    ({}, "postgresql", {"scale": 3, "value": digits(12340)}, MONEY, Decimal("12.34")),
    ({}, "postgresql", Decimal("12.34"), MONEY, Decimal("12.34")),
    ({"decimal_mode": "string"}, "postgresql", "12.34", MONEY, Decimal("12.34")),
    ({"decimal_mode": "string"}, "postgresql", "1234", MONEY, Decimal("1234.00")),
    ({"decimal_mode": "double"}, "postgresql", Decimal("12.34"), MONEY, Decimal("12.34")),
    ({}, "postgresql", "AP8=", BINARY, b"\x00\xff"),
    ({"binary_mode": "hex"}, "postgresql", "00ff", BINARY, b"\x00\xff"),
    ({"binary_mode": "base64-url-safe"}, "postgresql", "_-8=", BINARY, b"\xff\xef"),
    ({"binary_mode": "base64-url-safe"}, "postgresql", "_-8", BINARY, b"\xff\xef"),
    ({}, "postgresql", '{"k": "v"}', MapType(STRING, STRING), [("k", "v")]),
    ({}, "postgresql", [17702], ArrayType(DATE), [date(2018, 6, 20)]),
    ({}, "postgresql", 1, BooleanType(), True),
    ({"excess_precision": "truncate"}, "postgresql", "2018-06-20T15:13:16.945104999Z", TIMESTAMP, INSTANT),
    ({"excess_precision": "truncate", "time_precision": "nanoseconds"}, "sqlserver", 1529507596945104999, NTZ, LOCAL),
]


@pytest.mark.parametrize(("options", "connector", "value", "data_type", "expected"), WITHOUT_SCHEMA)
def test_without_a_schema_the_column_and_the_options_decide(
    options: dict[str, Any], connector: str, value: Any, data_type: DataType, expected: Any
) -> None:
    assert taken(value, data_type, None, read_options(options), connector=connector) == expected


@pytest.mark.parametrize(
    ("options", "connector", "value", "data_type", "reason"),
    [
        ({}, "sqlserver", 1529507596945, NTZ, "nobody said what 1529507596945 counts"),
        ({}, "oracle", 1529507596945, TIMESTAMP, "time_units"),
        ({}, "sqlserver", 14711789123000, TimeType(6), "nobody said"),
        ({"decimal_mode": "precise"}, "postgresql", "12.34", MONEY, "decimal_mode = 'string'"),
        ({"binary_mode": "hex"}, "postgresql", "0g", BINARY, "hexadecimal"),
        ({"binary_mode": "hex"}, "postgresql", "00 ff", BINARY, "hexadecimal"),
        ({"time_precision": "isostring"}, "postgresql", 5, NTZ, "expected a timestamp"),
    ],
)
def test_without_a_schema_nothing_is_guessed(
    options: dict[str, Any], connector: str, value: Any, data_type: DataType, reason: str
) -> None:
    with pytest.raises((Undecodable, BadValue), match=reason):
        taken(value, data_type, None, read_options(options), connector=connector)


DESCRIBED: list[tuple[Schema, str]] = [
    (field("c", "boolean"), "boolean"),
    (field("c", "int8"), "tinyint"),
    (field("c", "int16"), "smallint"),
    (field("c", "int32"), "int"),
    (field("c", "int64"), "bigint"),
    (field("c", "float"), "float"),
    (field("c", "double"), "double"),
    (field("c", "string"), "string"),
    (field("c", "bytes"), "binary"),
    (decimal("c", 2, 10), "decimal(10,2)"),
    (decimal("c", 2), "decimal(38,2)"),
    (decimal("c", 2, 100), "decimal(38,2)"),
    (decimal("c", 39, 40), "string"),
    (decimal("c", -2, 10), "string"),
    (debezium("data.VariableScaleDecimal", "struct"), "decimal(38,18)"),
    (debezium("time.Date", "int32"), "date"),
    (connect("Time", "int32"), "time(3)"),
    (debezium("time.MicroTime", "int64"), "time(6)"),
    (debezium("time.NanoTimestamp", "int64"), "timestamp_ntz"),
    (connect("Timestamp", "int64"), "timestamp_ntz"),
    (debezium("time.ZonedTimestamp", "string"), "timestamp"),
    (debezium("time.ZonedTime", "string"), "string"),
    (debezium("time.MicroDuration", "int64"), "interval day to second"),
    (debezium("time.Interval", "string"), "string"),
    (debezium("time.Year", "int32"), "int"),
    (debezium("data.Bits", "bytes"), "binary"),
    (debezium("data.Json", "string"), "string"),
    (field("c", "array", items=debezium("time.Date", "int32")), "array<date>"),
    (field("c", "map", keys=field("", "string"), values=field("", "int32")), "map<string,int>"),
    (struct("c", [field("x", "double")], "io.debezium.data.geometry.Point"), "struct<x:double>"),
]


@pytest.mark.parametrize(("schema", "expected"), DESCRIBED)
def test_a_schema_describes_columns(schema: Schema, expected: str) -> None:
    (column,) = described_columns({"type": "struct", "fields": [schema]})
    assert (column.name, column.data_type.simpleString(), column.nullable) == ("c", expected, True)
    (column,) = described_columns({"type": "struct", "fields": [{**schema, "optional": False}]})
    assert not column.nullable


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"time_precision": "seconds"}, "time_precision"),
        ({"decimal_mode": 7}, "decimal_mode"),
        ({"time_units": "a: days"}, "time_units"),
        ({"time_units": 7}, "time_units"),
        ({"unavailable_value": "hex:xyz"}, "unavailable_value"),
        ({"unavailable_value": ""}, "unavailable_value"),
        ({"document_column": 7}, "document_column"),
    ],
)
def test_an_option_that_cannot_be_so_is_told(given: dict[str, Any], named: str) -> None:
    with pytest.raises(SourceError, match=named) as refused:
        read_options(given)
    assert refused.value.hint
