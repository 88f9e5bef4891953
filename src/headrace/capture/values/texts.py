"""Values as text, for a column of STRING: what means something is written as that, everything else as it came."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from headrace.capture.exact_json import json_text
from headrace.capture.values.encoding import UNITS, Encoding, Kind
from headrace.capture.values.numbers import MOST_SCALE, read_decimal
from headrace.capture.values.times import temporal_reader

_DECIMALS = (Kind.DECIMAL_BYTES, Kind.DECIMAL_OBJECT)


def text_reader(encoding: Encoding, *, truncate: bool = False) -> Callable[[Any], Any]:
    """From a value so written to its text: ISO 8601 for what counts days or seconds, digits for a decimal."""
    unit = UNITS.get(encoding.kind)
    if unit is not None and unit[0] != "duration":
        read = temporal_reader(encoding, unit[0], "STRING", truncate=truncate)
        return lambda value: value if type(value) is str else text_of(read(value))
    if encoding.kind in _DECIMALS:
        return lambda value: text_of(read_decimal(value, encoding, "STRING"))
    return text_of


def text_of(value: Any) -> Any:
    """A value as text; an object or a list as JSON, bytes as base64."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case Decimal():
            exponent = value.as_tuple().exponent
            plain = isinstance(exponent, int) and abs(exponent) <= MOST_SCALE and value.adjusted() <= MOST_SCALE
            return f"{value:f}" if plain else str(value)
        case int() | float():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return str(value)
        case _:
            return json_text(value)
