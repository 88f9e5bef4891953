"""A value becomes its column's type exactly, or is refused with a reason."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    Row,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import UnsupportedStatement
from headrace.intake.values import BadValue, column_converter, converter

FIXED = settings(derandomize=True, deadline=None)
POINT = StructType([StructField("x", IntegerType(), False), StructField("Label", StringType())])

ACCEPTED: list[tuple[DataType, object, object]] = [
    (ByteType(), 127, 127),
    (ByteType(), -128, -128),
    (ShortType(), 32767, 32767),
    (IntegerType(), Decimal(3), 3),
    (IntegerType(), Decimal("3.000"), 3),
    (IntegerType(), 3.0, 3),
    (IntegerType(), -(2**31), -(2**31)),
    (LongType(), 2**63 - 1, 2**63 - 1),
    (LongType(), Decimal("9223372036854775807"), 2**63 - 1),
    (LongType(), np.int32(7), 7),
    (LongType(), pa.scalar(7), 7),
    (DecimalType(10, 2), "12.5", Decimal("12.50")),
    (DecimalType(10, 2), "1250e-2", Decimal("12.50")),
    (DecimalType(10, 2), "12.5000", Decimal("12.50")),
    (DecimalType(10, 2), Decimal("-99999999.99"), Decimal("-99999999.99")),
    (DecimalType(10, 2), 7, Decimal("7.00")),
    (DecimalType(10, 2), 0.1, Decimal("0.10")),
    (DecimalType(10, 2), np.float64(0.1), Decimal("0.10")),
    (DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
    (DecimalType(38, 38), "0." + "1" * 38, Decimal("0." + "1" * 38)),
    (DoubleType(), 1, 1.0),
    (DoubleType(), 2**60, float(2**60)),
    (DoubleType(), 0.1, 0.1),
    (DoubleType(), Decimal("0.1"), 0.1),
    (DoubleType(), Decimal("1e-400"), 0.0),
    (DoubleType(), "Infinity", math.inf),
    (DoubleType(), "-Infinity", -math.inf),
    (DoubleType(), Decimal("Infinity"), math.inf),
    (DoubleType(), np.float32(0.5), 0.5),
    (FloatType(), 0.5, 0.5),
    (FloatType(), 0.1, 0.10000000149011612),
    (FloatType(), Decimal("0.1"), 0.10000000149011612),
    (FloatType(), Decimal("0.123456789012345"), float(np.float32(0.123456789012345))),
    (FloatType(), 16777216, 16777216.0),
    (FloatType(), math.inf, math.inf),
    (FloatType(), "-Infinity", -math.inf),
    (StringType(), "", ""),
    (StringType(), "日本", "日本"),
    (StringType(), np.str_("a"), "a"),
    (BooleanType(), True, True),
    (BooleanType(), np.bool_(False), False),
    (BinaryType(), b"\x00", b"\x00"),
    (BinaryType(), bytearray(b"ab"), b"ab"),
    (BinaryType(), "AAE=", b"\x00\x01"),
    (BinaryType(), "", b""),
    (ArrayType(IntegerType()), [1, None, Decimal(2)], [1, None, 2]),
    (ArrayType(IntegerType()), (1, 2), [1, 2]),
    (ArrayType(IntegerType()), np.array([1]), [1]),
    (ArrayType(ArrayType(DateType())), [["2024-01-31"], []], [[date(2024, 1, 31)], []]),
    (POINT, {"x": 1}, {"x": 1, "Label": None}),
    (POINT, {"X": 1, "LABEL": "a"}, {"x": 1, "Label": "a"}),
    (POINT, Row(x=1, Label="a"), {"x": 1, "Label": "a"}),
    (POINT, pa.scalar({"x": 1, "Label": "a"}), {"x": 1, "Label": "a"}),
    (MapType(StringType(), IntegerType()), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    (MapType(StringType(), IntegerType()), [["a", 1], ("b", 2)], [("a", 1), ("b", 2)]),
    (MapType(IntegerType(), StringType()), {"-5": "x"}, [(-5, "x")]),
    (MapType(IntegerType(), StringType()), {5: "x"}, [(5, "x")]),
    (MapType(DoubleType(), StringType()), {"0.1": "x", "NaN": "y"}, [(0.1, "x"), (math.nan, "y")]),
    (MapType(BooleanType(), StringType()), {"true": "x"}, [(True, "x")]),
    (MapType(DateType(), StringType()), {"2024-01-31": "x"}, [(date(2024, 1, 31), "x")]),
    (MapType(DecimalType(5, 1), StringType()), {"1.5": "x"}, [(Decimal("1.5"), "x")]),
    (
        MapType(StringType(), ArrayType(POINT)),
        {"a": [{"x": 1}]},
        [("a", [{"x": 1, "Label": None}])],
    ),
]

REFUSED: list[tuple[DataType, object, str]] = [
    (ByteType(), 128, "128 is out of range for TINYINT"),
    (ShortType(), -32769, "-32769 is out of range for SMALLINT"),
    (IntegerType(), 2**31, "2147483648 is out of range for INT"),
    (LongType(), 2**63, "9223372036854775808 is out of range for BIGINT"),
    (LongType(), Decimal("1e999999"), "1E+999999 is out of range for BIGINT"),
    (LongType(), 10**5000, "an integer of 16610 bits is out of range for BIGINT"),
    (LongType(), math.inf, "expected an integer for BIGINT, got inf"),
    (LongType(), Decimal("NaN"), "expected an integer for BIGINT, got NaN"),
    (IntegerType(), 3.5, "3.5 would be rounded to fit INT"),
    (IntegerType(), Decimal("3.5"), "3.5 would be rounded to fit INT"),
    (IntegerType(), True, "expected an integer for INT, got True"),
    (IntegerType(), "12", "expected an integer for INT, got '12'"),
    (IntegerType(), [1], "expected an integer for INT, got [1]"),
    (DecimalType(10, 2), "1.005", "'1.005' would be rounded to fit DECIMAL(10,2)"),
    (DecimalType(10, 2), Decimal("1.005"), "1.005 would be rounded to fit DECIMAL(10,2)"),
    (DecimalType(10, 2), 0.125, "0.125 would be rounded to fit DECIMAL(10,2)"),
    (DecimalType(10, 2), "100000000", "'100000000' is out of range for DECIMAL(10,2)"),
    (
        DecimalType(10, 2),
        "1e999999999999999999999",
        "'1e999999999999999999999' is out of range for DECIMAL(10,2)",
    ),
    (DecimalType(10, 2), "abc", "expected a number for DECIMAL(10,2), got 'abc'"),
    (DecimalType(10, 2), "", "expected a number for DECIMAL(10,2), got ''"),
    (DecimalType(10, 2), "1_000", "expected a number for DECIMAL(10,2), got '1_000'"),
    (DecimalType(10, 2), "\u0661", "expected a number for DECIMAL(10,2), got '\u0661'"),
    (DecimalType(10, 2), "NaN", "expected a number for DECIMAL(10,2), got 'NaN'"),
    (DecimalType(10, 2), "Infinity", "expected a number for DECIMAL(10,2), got 'Infinity'"),
    (DecimalType(10, 2), math.nan, "expected a number for DECIMAL(10,2), got nan"),
    (DecimalType(10, 2), math.inf, "inf is out of range for DECIMAL(10,2)"),
    (DecimalType(10, 2), True, "expected a number for DECIMAL(10,2), got True"),
    (DoubleType(), 2**53 + 1, "9007199254740993 would be rounded to fit DOUBLE"),
    (DoubleType(), 10**400, "an integer of 1329 bits is out of range for DOUBLE"),
    (DoubleType(), Decimal("1e400"), "1E+400 is out of range for DOUBLE"),
    (DoubleType(), "1.5", "expected a number for DOUBLE, got '1.5'"),
    (DoubleType(), True, "expected a number for DOUBLE, got True"),
    (FloatType(), 16777217, "16777217 would be rounded to fit FLOAT"),
    (FloatType(), 0.123456789012345, "0.123456789012345 would be rounded to fit FLOAT"),
    (FloatType(), 1e39, "1e+39 is out of range for FLOAT"),
    (FloatType(), 10**400, "an integer of 1329 bits is out of range for FLOAT"),
    (DoubleType(), 10**400, "an integer of 1329 bits is out of range for DOUBLE"),
    (FloatType(), Decimal("1e39"), "1E+39 is out of range for FLOAT"),
    (StringType(), 5, "expected a string for STRING, got 5"),
    (StringType(), b"a", "expected a string for STRING, got b'a'"),
    (StringType(), "\ud800", "'\\ud800' holds half a surrogate pair, which is no text"),
    (BooleanType(), 1, "expected true or false for BOOLEAN, got 1"),
    (BooleanType(), "true", "expected true or false for BOOLEAN, got 'true'"),
    (BinaryType(), "not base64!", "expected base64 text for BINARY, got 'not base64!'"),
    (BinaryType(), "é", "expected base64 text for BINARY, got 'é'"),
    (BinaryType(), 5, "expected bytes or base64 text for BINARY, got 5"),
    (ArrayType(IntegerType()), "abc", "expected a list for ARRAY, got 'abc'"),
    (ArrayType(IntegerType()), {"a": 1}, "expected a list for ARRAY, got {'a': 1}"),
    (ArrayType(IntegerType()), [1, "2"], "[1]: expected an integer for INT, got '2'"),
    (ArrayType(ArrayType(IntegerType())), [[], [1, "2"]], "[1][1]: expected an integer for INT, got '2'"),
    (ArrayType(IntegerType(), False), [1, None], "[1]: NULL, but the elements are NOT NULL"),
    (POINT, {}, ".x: missing, but it is NOT NULL"),
    (POINT, {"x": None}, ".x: NULL, but it is NOT NULL"),
    (POINT, {"x": "a"}, ".x: expected an integer for INT, got 'a'"),
    (POINT, {"x": 1, "y": 2}, "unknown field 'y'; the fields are x, Label"),
    (POINT, {"x": 1, "X": 2}, "field x is given twice"),
    (POINT, [1, "a"], "expected an object for STRUCT, got [1, 'a']"),
    (ArrayType(POINT), [{"x": 1}, {"x": 1.5}], "[1].x: 1.5 would be rounded to fit INT"),
    (MapType(StringType(), IntegerType()), 5, "expected an object or a list of pairs for MAP, got 5"),
    (MapType(StringType(), IntegerType()), [1], "expected an object or a list of pairs for MAP, got [1]"),
    (MapType(StringType(), IntegerType()), [("a", 1), ("a", 2)], "the MAP key 'a' is given twice"),
    (MapType(DoubleType(), IntegerType()), {0.0: 1, "-0.0": 2}, "the MAP key -0.0 is given twice"),
    (MapType(IntegerType(), IntegerType()), {"5": 1, "+5": 2}, "the MAP key 5 is given twice"),
    (MapType(StringType(), IntegerType()), [(None, 1)], "a MAP key is NULL"),
    (MapType(StringType(), IntegerType(), False), {"a": None}, "['a']: NULL, but the values are NOT NULL"),
    (MapType(StringType(), IntegerType()), {"a": "b"}, "['a']: expected an integer for INT, got 'b'"),
    (MapType(StringType(), IntegerType()), {1: 1}, "key: expected a string for STRING, got 1"),
    (MapType(IntegerType(), IntegerType()), {"x": 1}, "key: expected an integer key for INT, got 'x'"),
    (MapType(IntegerType(), IntegerType()), [["5", 1]], "key: expected an integer for INT, got '5'"),
]


def _case_name(case: object) -> str:
    return case.simpleString() if isinstance(case, DataType) else type(case).__name__


@pytest.mark.parametrize(("data_type", "value", "exact"), ACCEPTED, ids=_case_name)
def test_an_exact_value_is_taken(data_type: DataType, value: object, exact: object) -> None:
    done = converter(data_type)(value)
    assert repr(done) == repr(exact)
    assert list(map(repr, column_converter(data_type)([value, None]))) == [repr(exact), "None"]
    assert list(map(repr, column_converter(data_type)([value]))) == [repr(exact)]


@pytest.mark.parametrize(("data_type", "value", "reason"), REFUSED, ids=_case_name)
def test_any_other_value_is_refused_with_a_reason(data_type: DataType, value: object, reason: str) -> None:
    with pytest.raises(BadValue) as caught:
        converter(data_type)(value)
    assert caught.value.reason == reason
    with pytest.raises(BadValue):
        column_converter(data_type)([value])
    with pytest.raises(BadValue):
        column_converter(data_type)([None, value])


def test_not_a_number_is_a_double() -> None:
    for data_type in (DoubleType(), FloatType()):
        for value in ("NaN", math.nan, Decimal("NaN"), Decimal("sNaN")):
            done = converter(data_type)(value)
            assert isinstance(done, float)
            assert math.isnan(done)


def test_a_refusal_shows_no_more_than_a_line() -> None:
    for value in ("x" * 10_000, list(range(10_000)), Decimal("1" * 10_000)):
        with pytest.raises(BadValue) as caught:
            converter(BooleanType())(value)
        assert len(caught.value.reason) < 130


def test_a_column_refuses_null_where_it_must() -> None:
    with pytest.raises(BadValue):
        column_converter(IntegerType(), nullable=False)([1, None])
    assert column_converter(IntegerType(), nullable=False)([1, 2]) == [1, 2]


def test_a_column_checks_every_value() -> None:
    with pytest.raises(BadValue):
        column_converter(ByteType())([1, 2, 128])
    with pytest.raises(BadValue):
        column_converter(IntegerType())([1, True])
    with pytest.raises(BadValue):
        column_converter(StringType())(["a", "\ud800"])
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    assert column_converter(TimestampType())([moment, datetime(2024, 1, 1), None]) == [moment, moment, None]


def test_a_type_that_arrow_cannot_carry_is_not_offered() -> None:
    with pytest.raises(UnsupportedStatement, match="type INTERVAL is not offered"):
        converter(CalendarIntervalType())
    with pytest.raises(UnsupportedStatement, match="two fields of one name"):
        converter(StructType([StructField("a", StringType()), StructField("A", StringType())]))


@FIXED
@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_decimal_text_is_kept_or_refused(value: Decimal) -> None:
    try:
        done = converter(DecimalType(18, 4))(str(value))
    except BadValue:
        assert abs(value) >= 10**14 or value != round(value, 4)
    else:
        assert done == value
        assert isinstance(done, Decimal)
        assert done.as_tuple().exponent == -4


@FIXED
@given(st.decimals(min_value=-(10**30), max_value=10**30, allow_nan=False))
def test_decimal_text_gives_the_nearest_single(value: Decimal) -> None:
    done = converter(FloatType())(value)
    assert isinstance(done, float)
    (bits,) = struct.unpack("<i", struct.pack("<f", done))
    exact = Fraction(value)
    for step in (-1, 1):
        if abs(done) > 0:
            (neighbour,) = struct.unpack("<f", struct.pack("<i", bits + step))
            assert abs(Fraction(done) - exact) <= abs(Fraction(neighbour) - exact)


def test_decimal_text_between_two_singles_is_rounded_once() -> None:
    between = Decimal(1) + Decimal(2) ** -24
    hair = Decimal("1e-26")
    assert converter(FloatType())(between - hair) == 1.0
    assert converter(FloatType())(between) == 1.0
    assert converter(FloatType())(between + hair) == 1 + 2**-23
    assert converter(FloatType())(-(between + hair)) == -(1 + 2**-23)


@FIXED
@given(st.floats(width=32, allow_nan=False))
def test_every_single_is_taken_as_a_float(value: float) -> None:
    assert converter(FloatType())(value) == value


@FIXED
@given(st.binary())
def test_binary_comes_back_from_base64(value: bytes) -> None:
    text = base64.b64encode(value).decode()
    assert converter(BinaryType())(text) == value


TEXTS = st.sampled_from(
    [
        "2024-02-29T12:00:00Z",
        "2024-02-29T12:00:01Z",
        "2024-02-29T12:00:00.123Z",
        "2024-02-29T12:00:00.123456Z",
        "2024-02-29T12:00:00.1234567Z",
        "2024-02-29T12:00:00+02",
        "12.50",
        "-0.5",
        "1e2",
        "+.5",
    ]
)


@st.composite
def columns_of_text(draw: st.DrawFn) -> list[str]:
    """Texts of one shape or of several, some with a character changed."""
    texts = draw(st.lists(TEXTS, min_size=1, max_size=4)) if draw(st.booleans()) else [draw(TEXTS)] * 3
    index = draw(st.integers(0, len(texts) - 1))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(texts[index]) - 1))
        mark = draw(st.sampled_from("0129-T :Z.+_e\u0661"))
        texts[index] = texts[index][:at] + mark + texts[index][at + 1 :]
    return texts


@settings(derandomize=True, deadline=None, max_examples=400)
@given(columns_of_text(), st.sampled_from([TimestampType(), DecimalType(10, 2), DecimalType(4, 1)]))
def test_a_column_of_text_is_read_as_each_text_alone(texts: list[str], data_type: DataType) -> None:
    def outcome(read: Callable[[], Sequence[object]]) -> list[str] | str:
        try:
            return list(map(repr, read()))
        except BadValue:
            return "refused"

    alone = converter(data_type)
    assert outcome(lambda: column_converter(data_type)(texts)) == outcome(lambda: list(map(alone, texts)))
