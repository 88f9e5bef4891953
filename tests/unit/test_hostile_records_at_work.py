"""No record stops a source: what cannot be taken is a dead letter, and what comes after it is taken."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from headrace.capture.columns.records import Records
from headrace.capture.connector import Arrival, Connector
from headrace.capture.messages import RowChange
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.json_forms import json_form
from headrace.sources.runner import Runner
from tests.small_engine import Host
from tests.small_sources import Listed, runner_of, source_home
from tests.waiting import until

GOOD = b'{"op": "c", "after": {"id": 77, "n": 1}, "source": {"connector": "postgresql", "lsn": 9, "ts_ms": 5}}'


def taken(*arrivals: Arrival) -> tuple[Host, Runner]:
    host = source_home()
    source = Source("s", "t", "topic", "", "", {"format": "debezium"}, state="Running")
    connector = Connector("TOPIC", {}, partial(Listed, arrivals), has_format=True, ordered=True)
    runner = runner_of(Loop(host), source, connector)
    runner.start()
    until(lambda: runner.status.progress.position.get("at") == len(arrivals) or runner.status.state == "Error")
    runner.stop()
    return host, runner


def record(at: int, value: bytes, key: bytes | None = None) -> Arrival:
    return Arrival(Record(value, key, topic="a.b.t", offset=at), {"at": at + 1})


@pytest.mark.parametrize(
    ("value", "dead"),
    [
        (rb'{"op": "c", "after": {"id": 1, "n": "\ud800"}}', 1),
        (rb'{"op": "u", "before": {"id": 1, "n": "\udfff"}, "after": {"id": 2}}', 1),
        (rb'{"op": "c", "after": {"id": 1}, "source": {"connector": "mysql", "file": "\ud800.1", "pos": 1}}', 1),
        (rb'{"op": "c", "after": {"id": 1}, "source": {"connector": "postgresql", "table": "\ud800", "lsn": 1}}', 1),
        # A whole pair is a letter like any other.
        (rb'{"op": "c", "after": {"id": 1}, "source": {"connector": "mysql", "file": "\ud83d\ude00.1", "pos": 1}}', 0),
        (b'{"op": "c", "after": {"id": 1, "n": 1e999999999}}', 1),
        (b'{"op": "c", "after": {"id": 1, "n": 1e-999999999}}', 1),
        (b'{"op": "c", "after": {"id": 1e999999999}}', 1),
        # The first moments of the year 1: no time is earlier than these by the retention.
        (
            b'{"op": "c", "after": {"id": 1}, "source": {"connector": "mysql", "ts_ms": -62135596800000}}',
            0,
        ),
    ],
)
def test_a_record_that_cannot_be_taken_stops_nobody(value: bytes, dead: int) -> None:
    host, runner = taken(record(0, value), record(1, GOOD))
    progress = runner.status.progress
    assert (runner.status.error, progress.received, progress.dead) == (None, 2, dead)
    assert 77 in {row[0] for row in host.holds("t")}
    # What is kept of it is about as large as it was.
    assert max(len(str(row)) for row in host.holds("s_raw")) < 2_000


def test_a_source_of_ones_own_may_bring_what_is_no_text() -> None:
    row = {"id": 1, "n": "\ud800"}
    message = RowChange("create", ({"insert": row},), None, row)
    host, runner = taken(Arrival(Record(b"{}", topic="a.b.t"), {"at": 1}, message), record(1, GOOD))
    assert (runner.status.error, runner.status.progress.dead) == (None, 1)
    assert any(r"\ud800" in str(kept[3]) for kept in host.holds("s_raw"))


@pytest.mark.parametrize("millis", [2**63 - 1, 10**17, 253_402_300_800_000])
def test_a_record_of_a_time_that_no_clock_shows_has_none(millis: int) -> None:
    records = Records([b"{}"], [None], ["t"], [0], [0], [millis])
    assert records.record(0).timestamp is None
    assert Records([b"{}"], [None], ["t"], [0], [0], [1000]).record(0).timestamp == datetime(
        1970, 1, 1, 0, 0, 1, tzinfo=UTC
    )


def test_a_short_number_has_a_short_form() -> None:
    forms: list[Any] = [json_form(Decimal(one)) for one in ("1e999999999", "1e-999999999", "1.50", "1e3", "NaN", "0")]
    assert forms == ["1E+999999999", "1E-999999999", "1.50", "1000", "NaN", "0"]
