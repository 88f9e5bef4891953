"""How the values of one column are read, all of a batch at once, and what the raw table keeps of them.

A form is what JSON has for a value: text, an integer, a truth value. What can be worked out in columns is; anything
else is read value by value, each different one once, by what reads single records.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headrace.capture.columns import pattern
from headrace.capture.columns.base64_digits import decimals_of
from headrace.capture.columns.texts import join, or_null, plain_text, quoted_text
from headrace.capture.values.encoding import UNITS, Encoding, Kind
from headrace.capture.values.reading import Assume, reader
from headrace.capture.values.times import INFINITIES
from headrace.intake.numeric import integer_range
from headrace.intake.reasons import BadValue, plain
from headrace.intake.values import converter
from headrace.json_forms import json_form
from headrace.state.arrow_compute import pc
from headrace.state.arrow_types import arrow_type

Refused = npt.NDArray[np.bool_]
_EPOCH = datetime(1970, 1, 1)
_MOMENTS = (
    (datetime(1, 1, 1) - _EPOCH).days * 86_400_000_000,
    ((datetime(9999, 12, 31) - _EPOCH).days + 1) * 86_400_000_000 - 1,
)
_DAYS = ((date(1, 1, 1) - date(1970, 1, 1)).days, (date(9999, 12, 31) - date(1970, 1, 1)).days)
_LOCAL = (Kind.LOCAL_MILLIS, Kind.LOCAL_MICROS, Kind.LOCAL_NANOS)


class Form(StrEnum):
    """What JSON has for the values of a column."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


class Read(NamedTuple):
    """Exact values, their JSON texts, and which of them must be looked at alone."""

    values: pa.Array
    texts: pa.Array
    refused: Refused


@dataclass(frozen=True)
class ColumnForm:
    """How one column is written: what its JSON must be like, as what Arrow reads it, and what becomes of that."""

    pattern: str
    parsed: pa.DataType
    read: Callable[[pa.Array], Read]
    # Whether it is a number that Arrow reads as text, for its digits.
    quoted: bool = False


def usual_form(data_type: DataType) -> Form:
    """What a column most likely has where no value of it has been seen."""
    match data_type:
        case IntegralType():
            return Form.INTEGER
        case BooleanType():
            return Form.BOOLEAN
        case DoubleType() | FloatType():
            return Form.NUMBER
        case _:
            return Form.TEXT


def form_of(value: Any, data_type: DataType) -> Form | None:
    """The form of a value that was read as JSON; None for those that have none here."""
    if type(value) in (int, Decimal) and isinstance(data_type, (DoubleType, FloatType, DecimalType)):
        return Form.NUMBER
    return {str: Form.TEXT, int: Form.INTEGER, bool: Form.BOOLEAN}.get(type(value))


def column_form(form: Form, encoding: Encoding, data_type: DataType, assume: Assume, *, truncate: bool) -> ColumnForm:
    """How values of a form are read for a column of a type."""
    alone = _one_by_one(encoding, data_type, assume, truncate=truncate)
    match form, data_type:
        case Form.INTEGER, IntegralType() if encoding.kind is Kind.PLAIN:
            return ColumnForm(pattern.INTEGER, pa.int64(), _integers(data_type))
        case Form.INTEGER, TimestampType() | TimestampNTZType() if encoding.kind in _LOCAL:
            return ColumnForm(pattern.INTEGER, pa.int64(), _moments(encoding, data_type, truncate=truncate))
        case Form.INTEGER, DateType() if encoding.kind is Kind.DATE_DAYS:
            return ColumnForm(pattern.INTEGER, pa.int64(), _days)
        case Form.INTEGER, _:
            return ColumnForm(pattern.INTEGER, pa.int64(), alone)
        case Form.NUMBER, DecimalType():
            wanted = pattern.decimal_number(data_type.precision, data_type.scale)
            return ColumnForm(wanted, pa.string(), _numbers(data_type), quoted=True)
        case Form.NUMBER, DoubleType():
            return ColumnForm(pattern.NUMBER, pa.string(), _numbers(data_type), quoted=True)
        case Form.NUMBER, _:
            numbers = _one_by_one(encoding, data_type, assume, truncate=truncate, given=_number)
            return ColumnForm(pattern.NUMBER, pa.string(), numbers, quoted=True)
        case Form.BOOLEAN, BooleanType():
            return ColumnForm(pattern.BOOLEAN, pa.bool_(), _booleans)
        case Form.BOOLEAN, _:
            return ColumnForm(pattern.BOOLEAN, pa.bool_(), alone)
        case _, StringType() if encoding.kind is Kind.PLAIN:
            return ColumnForm(pattern.TEXT, pa.string(), _texts)
        case _, DecimalType() if encoding.kind is Kind.PLAIN:
            wanted = f'"{pattern.decimal_number(data_type.precision, data_type.scale)}"'
            return ColumnForm(wanted, pa.string(), _or_alone(_decimal_texts(data_type), alone))
        case _, DecimalType() if encoding.kind is Kind.DECIMAL_BYTES:
            return ColumnForm(pattern.BASE64, pa.string(), _digits(data_type, encoding.scale))
        case _, TimestampType() if encoding.kind in _LOCAL:
            return ColumnForm(pattern.UTC_TIME, pa.string(), _or_alone(_utc_texts, alone))
        case _:
            return ColumnForm(pattern.TEXT, pa.string(), alone)


