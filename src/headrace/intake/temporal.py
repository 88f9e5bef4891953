"""Dates, times, timestamps and day-time intervals: taken to the microsecond or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from pyspark.sql.types import DayTimeIntervalType, TimeType

from headrace.intake.reasons import BadValue, expected, out_of_range, plain, rounded

TIMESTAMP_TEXT = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[Tt ](\d{2}:\d{2})(?::(\d{2})(?:[.,](\d+))?)?)?([Zz]|[+-]\d{2}(?::?\d{2})?)?",
    re.ASCII,
)
TIME_TEXT = re.compile(r"(\d{2}:\d{2})(?::(\d{2})(?:[.,](\d+))?)?", re.ASCII)
ISO_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d{1,18})D)?(?:T(?:([+-]?\d{1,18})H)?(?:([+-]?\d{1,18})M)?"
    r"(?:([+-]?)(\d{1,18})(?:\.(\d+))?S)?)?",
    re.ASCII,
)
INTERVAL_LITERAL = re.compile(
    r"INTERVAL\s+([+-]?)'([^']*)'\s+(DAY|HOUR|MINUTE|SECOND)(?:\s+TO\s+(HOUR|MINUTE|SECOND))?",
    re.ASCII | re.IGNORECASE,
)
INTERVAL_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
FIELD_MICROSECONDS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
FIELD_TEXT = (r"(\d{1,18})", r"(\d{1,18})", r"(\d{1,18})", r"(\d{1,18})(?:\.(\d+))?")
LONGEST_INTERVAL = (1 << 63) - 1
# Whole days: Arrow takes a timedelta's days alone before it adds the rest, and they too must fit 64 bits.
SHORTEST_INTERVAL = -106_751_991 * FIELD_MICROSECONDS[0]


def date_converter() -> Callable[[object], date]:
    """Takes dates, 'YYYY-MM-DD', and datetimes at midnight UTC."""

    def convert(value: object) -> date:
        if type(value) is date:
            return value
        if isinstance(value, str):
            if len(value) == 10 and value[4] == "-" == value[7]:
                try:
                    return date.fromisoformat(value)
                except ValueError:
                    pass
            raise expected("a date 'YYYY-MM-DD'", "DATE", value)
        if isinstance(value, datetime):
            moment = _to_datetime(value, "DATE")
            moment = moment if moment.tzinfo is None else _to_utc(moment, "DATE")
            if moment.time() != time.min:
                raise rounded("DATE", value)
            return moment.date()
        if isinstance(value, date):
            return date(value.year, value.month, value.day)
        inner = plain(value)
        if inner is value:
            raise expected("a date 'YYYY-MM-DD'", "DATE", value)
        return convert(inner)

    return convert


def timestamp_converter() -> Callable[[object], datetime]:
    """Takes datetimes and ISO 8601 text as an instant in UTC; without a zone it is UTC already."""

    def convert(value: object) -> datetime:
        if type(value) is datetime:
            zone = value.tzinfo
            if zone is UTC:
                return value
            return value.replace(tzinfo=UTC) if zone is None else _to_utc(value, "TIMESTAMP")
        if type(value) is str:
            moment = _read_timestamp(value, "TIMESTAMP")
            zone = moment.tzinfo
            if zone is None:
                return moment.replace(tzinfo=UTC)
            return moment if zone is UTC else _to_utc(moment, "TIMESTAMP", value)
        return convert(_other_moment(value, "TIMESTAMP"))

    return convert


def read_utc_texts(values: Sequence[str]) -> list[datetime] | None:
    """Text as most systems write instants, all of one length and ending in Z; None if any has another shape."""
    length = len(values[0])
    if not 20 <= length <= 27 or any(map(length.__ne__, map(len, values))):
        return None
    # One long text tells of all values at once whether a character is at its offset.
    together = "".join(values)
    marks = ((4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":"), (length - 1, "Z"))
    if any(together[offset::length] != mark * len(values) for offset, mark in marks):
        return None
    try:
        return list(map(datetime.fromisoformat, values))
    except ValueError:
        return None


def timestamp_ntz_converter() -> Callable[[object], datetime]:
    """Takes datetimes and ISO 8601 text without a zone; one with a zone is refused."""

    def convert(value: object) -> datetime:
        if type(value) is datetime:
            moment = value
        elif type(value) is str:
            moment = _read_timestamp(value, "TIMESTAMP_NTZ")
        else:
            return convert(_other_moment(value, "TIMESTAMP_NTZ"))
        if moment.tzinfo is not None:
            raise expected("a timestamp without a zone", "TIMESTAMP_NTZ", value)
        return moment

    return convert


def time_converter(data_type: TimeType) -> Callable[[object], time]:
    """Takes times of day without a zone, and 'HH:MM:SS.ffffff', up to the type's digits."""
    type_name = f"TIME({data_type.precision})"
    step = 10 ** (6 - min(data_type.precision, 6))

    def convert(value: object) -> time:
        if isinstance(value, str):
            moment = read(value)
        elif isinstance(value, time):
            moment = value
        else:
            inner = plain(value)
            if inner is value:
                raise expected("a time 'HH:MM:SS'", type_name, value)
            return convert(inner)
        if moment.tzinfo is not None:
            raise expected("a time without a zone", type_name, value)
        if moment.microsecond % step:
            raise rounded(type_name, value)
        return moment

    def read(value: str) -> time:
        match = TIME_TEXT.fullmatch(value)
        if match is None:
            raise expected("a time 'HH:MM:SS'", type_name, value)
        minutes, seconds, fraction = match.groups()
        try:
            whole = time.fromisoformat(f"{minutes}:{seconds or '00'}")
        except ValueError:
            raise expected("a time 'HH:MM:SS'", type_name, value) from None
        return whole.replace(microsecond=_microseconds(fraction, type_name, value))

    return convert


