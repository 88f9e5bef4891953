"""A source at work over a home in memory: what becomes of changes that the machine itself cannot bear."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest

from headrace.capture.connector import Connector
from headrace.catalog.catalog import Source
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work
from headrace.errors import MemoryExceeded, SourceUnavailable
from headrace.sources.connectors import CONNECTORS
from headrace.sources.decoders import Decoders
from headrace.sources.intake import Progress
from headrace.sources.pace import Pace
from headrace.sources.rate import Rate
from headrace.sources.running import Sources, progress_of
from headrace.sources.system_tables import PROGRESS
from headrace.sources.taking import Taking
from tests.small_engine import Host
from tests.small_sources import Listed, inserts, runner_over, source_home
from tests.waiting import until


class Small(Host):
    """A home whose views need too much memory for one row."""

    tries = 0

    def follow(self, work: Work) -> None:
        self.tries += 1
        if 666 in work.delta_of("t").rows.column(0).to_pylist():
            raise MemoryExceeded("these changes need more memory than Spark has", detail="Alone, they ended it.")


def test_a_change_that_needs_more_memory_than_there_is_becomes_a_dead_letter() -> None:
    host = source_home(Small)
    rows = [{"id": number, "n": 1} for number in (*range(20), 666, *range(20, 40))]
    runner = runner_over(host, rows)
    runner.start()
    try:
        until(lambda: runner.status.progress.received == 41 or runner.status.state == "Error")
        status = runner.status
        assert (status.state, status.error) == ("Running", None)
        assert (status.progress.applied, status.progress.dead) == (40, 1)
        assert {row[0] for row in host.holds("t")} == set(range(40))
        until(lambda: len(host.holds("dead_letters")) > 0)
        ((letter),) = host.holds("dead_letters")
        assert letter[4] == "memory"
        assert "need more memory" in letter[5]
        assert host.tries < 20
    finally:
        runner.stop()


def test_no_more_records_are_read_a_second_than_a_source_may() -> None:
    host = source_home()
    runner = runner_over(host, [{"id": number, "n": 1} for number in range(150)], max_records_per_second=100)
    began = time.monotonic()
    runner.start()
    try:
        until(lambda: runner.status.progress.received == 150)
        # The first hundred come at once, and the others when those have had their second.
        assert time.monotonic() - began >= 1.0
        until(lambda: host.epoch == 2)
    finally:
        runner.stop()


def test_a_source_that_is_held_back_is_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def hold_back(rate: Any, count: int) -> None:
        rate._due_at = time.monotonic() + 3600

    monkeypatch.setattr(Rate, "took", hold_back)
    host = source_home()
    runner = runner_over(host, [{"id": number, "n": 1} for number in range(10)], max_records_per_second=1)
    runner.start()
    until(lambda: runner.status.progress.received == 1)
    runner.stop()
    assert runner.has_ended
    assert runner.status.progress.received == 1


def test_a_change_counts_once_while_its_epoch_is_being_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    host, rows = source_home(), [{"id": number, "n": 1} for number in range(7)]
    monkeypatch.setitem(cast("Any", CONNECTORS), "listed", Connector("LISTED", {}, partial(Listed, inserts(rows))))
    source = Source("s", "t", "listed", "", "", {}, state="Running")
    host.catalog = replace(host.catalog, sources={"s": source})
    loop, receipt_of, seen = Loop(host), Loop.receipt_of, list[tuple[int, int]]()
    sources = Sources(loop)

    def look() -> None:
        status = sources.status_of(source)
        seen.append((status.progress.received, status.pending))

    def told(loop: Loop, call: Call) -> Receipt:
        look()
        receipt = receipt_of(loop, call)
        # It is committed, and its runner does not know it yet.
        look()
        return receipt

    monkeypatch.setattr(Loop, "receipt_of", told)
    try:
        sources.reconcile()
        until(lambda: host.holds("t") == {(number, 1) for number in range(7)})
    finally:
        sources.close()
    assert {received + pending for received, pending in seen} == {7}
    assert seen[-1] == (7, 0)


def test_changes_that_are_committed_while_it_is_asked_are_not_left_out() -> None:
    source, connector, loop = (
        Source("s", "t", "listed", "", "", {}),
        Connector("LISTED", {}, cast("Any", None)),
        Loop(source_home()),
    )

    def read() -> Progress:
        progress = progress_of(loop.core, "s")
        if asked:
            # Right after it was read, the epoch is committed, and nothing is on its way any more.
            taking.await_changes(0)
        return progress

    asked, pace = list[int](), Pace("s", None, Counter())
    decoders = Decoders(loop.core, source, connector)
    taking = Taking(loop, source, connector, lambda _: "t", decoders, read, pace, 10, threading.Event())
    taking.await_changes(3)
    asked.append(1)
    progress, pending = taking.standing
    assert progress.received + pending == 3


def test_one_that_is_dropped_at_its_last_epoch_leaves_no_word_that_it_was_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, committing, goes_on = source_home(), threading.Event(), threading.Event()
    monkeypatch.setitem(
        cast("Any", CONNECTORS), "listed", Connector("LISTED", {}, partial(Listed, inserts([{"id": 1, "n": 1}])))
    )
    host.catalog = replace(host.catalog, sources={"s": Source("s", "t", "listed", "", "", {}, state="Running")})
    sources = Sources(Loop(host))

    def wait() -> None:
        committing.set()
        assert goes_on.wait(90)

    host.before_commit = wait
    try:
        sources.reconcile()
        assert committing.wait(90)
        host.catalog = replace(host.catalog, sources={})
        sources.reconcile()
        goes_on.set()
        sources.wait_for_stopped()
    finally:
        goes_on.set()
        sources.close()
    assert host.holds("t") == {(1, 1)}
    assert sources._heard_at == {}


def _taking(host: Host) -> tuple[Loop, Taking]:
    loop, source = Loop(host), Source("s", "t", "listed", "", "", {})
    connector = Connector("LISTED", {}, cast("Any", None))
    read, decoders = partial(progress_of, host, "s"), Decoders(loop.core, source, connector)
    pace, stopped = Pace("s", None, Counter()), threading.Event()
    taking = Taking(loop, source, connector, lambda _: "t", decoders, cast("Any", read), pace, 10, stopped)
    taking.look_again()
    return loop, taking


def _moved_on_the_way(loop: Loop, progress: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the progress of the source become another when its next call is in line and not taken yet."""
    enter = loop.enter

    def enter_behind(call: Call) -> Call:
        monkeypatch.setattr(loop, "enter", enter)
        entered = enter(Call({PROGRESS: [{"insert": progress.row("s", datetime.now(UTC))}]}))
        loop.wait_for(entered)
        return enter(call)

    monkeypatch.setattr(loop, "enter", enter_behind)