def _none(array: pa.Array) -> Refused:
    return np.zeros(len(array), dtype=bool)


def _integers(data_type: IntegralType) -> Callable[[pa.Array], Read]:
    low, high = integer_range(data_type)
    wanted = arrow_type(data_type)

    def read(array: pa.Array) -> Read:
        refused = _outside(array, low, high)
        kept = pc.if_else(pa.array(refused), pa.scalar(None, pa.int64()), array) if refused.any() else array
        return Read(kept.cast(wanted), plain_text(array), refused)

    return read


def _outside(array: pa.Array, low: int, high: int) -> Refused:
    outside = pc.or_(pc.less(array, pa.scalar(low, pa.int64())), pc.greater(array, pa.scalar(high, pa.int64())))
    return np.asarray(pc.fill_null(outside, False))


def _booleans(array: pa.Array) -> Read:
    return Read(array, plain_text(array), _none(array))


def _texts(array: pa.Array) -> Read:
    return Read(array, quoted_text(array), _none(array))


def _decimal_texts(data_type: DecimalType) -> Callable[[pa.Array], Read]:
    wanted = arrow_type(data_type)
    # The text is kept as it came: of these characters none needs to be escaped.
    return lambda array: Read(array.cast(wanted), or_null(join('"', array.cast(pa.large_string()), '"')), _none(array))


def _numbers(data_type: DataType) -> Callable[[pa.Array], Read]:
    wanted = arrow_type(data_type)

    def read(array: pa.Array) -> Read:
        digits = array.cast(pa.large_string())
        # A whole zero has no sign, which the digits have.
        signed = np.asarray(pc.fill_null(pc.equal(digits, "-0"), False))
        return Read(array.cast(wanted), _number_texts(digits), signed)

    return read


def _number_texts(digits: pa.Array) -> pa.Array:
    """What is kept of numbers: whole ones as they are, others as text without an exponent, for they are decimals."""
    texts = pc.if_else(pc.match_substring_regex(digits, "[.eE]"), join('"', digits, '"'), digits)
    exponents = pc.fill_null(pc.match_substring_regex(digits, "[eE]"), False)
    if pc.any(exponents).as_py():
        plain_ones = [f'"{Decimal(one):f}"' for one in digits.filter(exponents).to_pylist()]
        texts = pc.replace_with_mask(texts, exponents, pa.array(plain_ones, pa.large_string()))
    return or_null(texts)


def _number(digits: str) -> int | Decimal:
    """A number as the reader of JSON gives it."""
    return int(digits) if digits.removeprefix("-").isdigit() else Decimal(digits)


def _digits(data_type: DecimalType, scale: int) -> Callable[[pa.Array], Read]:
    wanted = arrow_type(data_type)
    most = pa.scalar(Decimal(10**data_type.precision - 1).scaleb(-scale), pa.decimal128(38, scale))
    least = pa.scalar(-most.as_py(), pa.decimal128(38, scale))

    def read(array: pa.Array) -> Read:
        numbers, refused = decimals_of(array, scale)
        outside = pc.or_(pc.greater(numbers, most), pc.less(numbers, least))
        refused = refused | np.asarray(pc.fill_null(outside, False))
        if refused.any():
            numbers = pc.if_else(pa.array(refused), pa.scalar(None, numbers.type), numbers)
        return Read(numbers.cast(wanted), or_null(join('"', digits_text(numbers, scale), '"')), refused)

    return read


