"""Decimals in all the ways in which they are written, exact whatever their digits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from headrace.capture.values.binaries import from_base64
from headrace.capture.values.encoding import Encoding, Kind
from headrace.intake.numeric import NUMBER_TEXT
from headrace.intake.reasons import BadValue, expected, shown

# No database keeps more digits, and what has more would take long to look at.
MOST_BYTES = 1024
MOST_SCALE = 10_000
_INTEGER_TEXT = re.compile(r"[+-]?\d{1,40}", re.ASCII)
# As Debezium writes what is no number, and as everybody else does.
SPECIAL_NAMES = {
    "NAN": "NaN",
    "NaN": "NaN",
    "POSITIVE_INFINITY": "Infinity",
    "NEGATIVE_INFINITY": "-Infinity",
    "Infinity": "Infinity",
    "-Infinity": "-Infinity",
}


def read_decimal(value: Any, encoding: Encoding, type_name: str) -> Any:
    """A number as the intake takes it for a DECIMAL, a DOUBLE or an integer; text that is no number stays as it is."""
    if isinstance(value, Mapping):
        return _from_object(cast("Mapping[str, Any]", value), type_name)
    if encoding.kind in (Kind.DECIMAL_BYTES, Kind.BYTES) and isinstance(value, (str, bytes)):
        return _from_digits(value, encoding.scale, type_name)
    return value


def read_float(value: Any, encoding: Encoding, type_name: str) -> Any:
    """A number as the intake takes it for a DOUBLE or a FLOAT: text becomes the number that it writes."""
    number = read_decimal(value, encoding, type_name)
    if type(number) is not str:
        return number
    special = SPECIAL_NAMES.get(number)
    if special is not None:
        return special
    if len(number) > MOST_BYTES or not NUMBER_TEXT.fullmatch(number):
        raise expected("a number", type_name, value)
    try:
        return Decimal(number)
    except InvalidOperation:
        raise expected("a number", type_name, value) from None


def read_integer(value: Any, encoding: Encoding, type_name: str) -> Any:
    """A number as the intake takes it for an integer: text becomes the number that it writes, bits what they are."""
    if encoding.kind is Kind.BITS:
        content = from_base64(value, type_name)
        if len(content) > MOST_BYTES:
            raise expected("a whole number", type_name, value)
        return int.from_bytes(content, "little")
    number = read_decimal(value, encoding, type_name)
    if type(number) is str:
        if not _INTEGER_TEXT.fullmatch(number):
            raise expected("a whole number", type_name, value)
        return int(number)
    return number


def read_boolean(value: Any) -> Any:
    """A truth value as the intake takes it: databases without one write 0 and 1."""
    if type(value) is int and 0 <= value <= 1:
        return value == 1
    if type(value) is str and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


def _from_object(value: Mapping[str, Any], type_name: str) -> Decimal:
    """A number with the scale that it has itself."""
    scale, digits = value.get("scale"), value.get("value")
    if type(scale) is not int or not isinstance(digits, (str, bytes)):
        raise expected("an object with scale and value", type_name, dict(value))
    return _from_digits(digits, scale, type_name)


def _from_digits(value: str | bytes, scale: int, type_name: str) -> Decimal:
    try:
        content = from_base64(value, type_name)
    except BadValue:
        raise BadValue(
            f"expected the base64 of a number's digits for {type_name}, got {shown(value)}; decimal_mode = 'string' "
            "reads numbers as text"
        ) from None
    if not 0 < len(content) <= MOST_BYTES or abs(scale) > MOST_SCALE:
        raise expected(f"the digits of a number, of 1 to {MOST_BYTES} bytes,", type_name, value)
    return Decimal(f"{int.from_bytes(content, 'big', signed=True)}E{-scale}")
