"""What a source brought, over a home in memory: kept, let go when there is too much of it, and replayed."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from headrace.capture.connector import Arrival, Connector, Description, Lag, Position
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.errors import SourceError
from headrace.progress import Progress as Told
from headrace.sources import runner as runner_of_sources
from headrace.sources.connectors import CONNECTORS
from headrace.sources.intake import Progress
from headrace.sources.replay import replay_source
from headrace.sources.retention import Retention, outlived, retention_of
from headrace.sources.runner import Runner
from headrace.sources.running import progress_of
from headrace.sql.statements import parse
from headrace.state.delta import consolidate
from tests.debezium_events import envelope
from tests.small_engine import Host
from tests.small_sources import runner_of, source_home
from tests.waiting import until


class Topic:
    """One partition that grows."""

    def __init__(self, log: list[bytes], _: Description, position: Position) -> None:
        self._log, self._at = log, int(position.get("at", 0))

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        values = self._log[self._at : self._at + most]
        found = [Record(value, topic="shop.t", offset=self._at + 1 + n) for n, value in enumerate(values)]
        self._at += len(values)
        if not values:
            time.sleep(0.01)
        return [Arrival(one, {"at": one.offset}) for one in found]

    def confirm(self, position: Position) -> None:
        pass

    def lag(self) -> Lag:
        return Lag(len(self._log) - self._at)

    def close(self) -> None:
        pass


def change(op: str, lsn: int, **row: Any) -> bytes:
    before, after = (row, None) if op == "d" else (None, row)
    at = 1_700_000_000_000 + lsn
    source = {"lsn": lsn, "sequence": json.dumps(["1", str(lsn)]), "ts_ms": at, "ts_us": None, "ts_ns": None}
    return json.dumps(envelope(op, before, after, source=source)).encode()


@contextmanager
def running(host: Host, log: list[bytes], **options: Any) -> Generator[Runner]:
    source = Source("s", "t", "topic", "", "", {"format": "debezium", **options}, state="Running")
    host.catalog = replace(host.catalog, sources={"s": source})
    connector = Connector("TOPIC", {}, partial(Topic, log), has_format=True, ordered=True)
    CONNECTORS["topic"] = connector  # pyright: ignore[reportIndexIssue]
    runner = runner_of(Loop(host), source, connector)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()
        del CONNECTORS["topic"]  # pyright: ignore[reportIndexIssue]


def home() -> Host:
    host = source_home()
    host.progress = Told()  # pyright: ignore[reportAttributeAccessIssue]
    return host


LOG = [
    *(change("c", 10 + number, id=number, n=number) for number in range(20)),
    change("u", 50, id=1, n=100),
    change("d", 60, id=2),
    # A connector that was restarted sends some of it again: these are late.
    change("c", 11, id=1, n=1),
    change("c", 12, id=2, n=2),
    change("u", 70, id=3, n=300),
]
END = {(number, number) for number in range(20)} - {(1, 1), (2, 2), (3, 3)} | {(1, 100), (3, 300)}


def test_a_replay_mends_the_table_and_takes_late_changes_for_what_they_were() -> None:
    host = home()
    with running(host, LOG) as runner:
        until(lambda: runner.status.progress.received == len(LOG) or runner.status.state == "Error")
        assert (runner.status.state, runner.status.error) == ("Running", None)
        assert host.holds("t") == END
        assert (runner.status.progress.applied, runner.status.progress.stale) == (23, 2)
        assert len(host.holds("s_raw")) == len(LOG)
        loop = Loop(host)  # pyright: ignore[reportArgumentType]
        loop.apply({"t": [{"delete": {"id": 3}}, {"delete": {"id": 19}}, {"insert": {"id": 5, "n": -5}}]})
        (statement,) = parse("REPLAY SOURCE s")
        receipt = replay_source(loop, statement)  # pyright: ignore[reportArgumentType]
        assert host.holds("t") == END
        assert (receipt.applied, receipt.dead) == ({"t": 23}, {"t": 0})
        # From one on, also the source's own counts are what they were.
        (statement,) = parse("REPLAY SOURCE s FROM 'shop.t-0-20'")
        assert replay_source(loop, statement).applied == {"t": 4}  # pyright: ignore[reportArgumentType]
        assert host.holds("t") == END
        assert progress_of(host, "s").received == len(LOG)  # pyright: ignore[reportArgumentType]


def test_what_the_source_brings_meanwhile_is_replayed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.replay._AT_ONCE", 3)
    host, log = home(), list(LOG)
    with running(host, log) as runner:
        until(lambda: runner.status.progress.received == len(LOG))
        loop = Loop(host)  # pyright: ignore[reportArgumentType]
        more = iter(range(80, 84))

        (statement,) = parse("REPLAY SOURCE s")
        told: list[Any] = []

        def listen(step: Any) -> None:
            told.append(step)
            if (lsn := next(more, None)) is not None:
                log.append(change("u", lsn, id=3, n=lsn))
                until(lambda: runner.status.progress.received == len(log))

        with host.progress.heard_by(listen):  # pyright: ignore[reportAttributeAccessIssue]
            replay_source(loop, statement)  # pyright: ignore[reportArgumentType]
        assert host.holds("t") == END - {(3, 300)} | {(3, 83)}
        assert len(told) >= 9


def test_what_is_too_much_is_let_go_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_of_sources, "_LET_GO_SECONDS", 0.05)
    host, log = home(), list(LOG[:10])
    with running(host, log, raw_retention="6 rows") as runner:
        until(lambda: runner.status.progress.recorded == 6 or runner.status.state == "Error")
        log.extend(LOG[10:])
        until(lambda: runner.status.progress.received == len(LOG))
        until(lambda: runner.status.progress.recorded == 6)
        assert runner.status.error is None
        held = host.stores["s_raw"].snapshot()
        assert held.count == 6
        # All that is left came last.
        parts = consolidate(held.all().rows, held.all().weights)
        ids = {int(one.rpartition("-")[2]) for one in parts.rows.column(0).to_pylist()}
        assert min(ids) > 10
        assert runner.status.progress.applied + runner.status.progress.stale == len(LOG)


def test_what_is_too_old_is_let_go_no_more_at_once_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.retention.MOST_AT_ONCE", 4)
    host = home()
    loop = Loop(host)  # pyright: ignore[reportArgumentType]
    now = datetime.now(UTC)
    rows = [{"event_id": f"a-0-{n}", "arrived_at": now - timedelta(days=n)} for n in range(10)]
    loop.submit(Call({"s_raw": [{"insert": row} for row in rows]}))
    progress = Progress(recorded=10)
    for left in (6, 5, 5):
        call = outlived(host, "s", Retention(age=timedelta(days=4, hours=12)), progress)  # pyright: ignore[reportArgumentType]
        loop.submit(call)
        assert host.stores["s_raw"].snapshot().count == left
    call = outlived(host, "s", Retention(rows=5), progress)  # pyright: ignore[reportArgumentType]
    assert not call.changes


def test_retentions() -> None:
    assert retention_of({}) is None
    assert retention_of({"raw_retention": "30 days"}) == Retention(age=timedelta(days=30))
    assert retention_of({"raw_retention": "1 hour"}) == Retention(age=timedelta(hours=1))
    assert retention_of({"raw_retention": "1000 rows"}) == Retention(rows=1000)
    for value in ("long", "30", 30, "1 month", "-1 days", "99999999999 weeks"):
        with pytest.raises(SourceError, match="raw_retention cannot be"):
            retention_of({"raw_retention": value})
