"""Calls that arrive together share an epoch; changes are worked out again when what they follow from has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.catalog.catalog import Catalog
from headrace.epoch.calls import Basis, Call
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work
from headrace.serving.arrivals import Arrivals


class Host:
    """A home without tables: what it is told is counted."""

    tombstone_retention = timedelta(days=1)
    broken = None

    def __init__(self) -> None:
        self.epoch = 0
        self.catalog = Catalog()
        self.on_begin: Callable[[], None] = lambda: None
        self.views_seconds = 0.0
        self.stale_answers = 0

    def tick(self) -> datetime:
        return datetime(2024, 1, 1, tzinfo=UTC)

    def begin(self, now: datetime) -> Work:
        self.on_begin()
        return Work({}, 1000)

    def known(self, key: str | None) -> Receipt | None:
        return None

    def stands(self, basis: Basis) -> bool:
        self.stale_answers -= 1
        return self.stale_answers < 0

    def follow(self, work: Work) -> None:
        time.sleep(self.views_seconds)

    def commit(self, work: Work, now: datetime, head: Any) -> None:
        self.epoch += 1

    def blame(self, error: Any) -> Any:
        return error

    def moves_anything(self, work: Work) -> bool:
        return True

    def remember(self, key: str, receipt: Receipt) -> None:
        pass


class CountedWaits(threading.Condition):
    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        return super().wait(timeout)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def loop(host: Host) -> Loop:
    loop = Loop(host)
    loop._arrivals = CountedWaits(loop._line)  # pyright: ignore[reportPrivateUsage]
    return loop


def once(act: Callable[[], Any]) -> Callable[[], None]:
    done: list[bool] = []

    def first() -> None:
        if not done:
            done.append(True)
            act()

    return first


def make_epochs_long(host: Host, loop: Loop) -> None:
    host.views_seconds = 0.3
    loop.submit(Call({}))
    host.views_seconds = 0.0


def test_a_call_that_comes_while_others_are_checked_joins_their_epoch(host: Host, loop: Loop) -> None:
    late = Call({})
    host.on_begin = once(lambda: loop.enter(late))
    assert loop.submit(Call({})).epoch == 1
    assert late.done
    assert late.receipt is not None
    assert (late.receipt.epoch, host.epoch) == (1, 1)


def test_a_long_epoch_waits_for_a_call_that_is_on_its_way(
    host: Host, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.epoch.loop._PATIENCE_SECONDS", 600)
    monkeypatch.setattr("headrace.epoch.loop._PATIENCE_SHARE", 1e6)
    make_epochs_long(host, loop)
    late = Call({})
    on_their_way = [late]

    def arriving() -> bool:
        if not on_their_way:
            return False
        loop.enter(on_their_way.pop())
        return True

    loop.arriving = arriving
    assert loop.submit(Call({})).epoch == 2
    assert late.receipt is not None
    assert late.receipt.epoch == 2


def test_a_lone_call_waits_for_nobody(host: Host, loop: Loop) -> None:
    make_epochs_long(host, loop)
    loop.submit(Call({}))
    assert isinstance(loop._arrivals, CountedWaits)
    assert loop._arrivals.waits == 0


def test_a_short_epoch_waits_for_nobody(loop: Loop) -> None:
    loop.arriving = lambda: True
    loop.submit(Call({}))
    assert isinstance(loop._arrivals, CountedWaits)
    assert loop._arrivals.waits == 0


def test_who_never_comes_is_not_waited_for_long(host: Host, loop: Loop) -> None:
    make_epochs_long(host, loop)
    loop.arriving = lambda: True
    assert loop.submit(Call({})).epoch == 2
    assert isinstance(loop._arrivals, CountedWaits)
    assert loop._arrivals.waits <= 40


def test_a_call_that_was_overtaken_is_worked_out_again(host: Host, loop: Loop) -> None:
    host.stale_answers = 2
    worked: list[Call] = []

    def work_out() -> Call:
        worked.append(Call({}, basis=Basis(host.epoch, 0, frozenset())))
        return worked[-1]

    assert loop.submit_worked_out(work_out).epoch == 1
    assert len(worked) == 3


def test_a_call_that_is_overtaken_each_time_is_worked_out_in_its_turn(host: Host, loop: Loop) -> None:
    host.stale_answers = 3
    in_turn: list[bool] = []
    waiting = Call({})

    def look() -> None:
        free = loop.turn.acquire(blocking=False)
        if free:
            loop.turn.release()
        in_turn.append(not free)

    def work_out() -> Call:
        other = threading.Thread(target=look)
        other.start()
        other.join()
        if len(in_turn) == 4:
            loop.enter(waiting)
        return Call({}, basis=Basis(host.epoch, 0, frozenset()))

    receipt = loop.submit_worked_out(work_out)
    assert in_turn == [False, False, False, True]
    assert (receipt.epoch, waiting.done) == (1, False)
    assert loop.wait_for(waiting).epoch == 2


def test_a_call_that_may_take_long_is_never_worked_out_in_its_turn(host: Host, loop: Loop) -> None:
    host.stale_answers = 7
    free: list[bool] = []

    def look() -> None:
        free.append(loop.turn.acquire(blocking=False))
        if free[-1]:
            loop.turn.release()

    def work_out() -> Call:
        other = threading.Thread(target=look)
        other.start()
        other.join()
        return Call({}, basis=Basis(host.epoch, 0, frozenset()))

    assert loop.submit_worked_out(work_out, in_turn=False).epoch == 1
    assert free == [True] * 8


def test_a_failure_counts_only_while_its_basis_does(host: Host, loop: Loop) -> None:
    outcomes = iter([Call({}, basis=Basis(0, 0, frozenset()), failure=ValueError("by then mended")), Call({})])
    host.stale_answers = 1
    assert loop.submit_worked_out(lambda: next(outcomes)).epoch == 1
    failing = Call({}, basis=Basis(1, 0, frozenset()), failure=ValueError("still so"))
    with pytest.raises(ValueError, match="still so"):
        loop.submit_worked_out(lambda: failing)
    assert host.epoch == 1


def test_changes_are_expected_while_they_are_received_and_not_from_those_who_dawdle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrivals = Arrivals()
    assert not arrivals.expected()
    with arrivals.receiving():
        assert arrivals.expected()
        later = time.monotonic() + 1
        monkeypatch.setattr("headrace.serving.arrivals.time.monotonic", lambda: later)
        assert not arrivals.expected()
        with arrivals.receiving():
            assert arrivals.expected()
    assert not arrivals.expected()