def test_what_another_has_taken_meanwhile_is_not_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    host = source_home()
    loop, taking = _taking(host)
    arrivals = inserts([{"id": number, "n": 1} for number in range(3)])
    _moved_on_the_way(loop, Progress({"at": 2}, received=2, applied=2), monkeypatch)
    with pytest.raises(SourceUnavailable, match="source s is read by somebody else by now"):
        taking.take(arrivals)
    assert host.holds("t") == host.holds("s_raw") == set()
    assert progress_of(loop.core, "s").position == {"at": 2}
    with pytest.raises(SourceUnavailable):
        taking.begin({"at": 1})
    # Who looks where it is goes on from there.
    taking.look_again()
    taking.take(arrivals[2:])
    assert host.holds("t") == {(2, 1)}


def test_what_follows_on_is_taken_though_its_letters_were_replayed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    host = source_home()
    loop, taking = _taking(host)
    taking.take(inserts([{"id": 0, "n": 1}]))
    counted = replace(progress_of(loop.core, "s"), received=5, dead=4)
    _moved_on_the_way(loop, counted, monkeypatch)
    taking.take(inserts([{"id": number, "n": 1} for number in range(3)])[1:])
    assert host.holds("t") == {(number, 1) for number in range(3)}
    assert (progress_of(loop.core, "s").received, progress_of(loop.core, "s").dead) == (7, 4)
