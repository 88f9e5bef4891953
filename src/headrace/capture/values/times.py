"""Dates, times, timestamps and durations in all the ways in which they are written: to the microsecond or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, cast

from headrace.capture.values.encoding import INSTANTS, UNITS, Encoding, Family, Kind
from headrace.intake.reasons import BadValue, expected, out_of_range, rounded, shown

Reader = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1)
_DAY_MICROS = 86_400_000_000
_ZULU = re.compile(r"(?:[Zz]|[+-]00(?::?00)?)$", re.ASCII)
_FINE = re.compile(r"([.,]\d{6})\d+", re.ASCII)
_MONTHS = re.compile(r"([+-]?)P(?:([+-]?\d{1,18})Y)?(?:([+-]?\d{1,18})M)?(.*)", re.ASCII | re.DOTALL)
# What PostgreSQL's own infinity has become on the way, in milliseconds or in microseconds.
INFINITIES = frozenset({9223372036825200000, -9223372036832400000, 9223372036825200, -9223372036832400})


def temporal_reader(encoding: Encoding, family: Family, type_name: str, *, truncate: bool = False) -> Reader:
    """From a value so written to what the intake takes for a column of a family of times; `BadValue` if it is none.

    Numbers are counted in the encoding's unit, text is ISO 8601, and objects have calendar fields, whichever of them
    the encoding names. What is finer than a microsecond is refused, or cut off where that was asked for.
    """
    unit = UNITS.get(encoding.kind)
    text = _text_reader(encoding, family, type_name, truncate=truncate)

    def read(value: Any) -> Any:
        if type(value) is str:
            return text(value)
        if isinstance(value, (datetime, date, time, timedelta)):
            return value
        if isinstance(value, Mapping):
            return _from_fields(cast("Mapping[str, Any]", value), family, type_name, truncate=truncate)
        if encoding.kind is Kind.UNIT_UNKNOWN:
            raise BadValue(
                f"nobody said what {shown(value)} counts in {type_name}: send the schema along, or set time_precision "
                "or time_units"
            )
        if unit is None or (unit[0], family) not in _COUNTED:
            raise expected(_EXPECTED[family], type_name, value)
        micros = _micros(value, unit[1], unit[2], type_name, truncate=truncate)
        return _FROM_MICROS[family](micros, value, type_name, encoding.kind in INSTANTS)

    return read


def _micros(value: Any, many: int, of_micro: int, type_name: str, *, truncate: bool) -> int:
    number = whole(value, type_name, truncate=truncate) * many
    if not truncate and number % of_micro:
        raise rounded(type_name, value)
    return number // of_micro


def whole(value: Any, type_name: str, *, truncate: bool = False) -> int:
    """A number as a whole one; JSON may write it with an exponent, and Oracle's connector sends doubles."""
    if type(value) is int:
        return value
    if isinstance(value, (Decimal, float)):
        number = Decimal(value)
        # The range comes first: int() of a huge exponent would fill the memory.
        if number.is_finite() and abs(number) < Decimal(1 << 80):
            if number == int(number) or truncate:
                return int(number)
            raise rounded(type_name, value)
    raise expected("a whole number", type_name, value)


def _timestamp(micros: int, value: Any, type_name: str, instant: bool) -> datetime:
    if value in INFINITIES:
        raise BadValue(f"infinity is no {type_name}")
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise out_of_range(type_name, value) from None
    return moment.replace(tzinfo=UTC) if instant else moment


def _date(micros: int, value: Any, type_name: str, instant: bool) -> object:
    moment = _timestamp(micros, value, type_name, instant)
    # One that is not at midnight stays a moment, which the intake refuses.
    return moment if micros % _DAY_MICROS else moment.date()


def _time(micros: int, value: Any, type_name: str, _: bool) -> time:
    if not 0 <= micros < _DAY_MICROS:
        raise out_of_range(type_name, value)
    return (_EPOCH + timedelta(microseconds=micros)).time()


