"""Ctrl-C while calls wait and while epochs run: each caller is told what became of its call, and that is so."""

from __future__ import annotations

import gc
import itertools
import linecache
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from headrace.epoch import loop as loops
from headrace.epoch import run as runs
from headrace.epoch.calls import Basis, Call
from headrace.epoch.loop import Loop
from headrace.errors import LedgerNotWritten, ViewEvaluationError
from tests.small_engine import Following, Host, picky, rows, table, view
from tests.thinned import thinned
from tests.waiting import until

NOTHING = "nothing of this call was done"


def insert(number: int, n: int = 0, **parts: Any) -> Call:
    return Call({"t": [{"insert": {"id": number, "n": n}}]}, **parts)


pytestmark = pytest.mark.usefixtures("interruptible")


@pytest.fixture
def host() -> Host:
    """Its table has no key, so that what comes twice is there twice."""
    return Host(table("t", key=()), view("v", "t", rule=Following(picky)))


@pytest.fixture
def loop(host: Host) -> Loop:
    return Loop(host)


def held(host: Host) -> dict[int, int]:
    """How often each number is there."""
    return {row[0]: times for row, times in rows(host.stores["t"].snapshot()).items()}


def in_thread(act: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def waits(thread: int | None, function: str) -> bool:
    """Whether a thread is inside a function of the loop."""
    frame = sys._current_frames().get(thread or 0)
    while frame is not None:
        if frame.f_code.co_filename == loops.__file__ and frame.f_code.co_name == function:
            return True
        frame = frame.f_back
    return False


def interrupt(function: str) -> None:
    """Press Ctrl-C when the main thread has come to wait there."""
    main = threading.main_thread().ident
    until(lambda: waits(main, function))
    time.sleep(0.05)
    signal.pthread_kill(main or 0, signal.SIGINT)


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def test_who_stops_waiting_for_a_turn_takes_the_call_out_of_the_line(host: Host, loop: Loop) -> None:
    taken, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with loop.turn:
            taken.set()
            assert go_on.wait(90)

    holder = in_thread(hold)
    assert taken.wait(90)
    in_thread(lambda: interrupt("wait_for"))
    with pytest.raises(KeyboardInterrupt) as told:
        loop.submit(insert(1))
    go_on.set()
    holder.join(90)
    assert notes(told.value) == [NOTHING]
    # The caller tries again, and others come: the call is there once.
    assert loop.submit(insert(1)).epoch == 1
    loop.submit(insert(2))
    assert held(host) == {1: 1, 2: 1}


@pytest.mark.parametrize(("fails", "told"), [(False, "epoch 1 is committed, this call included"), (True, NOTHING)])
def test_who_stops_waiting_for_an_epoch_under_way_is_told_how_it_ended(
    host: Host, loop: Loop, fails: bool, told: str
) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        assert go_on.wait(90)
        if fails:
            raise LedgerNotWritten("the disk is full")

    def press() -> None:
        interrupt("wait_for")
        until(lambda: waits(threading.main_thread().ident, "_await_end"))
        go_on.set()

    host.before_commit = slow
    first, mine = loop.enter(insert(1)), loop.enter(insert(2))
    in_thread(lambda: verdict_of(loop, first))
    assert started.wait(90)
    pressed = in_thread(press)
    with pytest.raises(KeyboardInterrupt) as raised:
        loop.wait_for(mine)
    pressed.join(90)
    assert notes(raised.value) == [told]
    assert held(host) == ({} if fails else {1: 1, 2: 1})


def test_a_second_ctrl_c_does_not_wait_for_the_epoch_and_says_so(host: Host, loop: Loop) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        assert go_on.wait(90)

    def press() -> None:
        interrupt("wait_for")
        interrupt("_await_end")

    host.before_commit = slow
    first, mine = loop.enter(insert(1)), loop.enter(insert(2))
    runner = in_thread(lambda: loop.wait_for(first))
    assert started.wait(90)
    pressed = in_thread(press)
    with pytest.raises(KeyboardInterrupt) as raised:
        loop.wait_for(mine)
    pressed.join(90)
    go_on.set()
    runner.join(90)
    assert notes(raised.value) == ["whether this call is part of the next epoch is not known yet"]


FILES = (loops.__file__, runs.__file__)


class Moment:
    """Ctrl-C at the n-th thing that the loop does: a line or a call.

    Not where a `with` or a generator ends: a tracer is called there, but no interrupt comes between body and end.
    """

    def __init__(self, number: int) -> None:
        self._left = number
        self.where = ""

    def __enter__(self) -> Moment:
        sys.settrace(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _look(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in (loops.__file__, runs.__file__) or frame.f_code.co_name in (
            "<genexpr>",
            "_collector_resting",
        ):
            return None
        here = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if not self.where and event != "return" and not (event == "line" and here.startswith("with ")):
            self._left -= 1
            if self._left < 0:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno} {event}"
                signal.raise_signal(signal.SIGINT)
        return self._look


def verdict_of(loop: Loop, call: Call) -> Any:
    """What a caller in another thread hears."""
    heard: list[Any] = []

    def settle() -> None:
        try:
            heard.append(loop.wait_for(call))
        except Exception as error:
            heard.append(error)

    in_thread(settle).join(90)
    assert heard, "it waits for ever"
    return heard[0]


def submit_alone(host: Host, loop: Loop) -> None:
    loop.submit(insert(1))


def submit_guilty(host: Host, loop: Loop) -> None:
    loop.submit(insert(1, 666))


def submit_in_turn(host: Host, loop: Loop) -> None:
    """Overtaken three times, and worked out in turn at last."""
    worked = itertools.count()

    def work_out() -> Call:
        last = next(worked) == loops._ATTEMPTS  # pyright: ignore[reportPrivateUsage]
        return insert(1, basis=None if last else Basis(-1, 0, frozenset({"t"})))

    loop.submit_worked_out(work_out)


@pytest.mark.thorough
@pytest.mark.parametrize("submit", thinned([submit_alone, submit_guilty, submit_in_turn], 3))
def test_ctrl_c_at_any_moment_is_told_as_it_is(submit: Callable[[Host, Loop], None]) -> None:
    """For each moment of an epoch: what the interrupted one and the other are told is what the table holds."""
    moments = 0
    for number in itertools.count():
        host = Host(table("t", key=()), view("v", "t", rule=Following(picky)))
        loop = Loop(host)
        other = loop.enter(insert(2))
        moment, raised = Moment(number), None
        try:
            with moment:
                submit(host, loop)
        except (KeyboardInterrupt, ViewEvaluationError) as error:
            raised = error
        if not moment.where:
            break
        moments += 1
        verdict = verdict_of(loop, other)
        loop.submit(insert(3))
        present = held(host)
        at = f"at {moment.where}: {present}, {raised!r} {notes(raised) if raised else ''}, {verdict!r}"
        assert present.get(3) == 1, at
        assert loop.idle.is_set(), at
        assert gc.isenabled(), at
        if isinstance(verdict, Exception):
            assert isinstance(verdict, LedgerNotWritten), at
            assert present.get(2) is None, at
        else:
            assert present.get(2) == 1, at
        if isinstance(raised, KeyboardInterrupt):
            told = " ".join(notes(raised))
            if 1 in present:
                assert present[1] == 1, at
                assert "is committed" in told, at
            else:
                assert "is committed" not in told, at
    assert moments > 60
