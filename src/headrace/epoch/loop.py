"""The epoch loop: calls in arrival order, taken together while one epoch runs, each with its own verdict."""

from __future__ import annotations

import gc
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from headrace import tracing
from headrace.epoch.calls import Call, Outdated
from headrace.epoch.core import Core
from headrace.epoch.digest import digest_of
from headrace.epoch.receipt import Receipt
from headrace.epoch.run import Intake, run_epoch
from headrace.epoch.suspects import Suspects, definition_exceeds
from headrace.epoch.traced import traced_epoch
from headrace.errors import HomeBroken, LedgerNotWritten, SparkLost, ViewEvaluationError
from headrace.intake.changes import refuse_no_changes
from headrace.state import mapped

T = TypeVar("T")
# How often changes are worked out outside of the turn before they are worked out inside.
_ATTEMPTS = 3
# How long an epoch waits at most for calls that are on their way, and how much of what the last one took for its views.
_PATIENCE_SECONDS = 0.02
_PATIENCE_SHARE = 0.1
_LOOK_SECONDS = 0.002
# How long who takes many short turns lets others go before each.
_LET_PASS_SECONDS = 0.2
# How often who wants to leave looks whether its call is over.
_LEAVE_SECONDS = 0.05
_log = logging.getLogger("headrace.epochs")


