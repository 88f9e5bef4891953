"""A backlog at work over a home in memory: it is taken as columns, or one by one where it cannot be."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from headrace.capture.columns.debezium import ColumnDecoder
from headrace.capture.columns.records import Records
from headrace.capture.connector import Arrival, Connector, Description, Lag, Position
from headrace.capture.options import FormatOptions
from headrace.catalog.catalog import Source
from headrace.epoch.calls import Basis
from headrace.epoch.loop import Loop
from headrace.sources import taking as taking_module
from headrace.sources.bulk import Backlog
from headrace.sources.taking import Taking
from tests.debezium_events import envelope
from tests.small_engine import Host
from tests.small_sources import runner_of, source_home
from tests.unit.test_source_runner import Small
from tests.waiting import until


class Waiting:
    """A topic in which so many records wait."""

    def __init__(self, values: Sequence[bytes], _: Description, position: Position) -> None:
        self._values = values
        self._at = int(position.get("t:0", 0))

    def poll_records(self, most: int, large: int, seconds: float) -> Records:
        begin, self._at = self._at, min(self._at + most, len(self._values))
        count = self._at - begin
        if not count:
            time.sleep(0.01)
        offsets = list(range(begin, self._at))
        keys = [None] * count
        advance = {"t:0": self._at} if count else {}
        return Records(self._values[begin : self._at], keys, ["t"] * count, [0] * count, offsets, [1] * count, advance)

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        raise AssertionError("records are polled together")

    def confirm(self, position: Position) -> None:
        pass

    def lag(self) -> Lag:
        return Lag(len(self._values) - self._at)

    def close(self) -> None:
        pass


class Redefined(Host):
    """A home that is defined otherwise while the first changes are on their way."""

    asked = 0

    def stands(self, basis: Basis) -> bool:
        self.asked += 1
        return self.asked > 1


def change(number: int) -> bytes:
    source = {"lsn": number, "sequence": None}
    return json.dumps(envelope("c", after={"id": number, "n": 1}, source=source), separators=(",", ":")).encode()


def run(host: Host, values: Sequence[bytes], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    prepared: list[int] = []
    prepare = taking_module.prepare

    def noted(records: Any, ways: Any) -> Any:
        prepared.append(len(records))
        return prepare(records, ways)

    monkeypatch.setattr(taking_module, "prepare", noted)
    contract = host.catalog.table("t").contract
    columns = ColumnDecoder(contract, FormatOptions())
    source = Source("s", "t", "waiting", "", "", {"max_records": 10, "format": "debezium"}, state="Running")
    connector = Connector("WAITING", {}, partial(Waiting, values), has_format=True, ordered=True)
    backlog = Backlog(20, 100, lambda _: "t", lambda _: contract, lambda _: columns)
    runner = runner_of(Loop(host), source, connector, backlog)
    runner.start()
    try:
        until(lambda: runner.status.progress.received == len(values) or runner.status.state == "Error")
        status = runner.status
        assert (status.state, status.error) == ("Running", None)
        return status.progress, prepared
    finally:
        runner.stop()


def test_a_backlog_is_few_epochs_and_what_is_left_comes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    host = source_home()
    progress, prepared = run(host, [change(number) for number in range(1, 215)], monkeypatch)
    assert (progress.applied, progress.stale, progress.dead, progress.recorded) == (214, 0, 0, 214)
    assert {row[0] for row in host.holds("t")} == set(range(1, 215))
    # Two as columns; the last fourteen in pieces of ten.
    assert (prepared, host.epoch) == ([100, 100], 4)


def test_columns_are_made_anew_where_their_table_may_have_others_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    host = source_home(Redefined)
    progress, prepared = run(host, [change(number) for number in range(1, 51)], monkeypatch)
    assert (progress.applied, prepared, host.epoch) == (50, [50, 50], 1)


def test_a_backlog_with_a_change_that_cannot_be_borne_goes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    host = source_home(Small)
    values = [change(number) for number in (*range(1, 40), 666)]
    take_backlog, left = Taking.take_backlog, list[tuple[bool, int]]()

    def noted(taking: Taking, *given: Any) -> bool:
        taken = take_backlog(taking, *given)
        left.append((taken, taking.standing[1]))
        return taken

    monkeypatch.setattr(Taking, "take_backlog", noted)
    progress, prepared = run(host, values, monkeypatch)
    # Whichever way it goes, it is on its way still.
    assert left == [(False, 40)]
    assert (progress.applied, progress.dead, prepared) == (39, 1, [40])
    assert {row[0] for row in host.holds("t")} == set(range(1, 40))


def test_what_was_read_ahead_is_taken_after_a_batch_that_went_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    host = source_home(Small)
    values = [change(number) for number in (*range(1, 60), 666, *range(60, 260))]
    progress, prepared = run(host, values, monkeypatch)
    assert (progress.applied, progress.dead) == (259, 1)
    assert {row[0] for row in host.holds("t")} == set(range(1, 260))
    # The first is read ahead of, and what was read is made into columns again.
    assert prepared == [100, 100, 100, 60]
