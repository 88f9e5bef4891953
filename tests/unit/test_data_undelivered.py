"""What a table of PostgreSQL lacks of its relation, as the data API says it; without a database."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.types import LongType, StructField, StructType

from headrace.catalog.make import make_table
from headrace.intake.table import TableContract
from headrace.serving.data.undelivered import ParkedEvents, Undelivered
from tests.data_api import Readings


def readings_of_t() -> Any:
    return Readings(make_table(TableContract("t", StructType([StructField("id", LongType(), False)]), ("id",))))


def lag(undelivered: Undelivered, readings: Any, epoch: int) -> float:
    return asyncio.run(undelivered.lag(readings, readings.newest_of("t"), "t", epoch))


def test_the_lag_is_the_age_of_the_first_change_that_is_not_there() -> None:
    readings, undelivered = readings_of_t(), Undelivered()
    for number in (1, 2, 3):
        readings.change("t", [[number]])
    now = datetime.now(UTC)
    # The first of them is of yesterday.
    readings.changes = [("t", 1, now - timedelta(days=1)), ("t", 2, now - timedelta(minutes=1)), ("t", 3, now)]
    assert lag(undelivered, readings, 3) == 0
    assert 0 <= lag(undelivered, readings, 2) < 50
    assert 60 <= lag(undelivered, readings, 1) < 110
    assert lag(undelivered, readings, 0) >= 86_400


def test_a_change_is_looked_up_once_for_each_state_of_a_table() -> None:
    readings, undelivered = readings_of_t(), Undelivered()
    for number in (1, 2):
        readings.change("t", [[number]])
    for _ in range(5):
        assert lag(undelivered, readings, 1) >= 0
    assert readings.lookups == 1
    lag(undelivered, readings, 0)
    assert readings.lookups == 2


def test_a_relation_that_only_seems_to_have_changed_has_no_lag() -> None:
    readings, undelivered = readings_of_t(), Undelivered()
    readings.epoch = 9
    readings.changed_at["t"] = 8
    assert [lag(undelivered, readings, 5) for _ in range(3)] == [0, 0, 0]
    assert readings.lookups == 1
    readings.change("t", [[1]])
    readings.changes = [("t", 10, datetime.now(UTC) - timedelta(minutes=1))]
    assert 60 <= lag(undelivered, readings, 5) < 110


def test_parked_events_are_counted_by_feed() -> None:
    readings, undelivered = readings_of_t(), Undelivered()

    def parked(feed_id: str) -> ParkedEvents:
        return asyncio.run(undelivered.parked(readings, feed_id))

    assert parked("one").count == 0
    readings.park("one", 5)
    readings.park("one", 6)
    readings.park("two", 5)
    assert (parked("one").count, parked("two").count, parked("three").count) == (2, 1, 0)
    before = parked("two").digest
    readings.park("two", 6)
    assert parked("two").digest != before
