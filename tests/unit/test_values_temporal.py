"""Dates, times and intervals are taken to the microsecond or refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    DataType,
    DateType,
    DayTimeIntervalType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.intake.values import BadValue, converter

FIXED = settings(derandomize=True, deadline=None)
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
NAIVE_NOON = datetime(2024, 2, 29, 12)
EAST = timezone(timedelta(hours=2))
DAY, HOUR, MINUTE, SECOND = range(4)

ACCEPTED: list[tuple[DataType, object, object]] = [
    (DateType(), "2024-02-29", date(2024, 2, 29)),
    (DateType(), "0001-01-01", date.min),
    (DateType(), date(2024, 2, 29), date(2024, 2, 29)),
    (DateType(), datetime(2024, 2, 29), date(2024, 2, 29)),
    (DateType(), datetime(2024, 2, 29, 2, tzinfo=EAST), date(2024, 2, 29)),
    (DateType(), pd.Timestamp("2024-02-29"), date(2024, 2, 29)),
    (DateType(), np.datetime64("2024-02-29"), date(2024, 2, 29)),
    (TimestampType(), "2024-02-29T12:00:00", NOON),
    (TimestampType(), "2024-02-29 12:00:00", NOON),
    (TimestampType(), "2024-02-29T12:00", NOON),
    (TimestampType(), "2024-02-29", NOON.replace(hour=0)),
    (TimestampType(), "2024-02-29T12:00:00Z", NOON),
    (TimestampType(), "2024-02-29t12:00:00z", NOON),
    (TimestampType(), "2024-02-29T14:00:00+02:00", NOON),
    (TimestampType(), "2024-02-29 14:00:00+02", NOON),
    (TimestampType(), "2024-02-29T06:30:00-0530", NOON),
    (TimestampType(), "2024-02-29T12:00:00.5", NOON.replace(microsecond=500_000)),
    (TimestampType(), "2024-02-29T12:00:00.000001", NOON.replace(microsecond=1)),
    (TimestampType(), "2024-02-29T12:00:00.123456Z", NOON.replace(microsecond=123_456)),
    (TimestampType(), "2024-02-29T14:00:00.123456+02:00", NOON.replace(microsecond=123_456)),
    (TimestampType(), "2024-02-29T12:00:00.123456000Z", NOON.replace(microsecond=123_456)),
    (TimestampType(), "9999-12-31T23:59:59.999999", datetime.max.replace(tzinfo=UTC)),
    (TimestampType(), NOON, NOON),
    (TimestampType(), NAIVE_NOON, NOON),
    (TimestampType(), datetime(2024, 2, 29, 14, tzinfo=EAST), NOON),
    (TimestampType(), datetime(2024, 2, 29, 13, tzinfo=ZoneInfo("Europe/Berlin")), NOON),
    (TimestampType(), date(2024, 2, 29), NOON.replace(hour=0)),
    (TimestampType(), pd.Timestamp("2024-02-29T12:00:00Z"), NOON),
    (TimestampType(), np.datetime64("2024-02-29T12:00:00", "us"), NOON),
    (TimestampType(), np.datetime64("2024-02-29T12:00:00", "ns"), NOON),
    (TimestampType(), pa.scalar(NOON), NOON),
    (TimestampNTZType(), "2024-02-29T12:00:00", NAIVE_NOON),
    (TimestampNTZType(), NAIVE_NOON, NAIVE_NOON),
    (TimestampNTZType(), pd.Timestamp("2024-02-29T12:00:00"), NAIVE_NOON),
    (TimeType(), "12:30", time(12, 30)),
    (TimeType(), "12:30:15.000001", time(12, 30, 15, 1)),
    (TimeType(3), "12:30:15.120000", time(12, 30, 15, 120_000)),
    (TimeType(), time(12), time(12)),
    (DayTimeIntervalType(), timedelta(days=-1, microseconds=1), timedelta(days=-1, microseconds=1)),
    (DayTimeIntervalType(), "P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
    (DayTimeIntervalType(), "-PT0.5S", timedelta(seconds=-0.5)),
    (DayTimeIntervalType(), "PT-0.5S", timedelta(seconds=-0.5)),
    (DayTimeIntervalType(), "1 02:03:04.5", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
    (DayTimeIntervalType(), "-1 02:03:04", -timedelta(days=1, hours=2, minutes=3, seconds=4)),
    (
        DayTimeIntervalType(),
        "INTERVAL '1 02:03:04' DAY TO SECOND",
        timedelta(days=1, hours=2, minutes=3, seconds=4),
    ),
    (DayTimeIntervalType(), "INTERVAL -'90' MINUTE", timedelta(minutes=-90)),
    (DayTimeIntervalType(DAY, DAY), "3", timedelta(days=3)),
    (DayTimeIntervalType(HOUR, MINUTE), "100:30", timedelta(hours=100, minutes=30)),
    (DayTimeIntervalType(SECOND, SECOND), "90.25", timedelta(seconds=90.25)),
    (DayTimeIntervalType(), np.timedelta64(5, "s"), timedelta(seconds=5)),
    (DayTimeIntervalType(), pd.Timedelta("1s"), timedelta(seconds=1)),
]

REFUSED: list[tuple[DataType, object, str]] = [
    (DateType(), "2024-02-30", "expected a date 'YYYY-MM-DD' for DATE, got '2024-02-30'"),
    (DateType(), "20240229", "expected a date 'YYYY-MM-DD' for DATE, got '20240229'"),
    (DateType(), "2024-W09-4", "expected a date 'YYYY-MM-DD' for DATE, got '2024-W09-4'"),
    (DateType(), "2024-02-29T00:00:00", "expected a date 'YYYY-MM-DD' for DATE, got '2024-02-29T00:00:00'"),
    (DateType(), "0000-01-01", "expected a date 'YYYY-MM-DD' for DATE, got '0000-01-01'"),
    (DateType(), "٢٠٢٤-01-01", "expected a date 'YYYY-MM-DD' for DATE, got '٢٠٢٤-01-01'"),
    (DateType(), 19000, "expected a date 'YYYY-MM-DD' for DATE, got 19000"),
    (DateType(), NAIVE_NOON, "2024-02-29T12:00:00 would be rounded to fit DATE"),
    (DateType(), pd.NaT, "expected a timestamp for DATE, got NaT"),
    (
        TimestampType(),
        "2024-02-29T12:00:00.1234567",
        "'2024-02-29T12:00:00.1234567' would be rounded to fit TIMESTAMP",
    ),
    (
        TimestampType(),
        "2024-02-29T12:00:00.123456001Z",
        "'2024-02-29T12:00:00.123456001Z' would be rounded to fit TIMESTAMP",
    ),
    (
        TimestampType(),
        "2024-02-30T12:00:00",
        "expected an ISO 8601 timestamp for TIMESTAMP, got '2024-02-30T12:00:00'",
    ),
    (
        TimestampType(),
        "2024-02-29x12:00:00",
        "expected an ISO 8601 timestamp for TIMESTAMP, got '2024-02-29x12:00:00'",
    ),
    (
        TimestampType(),
        "2024-02-29T12:00:60",
        "expected an ISO 8601 timestamp for TIMESTAMP, got '2024-02-29T12:00:60'",
    ),
    (
        TimestampType(),
        "2024-02-29T25:00",
        "expected an ISO 8601 timestamp for TIMESTAMP, got '2024-02-29T25:00'",
    ),
    (TimestampType(), "2024-02-29Z", "expected an ISO 8601 timestamp for TIMESTAMP, got '2024-02-29Z'"),
    (TimestampType(), "yesterday", "expected an ISO 8601 timestamp for TIMESTAMP, got 'yesterday'"),
    (
        TimestampType(),
        "10000-01-01T00:00",
        "expected an ISO 8601 timestamp for TIMESTAMP, got '10000-01-01T00:00'",
    ),
    (TimestampType(), 1_700_000_000, "expected an ISO 8601 timestamp for TIMESTAMP, got 1700000000"),
    (TimestampType(), True, "expected an ISO 8601 timestamp for TIMESTAMP, got True"),
    (
        TimestampType(),
        "0001-01-01T00:00:00+01:00",
        "'0001-01-01T00:00:00+01:00' is out of range for TIMESTAMP",
    ),
    (
        TimestampType(),
        datetime(1, 1, 1, tzinfo=EAST),
        "0001-01-01T00:00:00+02:00 is out of range for TIMESTAMP",
    ),
    (TimestampType(), pd.NaT, "expected a timestamp for TIMESTAMP, got NaT"),
    (
        TimestampType(),
        pd.Timestamp("2024-02-29T12:00:00.000000001"),
        "2024-02-29T12:00:00.000000001 would be rounded to fit TIMESTAMP",
    ),
    (
        TimestampType(),
        np.datetime64("2024-02-29T12:00:00.000000001"),
        "'2024-02-29T12:00:00.000000001' would be rounded to fit TIMESTAMP",
    ),
    (
        TimestampNTZType(),
        "2024-02-29T12:00:00Z",
        "expected a timestamp without a zone for TIMESTAMP_NTZ, got '2024-02-29T12:00:00Z'",
    ),
    (
        TimestampNTZType(),
        NOON,
        "expected a timestamp without a zone for TIMESTAMP_NTZ, got 2024-02-29T12:00:00+00:00",
    ),
    (TimeType(), "25:00", "expected a time 'HH:MM:SS' for TIME(6), got '25:00'"),
    (TimeType(), "12", "expected a time 'HH:MM:SS' for TIME(6), got '12'"),
    (TimeType(), 12, "expected a time 'HH:MM:SS' for TIME(6), got 12"),
    (TimeType(), time(12, tzinfo=UTC), "expected a time without a zone for TIME(6), got 12:00:00+00:00"),
    (TimeType(3), "12:00:00.0001", "'12:00:00.0001' would be rounded to fit TIME(3)"),
    (DayTimeIntervalType(), 5, "expected an interval for INTERVAL DAY TO SECOND, got 5"),
    (
        DayTimeIntervalType(),
        timedelta.max,
        "999999999 days, 23:59:59.999999 is out of range for INTERVAL DAY TO SECOND",
    ),
    (DayTimeIntervalType(), "PT0.0000001S", "'PT0.0000001S' would be rounded to fit INTERVAL DAY TO SECOND"),
    (DayTimeIntervalType(), "1 25:00:00", "'1 25:00:00' is out of range for INTERVAL DAY TO SECOND"),
    (
        DayTimeIntervalType(DAY, DAY),
        timedelta(hours=1),
        "1:00:00 would be rounded to fit INTERVAL DAY",
    ),
    (
        DayTimeIntervalType(),
        "P",
        "expected an interval such as 'P1DT2H3M4.5S' for INTERVAL DAY TO SECOND, got 'P'",
    ),
    (
        DayTimeIntervalType(),
        "9" * 5000,
        "expected an interval such as 'P1DT2H3M4.5S' for INTERVAL DAY TO SECOND, got '999",
    ),
]


def _case_name(case: object) -> str:
    return case.simpleString() if isinstance(case, DataType) else type(case).__name__


@pytest.mark.parametrize(("data_type", "value", "exact"), ACCEPTED, ids=_case_name)
def test_an_exact_time_is_taken(data_type: DataType, value: object, exact: object) -> None:
    done = converter(data_type)(value)
    assert done == exact
    assert type(done) is type(exact)
    if isinstance(done, datetime) and isinstance(exact, datetime):
        assert done.tzinfo is exact.tzinfo


@pytest.mark.parametrize(("data_type", "value", "reason"), REFUSED, ids=_case_name)
def test_any_other_time_is_refused_with_a_reason(data_type: DataType, value: object, reason: str) -> None:
    with pytest.raises(BadValue) as caught:
        converter(data_type)(value)
    assert caught.value.reason.startswith(reason)
    assert len(caught.value.reason) < 180


@FIXED
@given(st.datetimes(timezones=st.sampled_from([None, UTC, EAST])), st.sampled_from("T "))
def test_a_moment_survives_its_text(moment: datetime, separator: str) -> None:
    exact = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    try:
        expected = exact.astimezone(UTC)
    except OverflowError:
        return
    assert converter(TimestampType())(moment.isoformat(separator)) == expected
    assert converter(TimestampType())(moment) == expected


@FIXED
@given(st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000)))
def test_an_interval_survives_its_text(interval: timedelta) -> None:
    microseconds = abs(interval) // timedelta(microseconds=1)
    days, rest = divmod(microseconds, 86_400_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    sign = "-" if interval < timedelta(0) else ""
    text = f"{sign}{days} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    assert converter(DayTimeIntervalType())(text) == interval
    assert converter(DayTimeIntervalType())(f"{sign}P{days}DT{seconds}.{fraction:06}S") == interval


@FIXED
@given(st.text(max_size=40) | st.from_regex(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.,]?\d*.{0,7}", fullmatch=True))
def test_no_text_fails_in_another_way(text: str) -> None:
    types = (DateType(), TimestampType(), TimestampNTZType(), TimeType(), DayTimeIntervalType())
    for data_type in types:
        with suppress(BadValue):
            assert converter(data_type)(text) is not None
