"""The epoch loop: calls in arrival order, taken together while one epoch runs, each with its own verdict."""

from __future__ import annotations

import gc
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from headrace.catalog.catalog import Catalog
from headrace.epoch.batch import Batch, Changes
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work
from headrace.errors import HomeBroken, KeyReused, LedgerNotWritten, ViewEvaluationError
from headrace.interrupts import interrupts_held

# How often changes are worked out outside of the turn before they are worked out inside.
_ATTEMPTS = 3
# How long an epoch waits at most for calls that are on their way, and how much of what the last one took for its views.
_PATIENCE_SECONDS = 0.02
_PATIENCE_SHARE = 0.1
_LOOK_SECONDS = 0.002
# How often who wants to leave looks whether its call is over.
_LEAVE_SECONDS = 0.05
_log = logging.getLogger("headrace.epochs")


class Outdated(Exception):
    """Changes were worked out from what is no longer so."""


@dataclass(frozen=True)
class Basis:
    """What changes were worked out from: relations as of an epoch, under the definitions of that time."""

    epoch: int
    definitions: int
    relations: frozenset[str]


@dataclass(eq=False)
class Call:
    """One caller's changes; those of a statement, or why there are none, hold as long as their basis does."""

    changes: Changes
    key: str | None = None
    digest: str = ""
    quiet: bool = False
    basis: Basis | None = None
    failure: Exception | None = None
    taken: bool = False
    done: bool = False
    # Whether its verdict is that of another call, which had its key before.
    repeats: bool = False
    receipt: Receipt | None = None
    error: BaseException | None = None
    applied: dict[str, int] = field(default_factory=dict[str, int])
    stale: dict[str, int] = field(default_factory=dict[str, int])


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.started_at = time.perf_counter()
        self._last = self.started_at
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """The time since the last lap belongs to this stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._last
        self._last = now

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.perf_counter() - self.started_at


class Loop:
    """Runs epochs one after the other; whoever calls first runs the epoch for all who wait."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[Call] = deque()
        self._line = threading.Lock()
        self._arrivals = threading.Condition(self._line)
        # Whether more calls are on their way; who receives them knows.
        self.arriving: Callable[[], bool] = lambda: False
        self._views_seconds = 0.0
        self.turn = threading.RLock()
        self.idle = threading.Event()
        self.idle.set()

    def submit(self, call: Call) -> Receipt:
        """Have a call applied, alone or together with others, and wait for its verdict."""
        with self.leaving(call):
            return self.settle(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Put a call in line: it comes after those entered before it, whoever waits for them."""
        with self.leaving(call), self._line:
            self._waiting.append(call)
            self._arrivals.notify()
        return call

    def settle(self, call: Call) -> Receipt:
        """Wait for the verdict of a call that is in line, and run the epoch if nobody else does."""
        with self.leaving(call):
            if not call.done:
                with self.turn:
                    if not call.done:
                        self._run([], join=True)
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
            if self._waiting:
                self._run([], join=True)
            call = work_out()
            with self.leaving(call):
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

    def _take(self, group: list[Call]) -> None:
        """Move all who wait into a group.

        Each is in the group before it leaves the line, so that none is lost wherever this ends; one that has had its
        answer meanwhile is not taken again.
        """
        with self._line:
            while self._waiting:
                call = self._waiting[0]
                if not call.done:
                    group.append(call)
                    call.taken = True
                self._waiting.popleft()

    def _run(self, group: list[Call], join: bool = False) -> None:
        """Bring every call of the group to its verdict, and where others may join it, those in line and late comers."""
        try:
            self.idle.clear()
            with _collector_resting():
                self._run_together(group, join)
        except BaseException as error:
            suspects = len(group) if isinstance(error, ViewEvaluationError) else 0
            # Which of several is to blame shows when each is tried alone; none is until then.
            heard = self._heard(error) if suspects < 2 else _interrupted()
            committed = isinstance(heard, HomeBroken) and heard.included
            for call in group:
                # A call that was rejected before the commit is no part of it.
                if call.receipt is None and not (committed and call.error is not None):
                    call.error = heard
            if suspects > 1:
                # The rejected ones too: what they were checked on top of may not come to be.
                for call in group:
                    self._run([call])
            elif isinstance(error, ViewEvaluationError):
                self._find_row(group[0], error)
            elif not isinstance(error, Exception):
                raise
        finally:
            self.idle.set()
            for call in group:
                call.done = True

    def _heard(self, error: BaseException) -> Exception:
        """What the callers of an epoch hear of its end; an interrupt is for the thread that it hits."""
        if isinstance(error, Exception):
            return error
        broken = self._host.broken
        if broken is not None:
            # It was not when the epoch began, so it is this one that was committed.
            return HomeBroken(broken.epoch, broken.cause, included=True)
        return _interrupted()

    def _find_row(self, call: Call, error: ViewEvaluationError) -> None:
        """Let the guilty call hear which of its rows it was, where that can be found."""
        try:
            call.error = self._host.blame(error)
        except Exception:
            _log.warning("the row that view %s fails on was not found", error.view, exc_info=True)

    def _run_together(self, calls: list[Call], join: bool) -> None:
        watch = Stopwatch()
        if join:
            self._take(calls)
        if (broken := self._host.broken) is not None:
            raise broken
        now = self._host.tick()
        work = self._host.begin(now)
        batch = Batch(self._host.catalog, work, now, self._host.tombstone_retention)
        intake = _Intake(self._host, batch)
        for call in calls:
            intake.take(call)
        accepted = intake.accepted
        if join and accepted:
            self._join(calls, intake)
        if not accepted:
            return
        for name, delta in batch.deltas().items():
            work.record(name, delta)
        watch.lap("intake")
        self._host.follow(work)
        watch.lap("views")
        self._views_seconds = watch.stages["views"]
        # A key stands for its call also where that changes nothing, and only an epoch keeps it.
        if all(call.quiet and call.key is None for call in accepted) and not self._host.moves_anything(work):
            for call in accepted:
                call.receipt = Receipt(self._host.epoch)
            return
        epoch = self._host.epoch + 1
        receipts = {
            call: Receipt(epoch, call.applied, call.stale, dict.fromkeys(call.applied, 0), digest=call.digest)
            for call in accepted
        }
        keyed = {call.key: call for call in accepted if call.key is not None}
        head = {
            "keys": {key: receipts[call].to_json() for key, call in keyed.items()},
            "digests": {key: call.digest for key, call in keyed.items()},
        }
        receipts = intake.with_twins(receipts)
        # An interrupt waits until each call has its receipt: all of them are committed by then.
        with interrupts_held():
            self._host.commit(work, now, head)
            for call, receipt in receipts.items():
                call.receipt = receipt
            watch.lap("ledger")
            seconds = watch.seconds
            for call, receipt in receipts.items():
                call.receipt = timed = replace(receipt, seconds=seconds, stages=watch.stages)
                if call.key is not None:
                    self._host.remember(call.key, timed)

    def _join(self, calls: list[Call], intake: _Intake) -> None:
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


def _refuse_other_content(call: Call, digest: str) -> None:
    """Refuse a call whose key was used for something else; what an older release kept tells no difference."""
    if digest and call.digest and call.digest != digest:
        call.receipt, call.error = None, KeyReused(call.key or "")


class _Intake:
    """The calls of one epoch, each checked on top of those accepted before it; a rejected one leaves no trace."""

    def __init__(self, host: Host, batch: Batch) -> None:
        self._host = host
        self._batch = batch
        self._keys: dict[str | None, Call] = {}
        self.accepted: list[Call] = []
        self._twins: list[tuple[Call, Call]] = []

    def take(self, call: Call) -> None:
        """Accept a call, or give it its verdict: an error, or what became of the call that had its key before."""
        call.error = None
        call.receipt = self._host.known(call.key)
        call.repeats = call.receipt is not None or call.key in self._keys
        if call.receipt is not None:
            _refuse_other_content(call, call.receipt.digest)
            return
        if call.key in self._keys:
            _refuse_other_content(call, self._keys[call.key].digest)
            self._twins.append((call, self._keys[call.key]))
            return
        try:
            self._refuse_outdated(call)
            call.applied, call.stale = self._batch.take(call.changes)
        except Exception as error:
            call.error = error
            return
        self.accepted.append(call)
        if call.key is not None:
            self._keys[call.key] = call

    def with_twins(self, receipts: Mapping[Call, Receipt]) -> dict[Call, Receipt]:
        """The receipts of those accepted, and for each who brought the same under the same key that of the first."""
        return {**receipts, **{twin: receipts[first] for twin, first in self._twins if twin.error is None}}

    def _refuse_outdated(self, call: Call) -> None:
        basis = call.basis
        if basis is not None and not (
            self._host.stands(basis) and not any(self._batch.changes(name) for name in basis.relations)
        ):
            raise Outdated
        if call.failure is not None:
            raise call.failure


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


class Host(Protocol):
    """What the loop needs of the home it runs in."""

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The relations of the newest epoch."""
        ...

    @property
    def broken(self) -> HomeBroken | None:
        """Why the home cannot go on, if an epoch was committed that it could not take in."""
        ...

    @property
    def tombstone_retention(self) -> timedelta:
        """How long deleted keys are remembered."""
        ...

    def tick(self) -> datetime:
        """The time of the next epoch."""
        ...

    def begin(self, now: datetime) -> Work:
        """The work of a new epoch."""
        ...

    def known(self, key: str | None) -> Receipt | None:
        """The receipt of an idempotency key that was used before."""
        ...

    def stands(self, basis: Basis) -> bool:
        """Whether what changes were worked out from is still so."""
        ...

    def follow(self, work: Work) -> None:
        """Bring every view up to date."""
        ...

    def commit(self, work: Work, now: datetime, head: Mapping[str, Any]) -> None:
        """Make the epoch durable and visible."""
        ...

    def blame(self, error: ViewEvaluationError) -> ViewEvaluationError:
        """The error with the row that caused it, where one can be found."""
        ...

    def remember(self, key: str, receipt: Receipt) -> None:
        """Keep the receipt of an idempotency key with its seconds, which the ledger does not keep."""
        ...

    def moves_anything(self, work: Work) -> bool:
        """Whether an epoch changes more than the clock."""
        ...