def digits_text(numbers: pa.Array, scale: int) -> pa.Array:
    """Decimals with all digits of their scale, never with an exponent, which Arrow's own text of small ones has."""
    # The same digits without a point: a decimal without a scale is written as a whole number.
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(numbers), numbers.buffers(), offset=numbers.offset)
    texts = whole.cast(pa.string()).cast(pa.large_string())
    if not scale:
        return texts
    negative = pc.starts_with(texts, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(texts, "-"), scale + 1, "0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    sign = pc.if_else(negative, pa.scalar("-", pa.large_string()), pa.scalar("", pa.large_string()))
    return join(sign, before, ".", after)


def _utc_texts(array: pa.Array) -> Read:
    moments = array.cast(pa.timestamp("us", "UTC"))
    return Read(moments, or_null(join('"', array.cast(pa.large_string()), '"')), _none(array))


def _moments(encoding: Encoding, data_type: DataType, *, truncate: bool) -> Callable[[pa.Array], Read]:
    _, many, of_micro = UNITS[encoding.kind]
    low, high = -(-_MOMENTS[0] * of_micro // many), _MOMENTS[1] * of_micro // many
    bounds = max(low, -(1 << 63)), min(high, (1 << 63) - 1)
    infinities = pa.array(sorted(one for one in INFINITIES if abs(one) < 1 << 63), pa.int64())
    wanted = arrow_type(data_type)

    def read(array: pa.Array) -> Read:
        refused = _outside(array, *bounds) | np.asarray(pc.is_in(array, infinities))
        gone = np.asarray(array.is_null())
        numbers = np.where(refused | gone, 0, np.asarray(array.fill_null(0)))
        if not truncate:
            refused = refused | (numbers % of_micro != 0)
        micros = pa.array(numbers * many // of_micro, pa.int64(), mask=gone)
        local = micros.cast(pa.timestamp("us"))
        # As Python writes it: a T, and no fraction where there is none.
        spaced = pc.replace_substring_regex(local.cast(pa.string()), r"\.000000$", "")
        texts = pc.utf8_replace_slice(spaced, 10, 11, "T").cast(pa.large_string())
        return Read(micros.cast(wanted), or_null(join('"', texts, '"')), refused)

    return read


def _days(array: pa.Array) -> Read:
    refused = _outside(array, *_DAYS)
    kept = pc.if_else(pa.array(refused), pa.scalar(None, pa.int64()), array) if refused.any() else array
    days = kept.cast(pa.int32()).cast(pa.date32())
    return Read(days, or_null(join('"', days.cast(pa.string()).cast(pa.large_string()), '"')), refused)


def _or_alone(read: Callable[[pa.Array], Read], alone: Callable[[pa.Array], Read]) -> Callable[[pa.Array], Read]:
    """Read all at once, or each by itself if one of them cannot be read so: the 30th of February is well-formed."""

    def either(array: pa.Array) -> Read:
        try:
            return read(array)
        except pa.ArrowInvalid:
            return alone(array)

    return either


def _one_by_one(
    encoding: Encoding,
    data_type: DataType,
    assume: Assume,
    *,
    truncate: bool,
    given: Callable[[Any], Any] = lambda value: value,
) -> Callable[[pa.Array], Read]:
    read_value = reader(encoding, data_type, assume, truncate=truncate)
    convert = converter(data_type)
    wanted = arrow_type(data_type)

    def read(array: pa.Array) -> Read:
        numbered = array.dictionary_encode()
        exact: list[object] = []
        texts: list[str] = []
        bad: list[bool] = []
        for value in numbered.dictionary.to_pylist():
            try:
                image = read_value(given(value))
                exact.append(convert(plain(image)))
                texts.append(json.dumps(image, default=json_form, ensure_ascii=False))
                bad.append(False)
            except BadValue:
                exact.append(None)
                texts.append("null")
                bad.append(True)
        places = numbered.indices
        refused = pc.fill_null(pa.array(bad, pa.bool_()).take(places), False)
        return Read(
            pa.array(exact, wanted).take(places),
            or_null(pa.array(texts, pa.large_string()).take(places)),
            np.asarray(refused),
        )

    return read