class Loop:
    """Runs epochs one after the other; whoever calls first runs the epoch for all who wait."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._waiting: deque[Call] = deque()
        self._line = threading.Lock()
        self._arrivals = threading.Condition(self._line)
        # Whether more calls are on their way; who receives them knows.
        self.arriving: Callable[[], bool] = lambda: False
        self._views_seconds = 0.0
        # Called after each epoch with its number and the seconds of its stages, in the thread that ran it.
        self.ran: Callable[[int, Mapping[str, float]], None] = lambda *_: None
        self._suspects = Suspects()
        self.turn = threading.RLock()
        # Called after each definition, still in turn.
        self.defined: Callable[[], None] = lambda: None
        # Whether Python's garbage collector rests while an epoch runs.
        self.pauses_collector = False
        self.idle = threading.Event()
        self.idle.set()

    def call(self, changes: Mapping[str, Sequence[object]], key: str | None = None, digest: str = "") -> Call:
        """Changes of a caller, not yet in line; refused where none can be made.

        The digest is what the key stands for from now on; without one, it is that of the changes.
        """
        refuse_no_changes(changes)
        self.core.refuse_closed()
        self.core.refuse_read_only()
        self.core.refuse_broken()
        catalog = self.core.catalog
        for name in changes:
            catalog.open_table(name)
        if key is not None:
            digest = digest or digest_of(changes)
        # Where nothing is to be changed or kept, no epoch is made.
        return Call(changes, key, digest, quiet=not any(map(len, changes.values())))

    def apply(self, changes: Mapping[str, Sequence[object]], key: str | None = None) -> Receipt:
        """Have changes applied as part of one epoch, all of them or none."""
        call = self.call(changes, key)
        with self.leaving(call):
            return self.receipt_of(self.enter(call))

    def receipt_of(self, call: Call) -> Receipt:
        """The receipt of a call that is in line, once the Spark that its views need is there."""
        with self.leaving(call):
            try:
                # Without views, no Spark is needed to follow a change.
                if self.core.catalog.has_views:
                    self.core.spark.wait()
            except SparkLost:
                # Another may have taken it into an epoch meanwhile, whose verdict then holds.
                if self.withdraw(call):
                    raise
            return self.wait_for(call)

    def change(self, work_out: Callable[[], Call], in_turn: bool = True) -> Receipt:
        """Have changes applied that depend on what the relations hold when they are accepted.

        They may be worked out in turn, while every epoch waits, if they are overtaken again and again.
        """
        self.core.refuse_read_only()
        self.core.refuse_broken()
        with self.core.spark.working(busy=False):
            return self.submit_worked_out(work_out, in_turn)

    def between_epochs(self, make: Callable[[], T]) -> T:
        """Run something while no epoch and no definition is under way."""
        with self.turn:
            return make()

    def between_others(self, make: Callable[[], T]) -> T:
        """Run something short while no epoch is under way, after those who are in line: one step of many."""
        until = time.monotonic() + _LET_PASS_SECONDS
        while self._waiting and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS / 2)
        with self.core.spark.working(busy=False), self.turn:
            return make()

    def define(self, make: Callable[[], T]) -> T:
        """Run a definition between epochs."""
        core = self.core
        core.refuse_read_only()
        core.refuse_broken()
        with core.spark.working(busy=False), self.turn:
            try:
                with core.spark.working(needed=False):
                    made = make()
            except SparkLost as lost:
                if lost.of_memory and lost.alone:
                    raise definition_exceeds() from lost
                raise
            finally:
                # After the commit, so that whoever read the old number knows no more than the old definitions.
                core.definitions += 1
                self._suspects.forget()
            mapped.release()
            self.defined()
            return made

    def submit(self, call: Call) -> Receipt:
        """Have a call applied, alone or together with others, and wait for its verdict."""
        with self.leaving(call):
            return self.wait_for(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Put a call in line: it comes after those entered before it, whoever waits for them."""
        call.trace = tracing.here()
        with self.leaving(call), self._line:
            self._waiting.append(call)
            self._arrivals.notify()
        return call

    def wait_for(self, call: Call) -> Receipt:
        """Wait for the verdict of a call that is in line, and run the epoch if nobody else does."""
        with self.leaving(call):
            if not call.done:
                with self.turn:
                    self._run_until(call)
            return _verdict(call)

    def submit_worked_out(self, work_out: Callable[[], Call], in_turn: bool = True) -> Receipt:
        """Have changes applied that follow from what relations hold, as they hold it when the call is accepted.

        They are worked out before their turn, so that nobody waits for that, and anew if their basis has changed by
        then. Those that come too late each time are worked out in their turn at last; or, where that may hold others up
        for long, again and again until `work_out` refuses.
        """
        for _ in range(_ATTEMPTS) if in_turn else itertools.count():
            try:
                return self.submit(work_out())
            except Outdated:
                continue
        with self.turn:
            with self._line:
                last = self._waiting[-1] if self._waiting else None
            if last is not None:
                self._run_until(last)
            return self._run_alone(work_out())

    def change_alone(self, work_out: Callable[[], Call]) -> Receipt:
        """Have changes applied in an epoch of their own: they are worked out in turn, so that nothing overtakes them.

        Every epoch waits meanwhile; it is for what is worked out quickly.
        """
        self.core.refuse_closed()
        self.core.refuse_read_only()
        self.core.refuse_broken()
        with self.core.spark.working(busy=False), self.turn:
            return self._run_alone(work_out())

    def _run_alone(self, call: Call) -> Receipt:
        with self.leaving(call):
            self._refuse_known([call])
            self._run([call])
            return _verdict(call)

    def withdraw(self, call: Call) -> bool:
        """Take a call out of the line, or keep it out; False if it is under way or over already."""
        with self._line:
            if call.taken or call.done:
                return False
            call.done = True
            if call in self._waiting:
                self._waiting.remove(call)
            return True

    @contextmanager
    def leaving(self, call: Call) -> Generator[None, None, None]:
        """Inside, who is interrupted is told what becomes of the call: it leaves the line, or its epoch is waited for.

        A second interrupt waits for nothing.
        """
        try:
            yield
        except BaseException as error:
            if error is not call.error:
                try:
                    self._await_end(call)
                    told = _fate(call)
                except BaseException as again:
                    again.add_note("whether this call is part of the next epoch is not known yet")
                    raise
                if told not in getattr(error, "__notes__", ()):
                    error.add_note(told)
            raise

    def _await_end(self, call: Call) -> None:
        """Wait until a call is over, which one that nobody has taken yet is at once."""
        self.withdraw(call)
        # Whoever takes a call has the turn until the call is over.
        while not call.done:
            if self.turn.acquire(timeout=_LEAVE_SECONDS):
                self.turn.release()
                return

    def _run_until(self, call: Call) -> None:
        """Run epochs, in turn, until a call that is in line has its verdict; most often that is one."""
        while not call.done:
            taken: list[Call] = []
            self._run(taken, join=True)
            if not taken:
                return

    def _take(self, calls: list[Call], most: float = math.inf) -> None:
        """Move those who wait, or the first of them, into a list of calls.

        Each is in the list before it leaves the line, so that none is lost wherever this ends; one that has had its
        answer meanwhile is not taken again.
        """
        known = len(calls)
        with self._line:
            while self._waiting and len(calls) < known + most:
                call = self._waiting[0]
                if not call.done:
                    calls.append(call)
                    call.taken = True
                self._waiting.popleft()
        self._refuse_known(calls[known:])

    def _refuse_known(self, calls: Sequence[Call]) -> None:
        """Have calls refused, unless they had their receipt before, that are known to need too much memory."""
        for call in calls:
            call.failure = call.failure or self._suspects.refusal(call)

    def _run(self, calls: list[Call], join: bool = False) -> None:
        """Bring every call to its verdict, and where others may join them, those in line and late comers."""
        try:
            self.idle.clear()
            with _collector_resting() if self.pauses_collector else nullcontext():
                self._run_together(calls, join)
        except BaseException as error:
            tried = [call for call in calls if call.receipt is None and call.error is None]
            suspects = len(calls) if isinstance(error, ViewEvaluationError) else 0
            # Which of several is to blame shows when each is tried alone; none is until then.
            heard = self._heard(error) if suspects < 2 else _interrupted()
            committed = isinstance(heard, HomeBroken) and heard.included
            for call in calls:
                # A call that was rejected before the commit is no part of it.
                if call.receipt is None and not (committed and call.error is not None):
                    call.error = heard
            exceeded = self._suspects.judge(tried, error)
            for call in tried if exceeded is not None else ():
                call.error = exceeded
            if suspects > 1:
                # The rejected ones too: what they were checked on top of may not come to be.
                for call in calls:
                    self._run([call])
            elif isinstance(error, ViewEvaluationError):
                if calls[0].asks_row:
                    self._find_row(calls[0], error)
                else:
                    calls[0].failed = self.core.last_work
            elif not isinstance(error, Exception):
                raise
        finally:
            self.idle.set()
            for call in calls:
                call.done = True

    def _heard(self, error: BaseException) -> Exception:
        """What the callers of an epoch hear of its end; an interrupt is for the thread that it hits."""
        if isinstance(error, Exception):
            return error
        broken = self.core.broken
        if broken is not None:
            # It was not when the epoch began, so it is this one that was committed.
            return HomeBroken(broken.epoch, broken.cause, included=True)
        return _interrupted()

    def _find_row(self, call: Call, error: ViewEvaluationError) -> None:
        """Let the guilty call hear which of its rows it was, where that can be found."""
        try:
            call.error = self.core.blame(error)
        except Exception:
            fields = {"view": error.view, "epoch": self.core.epoch + 1}
            _log.warning("the row that view %s fails on was not found", error.view, exc_info=True, extra=fields)

    def _run_together(self, calls: list[Call], join: bool) -> None:
        apart = self._suspects.apart
        if join:
            self._take(calls, 1 if apart else math.inf)
        with traced_epoch(self.core, calls) as note:
            stages = run_epoch(self.core, calls, self._join if join and not apart else None)
            note(stages)
        self._views_seconds = stages.get("views", self._views_seconds)
        if stages:
            self.ran(self.core.epoch, stages)
            _log.debug(
                "epoch %d of %d calls took %.3f seconds",
                self.core.epoch,
                len(calls),
                sum(stages.values()),
                extra={"epoch": self.core.epoch},
            )

    def _join(self, calls: list[Call], intake: Intake) -> None:
        """Take calls in that came while those before them were checked, or that are on their way.

        One epoch for all is cheaper than one for each, but nobody waits for a call that may never come: only where
        epochs take long, for a small part of that, and while somebody is known to bring one.
        """
        until = time.monotonic() + min(_PATIENCE_SECONDS, self._views_seconds * _PATIENCE_SHARE)
        while True:
            known = len(calls)
            self._take(calls)
            fresh = calls[known:]
            for call in fresh:
                intake.take(call)
            left = until - time.monotonic()
            if left <= 0 or not (fresh or self.arriving()):
                return
            with self._line:
                if not self._waiting:
                    self._arrivals.wait(min(left, _LOOK_SECONDS))


@contextmanager
def _collector_resting() -> Generator[None, None, None]:
    """An epoch makes many small values, all in use: looking for garbage among them takes long and finds none."""
    collected = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if collected:
            gc.enable()


def _verdict(call: Call) -> Receipt:
    if call.receipt is not None:
        return call.receipt
    # One without an answer was taken into an epoch that ended before it came to it.
    call.error = call.error or _interrupted()
    raise call.error


def _fate(call: Call) -> str:
    """What became of a call that is over, or was never begun, in words."""
    if call.receipt is not None:
        return f"epoch {call.receipt.epoch} is committed, this call included"
    return str(call.error) if isinstance(call.error, HomeBroken) else "nothing of this call was done"


def _interrupted() -> LedgerNotWritten:
    return LedgerNotWritten(
        "the epoch was interrupted", detail="Nothing of it was committed.", hint="send the call again"
    )