def _duration(micros: int, value: Any, type_name: str, _: bool) -> timedelta:
    try:
        return timedelta(microseconds=micros)
    except OverflowError:
        raise out_of_range(type_name, value) from None


_FROM_MICROS: dict[Family, Callable[[int, Any, str, bool], object]] = {
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "duration": _duration,
}
_EXPECTED: dict[Family, str] = {
    "date": "a date",
    "time": "a time of day",
    "timestamp": "a timestamp",
    "duration": "an interval",
}
# What may be counted into what: a day is its midnight, and MySQL's TIME is also a length.
_COUNTED = frozenset(
    {
        ("date", "date"),
        ("timestamp", "date"),
        ("date", "timestamp"),
        ("timestamp", "timestamp"),
        ("time", "time"),
        ("time", "duration"),
        ("duration", "duration"),
    }
)


def _text_reader(encoding: Encoding, family: Family, type_name: str, *, truncate: bool) -> Callable[[str], str]:
    """Text as the intake takes it: without a zone that means nothing, and with no more digits than it holds."""
    without_zone = family in ("date", "time") or encoding.kind is Kind.ISO_LOCAL

    def read(value: str) -> str:
        text = _FINE.sub(r"\1", value) if truncate else value
        # As GoldenGate writes what Oracle calls a DATE.
        text = f"{text[:10]} {text[11:]}" if text[10:11] == ":" else text
        if family == "duration":
            return without_months(text, type_name)
        return _ZULU.sub("", text) if without_zone and not (family == "date" and len(text) == 10) else text

    return read


def without_months(text: str, type_name: str) -> str:
    """An ISO 8601 duration without its years and months, which must be none: nobody knows how long they are."""
    match = _MONTHS.fullmatch(text)
    if match is None:
        return text
    sign, years, months, rest = match.groups()
    if int(years or 0) or int(months or 0):
        raise BadValue(f"{shown(text)} has months, which have no length as {type_name}; STRING takes it as it is")
    return f"{sign}P{rest}" if rest else "PT0S"


def _from_fields(value: Mapping[str, Any], family: Family, type_name: str, *, truncate: bool) -> object:
    """A value by its calendar fields, as Debezium's structured times have them."""
    special = value.get("specialValue")
    if special is not None:
        raise BadValue(f"{shown(special)} is no {type_name}")

    def part(name: str, default: int | None = None) -> int:
        found = value.get(name)
        if found is None and default is not None:
            return default
        if type(found) is not int or abs(found) >= 1 << 63:
            raise expected(f"an object with a whole {name}", type_name, dict(value))
        return found

    nanos = part("nanos", 0)
    if nanos % 1000 and not truncate:
        raise rounded(type_name, dict(value))
    try:
        if family == "duration":
            return _from_duration_fields(part, nanos, type_name, value)
        micros = nanos // 1000
        if family == "date" and "hour" not in value:
            return date(part("year"), part("month"), part("day"))
        clock = time(part("hour"), part("minute"), part("second"), micros)
        offset = value.get("offsetSeconds")
        if family == "time":
            if offset is not None and offset != 0:
                raise BadValue(f"a time with a zone is no {type_name}; STRING takes it as it is")
            return clock
        day = date(part("year"), part("month"), part("day"))
        zone = None if offset is None else timezone(timedelta(seconds=part("offsetSeconds")))
        return datetime.combine(day, clock, zone)
    except (ValueError, OverflowError) as error:
        if isinstance(error, BadValue):
            raise
        raise out_of_range(type_name, dict(value)) from None


def _from_duration_fields(part: Callable[..., int], nanos: int, type_name: str, value: Mapping[str, Any]) -> timedelta:
    if part("years", 0) or part("months", 0):
        raise BadValue(f"{shown(dict(value))} has months, which have no length as {type_name}")
    return timedelta(
        days=part("days", 0),
        hours=part("hours", 0),
        minutes=part("minutes", 0),
        seconds=part("seconds", 0),
        microseconds=nanos // 1000,
    )