def interval_converter(data_type: DayTimeIntervalType) -> Callable[[object], timedelta]:
    """Takes timedeltas, ISO 8601 durations and Spark's interval text, in whole steps of the last field."""
    first = data_type.startField or 0
    last = DayTimeIntervalType.SECOND if data_type.endField is None else data_type.endField
    type_name = data_type.simpleString().upper()
    step = 1 if last == DayTimeIntervalType.SECOND else FIELD_MICROSECONDS[last]

    def convert(value: object) -> timedelta:
        if isinstance(value, str):
            microseconds = _read_interval(value, first, last, type_name)
        elif isinstance(value, timedelta):
            microseconds = _interval_microseconds(value, type_name)
        else:
            inner = plain(value)
            if inner is value:
                raise expected("an interval", type_name, value)
            return convert(inner)
        if not SHORTEST_INTERVAL <= microseconds <= LONGEST_INTERVAL:
            raise out_of_range(type_name, value)
        if microseconds % step:
            raise rounded(type_name, value)
        return timedelta(microseconds=microseconds)

    return convert


def _read_timestamp(value: str, type_name: str) -> datetime:
    """The moment that ISO 8601 text names, aware only if the text has a zone."""
    # In these shapes a fraction has at most six digits, so that the built-in reader cuts nothing off.
    length = len(value)
    if (
        19 <= length <= 32
        and value[4] == "-" == value[7]
        and value[10] in "T "
        and value[13] == ":" == value[16]
        and (length <= 26 or value[26] in "Z+-")
    ):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    match = TIMESTAMP_TEXT.fullmatch(value)
    if match is None:
        raise expected("an ISO 8601 timestamp", type_name, value)
    day, minutes, seconds, fraction, zone = match.groups()
    if minutes is None and zone is not None:
        raise expected("an ISO 8601 timestamp", type_name, value)
    try:
        moment = datetime.fromisoformat(f"{day}T{minutes or '00:00'}:{seconds or '00'}{(zone or '').upper()}")
    except ValueError:
        raise expected("an ISO 8601 timestamp", type_name, value) from None
    return moment.replace(microsecond=_microseconds(fraction, type_name, value))


def _other_moment(value: object, type_name: str) -> datetime | str:
    if isinstance(value, datetime):
        return _to_datetime(value, type_name)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, str):
        return str(value)
    inner = plain(value)
    if inner is value:
        raise expected("an ISO 8601 timestamp", type_name, value)
    return inner


def _to_datetime(value: Any, type_name: str) -> datetime:
    """A plain datetime of any subclass; pandas' may carry nanoseconds, or be not a time at all."""
    if type(value) is datetime:
        return value
    if value != value:
        raise expected("a timestamp", type_name, value)
    if getattr(value, "nanosecond", 0):
        raise rounded(type_name, value)
    return datetime.combine(value.date(), value.timetz())


def _to_utc(value: datetime, type_name: str, given: object = None) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise out_of_range(type_name, given or value) from None


def _microseconds(fraction: str | None, type_name: str, value: object) -> int:
    if not fraction:
        return 0
    if fraction[6:].strip("0"):
        raise rounded(type_name, value)
    return int(fraction[:6].ljust(6, "0"))


def _interval_microseconds(value: Any, type_name: str) -> int:
    if value != value:
        raise expected("an interval", type_name, value)
    if getattr(value, "nanoseconds", 0):
        raise rounded(type_name, value)
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _read_interval(value: str, first: int, last: int, type_name: str) -> int:
    duration = ISO_DURATION.fullmatch(value)
    if duration is not None and value[-1] not in "PT":
        sign, days, hours, minutes, second_sign, seconds, fraction = duration.groups()
        moved = (int(part or 0) * size for part, size in zip((days, hours, minutes), FIELD_MICROSECONDS, strict=False))
        ending = int(seconds or 0) * 1_000_000 + _microseconds(fraction, type_name, value)
        total = sum(moved) + (-ending if second_sign == "-" else ending)
        return -total if sign == "-" else total
    literal = INTERVAL_LITERAL.fullmatch(value)
    if literal is None:
        return _read_fields(value, first, last, type_name, value)
    sign, body, start, end = literal.groups()
    first = INTERVAL_FIELDS.index(start.upper())
    last = INTERVAL_FIELDS.index((end or start).upper())
    total = _read_fields(body, first, last, type_name, value)
    return -total if sign == "-" else total


def _read_fields(body: str, first: int, last: int, type_name: str, value: str) -> int:
    """Microseconds of '1 02:03:04.5', or of the part of it between two fields."""
    pattern = ":".join(FIELD_TEXT[max(first, 1) : last + 1])
    if first == 0:
        pattern = FIELD_TEXT[0] + (f" {pattern}" if last > 0 else "")
    match = re.fullmatch(f"([+-]?){pattern}", body, re.ASCII) if last >= first else None
    if match is None:
        raise BadValue(f"expected an interval such as 'P1DT2H3M4.5S' for {type_name}, got {value!r:.80}")
    sign, *parts = match.groups()
    fraction = parts.pop() if last == 3 else None
    sizes = FIELD_MICROSECONDS[first : last + 1]
    # Only the first field may exceed its circle: 90 minutes, but not 1:90.
    limits = (24, 60, 60)[first:last] if first < last else ()
    if any(int(part) >= limit for part, limit in zip(parts[1:], limits, strict=True)):
        raise out_of_range(type_name, value)
    total = sum(int(part) * size for part, size in zip(parts, sizes, strict=True))
    total += _microseconds(fraction, type_name, value)
    return -total if sign == "-" else total
