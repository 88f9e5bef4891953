"""Integers, decimals and floating point: taken exactly or refused."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

from pyspark.sql.types import ByteType, DecimalType, IntegerType, IntegralType, LongType, ShortType

from headrace.intake.reasons import BadValue, expected, out_of_range, plain, rounded

INTEGER_BITS: dict[type[IntegralType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
NUMBER_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_PLAIN = frozenset("0123456789+-.eE")
SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def integer_range(data_type: IntegralType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    bits = INTEGER_BITS[type(data_type)]
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def integer_converter(data_type: IntegralType) -> Callable[[object], int]:
    """Takes integers in range, and decimals or floats that are exactly integral."""
    low, high = integer_range(data_type)
    type_name = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}[INTEGER_BITS[type(data_type)]]

    def convert(value: object) -> int:
        if type(value) is int:
            if low <= value <= high:
                return value
            raise out_of_range(type_name, value)
        return convert_other(value)

    def convert_other(value: object) -> int:
        if isinstance(value, (Decimal, float)):
            if not (value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)):
                raise expected("an integer", type_name, value)
            # The range comes first: int() of a huge exponent would fill the memory.
            if not low <= value <= high:
                raise out_of_range(type_name, value)
            if value != int(value):
                raise rounded(type_name, value)
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return convert(int(value))
        inner = plain(value)
        if inner is value:
            raise expected("an integer", type_name, value)
        return convert(inner)

    return convert


def decimal_converter(data_type: DecimalType) -> Callable[[object], Decimal]:
    """Takes numbers and numeric text that fit precision and scale without rounding."""
    type_name = f"DECIMAL({data_type.precision},{data_type.scale})"
    quantum = Decimal(1).scaleb(-data_type.scale)
    context = Context(prec=data_type.precision, traps=[Inexact, InvalidOperation])

    def convert(value: Any) -> Decimal:
        kind = type(value)
        try:
            if kind is Decimal:
                number = value
            elif kind is int or (kind is str and value.isascii() and "_" not in value):
                number = Decimal(value)
            else:
                number = other_number(value)
            # By position: keywords cost twice the time of the call itself.
            exact = number.quantize(quantum, None, context)
        except Inexact:
            raise rounded(type_name, value) from None
        except DecimalException:
            if kind is str and not NUMBER_TEXT.fullmatch(value):
                raise expected("a number", type_name, value) from None
            raise out_of_range(type_name, value) from None
        if exact.is_nan():
            raise expected("a number", type_name, value)
        return exact

    def other_number(value: object) -> Decimal:
        if isinstance(value, float):
            # A float stands for its shortest decimal text: 0.1 is one tenth.
            return Decimal(repr(float(value)))
        if isinstance(value, (Decimal, int)) and not isinstance(value, bool):
            return Decimal(value)
        inner = plain(value)
        if inner is value:
            raise expected("a number", type_name, value)
        return convert(inner)

    return convert


def decimal_texts_reader(data_type: DecimalType) -> Callable[[Sequence[str]], list[Decimal] | None]:
    """Reads a whole column of plain numbers; None if any of them is not one, or does not fit."""
    quantum = Decimal(1).scaleb(-data_type.scale)
    context = Context(prec=data_type.precision, traps=[Inexact, InvalidOperation])

    def read(values: Sequence[str]) -> list[Decimal] | None:
        if not _PLAIN.issuperset("".join(values)):
            return None
        try:
            return [number.quantize(quantum, None, context) for number in map(Decimal, values)]
        except DecimalException:
            return None

    return read


def double_converter() -> Callable[[object], float]:
    """Takes floats, decimals as their nearest double, integers that a double holds exactly."""

    def convert(value: object) -> float:
        if type(value) is float:
            return value
        if type(value) is Decimal:
            return _nearest_double(value, "DOUBLE")
        if isinstance(value, float):
            return float(value)
        if isinstance(value, Decimal):
            return _nearest_double(value, "DOUBLE")
        if isinstance(value, int) and not isinstance(value, bool):
            return _float_of_integer(int(value), "DOUBLE", float)
        return _other_float(value, "DOUBLE", convert)

    return convert


def float_converter() -> Callable[[object], float]:
    """Takes what 32 bits hold: decimal text as the nearest float, a double only if it comes back."""

    def convert(value: object) -> float:
        if isinstance(value, float):
            return _single_of_double(float(value))
        if isinstance(value, Decimal):
            return _nearest_single(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return _float_of_integer(int(value), "FLOAT", _single)
        return _other_float(value, "FLOAT", convert)

    return convert


def _other_float(value: object, type_name: str, convert: Callable[[object], float]) -> float:
    if isinstance(value, str):
        special = SPECIAL_FLOATS.get(value)
        if special is None:
            raise expected("a number", type_name, value)
        return special
    inner = plain(value)
    if inner is value:
        raise expected("a number", type_name, value)
    return convert(inner)


def _nearest_double(value: Decimal, type_name: str) -> float:
    try:
        number = float(value)
    except ValueError:
        # A signalling NaN, which only Python knows.
        return math.nan
    if number - number == 0.0 or not value.is_finite():
        return number
    raise out_of_range(type_name, value)


def _float_of_integer(value: int, type_name: str, nearest: Callable[[int], float]) -> float:
    try:
        number = nearest(value)
    except OverflowError:
        raise out_of_range(type_name, value) from None
    if int(number) != value:
        raise rounded(type_name, value)
    return number


def _single(value: float) -> float:
    """The nearest 32-bit float; OverflowError where there is none."""
    # An integer too large for a double is told as that here; struct has another error for it.
    return struct.unpack("<f", struct.pack("<f", float(value)))[0]


def _single_within_range(double: float, value: object) -> float:
    """The 32-bit float nearest to a double that a value was read as; refused where there is none."""
    try:
        return _single(double)
    except OverflowError:
        raise out_of_range("FLOAT", value) from None


def _single_of_double(value: float) -> float:
    if not math.isfinite(value):
        return value
    single = _single_within_range(value, value)
    if single == value:
        return single
    # 0.1 is no 32-bit float, but it is how the nearest one is written: decimal text, not a rounding.
    if any(float(f"{single:.{digits}g}") == value for digits in (6, 7, 8, 9)):
        return single
    raise rounded("FLOAT", value)


def _nearest_single(value: Decimal) -> float:
    double = _nearest_double(value, "FLOAT")
    if not math.isfinite(double):
        return double
    single = _single_within_range(double, value)
    if single == double:
        return single
    # Rounding twice goes wrong only where the double fell exactly between two 32-bit floats.
    bits: int = struct.unpack("<i", struct.pack("<f", single))[0]
    outward = abs(double) > abs(single)
    neighbour: float = struct.unpack("<f", struct.pack("<i", bits + (1 if outward else -1)))[0]
    exact = Decimal(double)
    if math.isinf(neighbour) or single + (neighbour - single) / 2 != double or exact == value:
        return single
    return max(single, neighbour) if value > exact else min(single, neighbour)


def integer_text(value: str, type_name: str) -> int:
    """The integer that a JSON object's key spells."""
    if not re.fullmatch(r"[+-]?\d{1,40}", value, re.ASCII):
        raise BadValue(f"expected an integer key for {type_name}, got {value!r}")
    return int(value)
