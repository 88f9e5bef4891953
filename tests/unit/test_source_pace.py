"""How far a source is behind, how much it takes, and when that is told."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from headrace.capture.connector import Arrival, Lag
from headrace.capture.record import Record
from headrace.errors import SourceError
from headrace.sources.connectors import lag_warning_of
from headrace.sources.intake import Progress
from headrace.sources.pace import Pace

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock."""
    monkeypatch.setattr("headrace.sources.pace.seconds_since", lambda moment: (NOW - moment).total_seconds())
    monkeypatch.setattr("headrace.sources.pace.time", SimpleNamespace(monotonic=lambda: 1e6))


def arrivals(*ages: float) -> list[Arrival]:
    return [Arrival(Record(b"", timestamp=NOW - timedelta(seconds=age)), {}) for age in ages]


def test_nothing_is_known_until_a_source_tells_and_nothing_is_behind_once_it_is_read_up() -> None:
    pace = Pace("s", None, Counter())
    assert pace.lag_seconds is None
    pace.looked(Lag(0))
    assert pace.lag_seconds == 0


def test_what_is_on_its_way_is_behind_since_it_was_committed_in_the_source() -> None:
    pace = Pace("s", None, Counter())
    pace.looked(Lag(0))
    pace.began(arrivals(5, 30, 1))
    assert pace.lag_seconds == 30
    pace.committed(arrivals(5, 30, 1), Progress(), Progress(received=3, applied=3))
    assert pace.lag_seconds == 0


def test_what_waits_in_the_source_is_younger_than_what_was_read_last() -> None:
    pace = Pace("s", None, Counter())
    pace.committed(arrivals(60, 20), Progress(), Progress(received=2, applied=2))
    pace.looked(Lag(7))
    assert pace.lag_seconds == 20
    pace.looked(Lag(7, NOW - timedelta(seconds=90)))
    assert pace.lag_seconds == 90
    pace.looked(Lag(0))
    assert pace.lag_seconds == 0


def test_throughput_and_totals() -> None:
    totals: Counter[str] = Counter()
    pace = Pace("s", None, totals)
    assert pace.records_per_second == 0
    pace.committed(arrivals(*[0] * 50), Progress(applied=5), Progress(received=60, applied=50, stale=3, dead=2))
    assert pace.records_per_second == 50
    assert totals == {"applied": 45, "stale": 3, "dead": 2}


def test_a_late_source_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    pace = Pace("s", 60, Counter())
    pace.looked(Lag(3, NOW - timedelta(seconds=10)))
    assert pace.warning is None
    with caplog.at_level(logging.INFO, "headrace.sources"):
        for _ in range(3):
            pace.looked(Lag(3, NOW - timedelta(seconds=100)))
        assert pace.warning == "behind by 100 seconds, more than lag_warning = 60 seconds"
        pace.looked(Lag(0))
    assert pace.warning is None
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize(
    ("given", "seconds"), [("60 seconds", 60), (60, 60), ("5 minutes", 300), ("1.5 hours", 5400), ("2 days", 172_800)]
)
def test_a_threshold_is_written_as_a_time(given: object, seconds: float) -> None:
    assert lag_warning_of({"lag_warning": given}) == seconds


@pytest.mark.parametrize("given", ["soon", True, "-1", "5 parsecs", ""])
def test_what_is_no_time_is_refused(given: object) -> None:
    with pytest.raises(SourceError, match="lag_warning cannot be"):
        lag_warning_of({"lag_warning": given})
