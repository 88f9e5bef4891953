"""The epoch loop: calls in arrival order, taken together while one epoch runs, each with its own verdict."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from headrace.engine.catalog import Catalog
from headrace.engine.group import Changes, Group
from headrace.engine.receipt import Receipt
from headrace.engine.work import Work
from headrace.errors import HomeBroken, KeyReused, LedgerNotWritten, ViewEvaluationError
from headrace.interrupts import interrupts_held

# How often changes are worked out outside of the turn before they are worked out inside.
_ATTEMPTS = 3
# How long an epoch waits at most for calls that are on their way, and how much of what the last one took for its views.
_PATIENCE_SECONDS = 0.02
_PATIENCE_SHARE = 0.1
_LOOK_SECONDS = 0.002


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
    done: bool = False
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
        self._arrivals = threading.Condition()
        # Whether more calls are on their way; who receives them knows.
        self.arriving: Callable[[], bool] = lambda: False
        self._views_seconds = 0.0
        self.turn = threading.RLock()
        self.idle = threading.Event()
        self.idle.set()

    def submit(self, call: Call) -> Receipt:
        """Have a call applied, alone or together with others, and wait for its verdict."""
        return self.settle(self.enter(call))

    def enter(self, call: Call) -> Call:
        """Put a call in line: it comes after those entered before it, whoever waits for them."""
        with self._arrivals:
            self._waiting.append(call)
            self._arrivals.notify()
        return call

    def settle(self, call: Call) -> Receipt:
        """Wait for the verdict of a call that is in line, and run the epoch if nobody else does."""
        while not call.done:
            with self.turn:
                if not call.done:
                    self._run(self._take(), join=True)
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
            before = self._take()
            if before:
                self._run(before)
            call = work_out()
            self._run([call])
        return _verdict(call)

    def withdraw(self, call: Call) -> bool:
        """Take a call out of the line; False if it is under way or over already."""
        with self._arrivals:
            if call not in self._waiting:
                return False
            self._waiting.remove(call)
            return True

    def _take(self) -> list[Call]:
        with self._arrivals:
            group = list(self._waiting)
            self._waiting.clear()
        return group

    def _run(self, group: list[Call], join: bool = False) -> None:
        """Bring every call of the group to its verdict, and those that join it in time."""
        self.idle.clear()
        try:
            with _collector_resting():
                self._run_together(group, join)
        except BaseException as error:
            heard = self._heard(error)
            committed = isinstance(heard, HomeBroken) and heard.included
            for call in group:
                # A call that was rejected before the commit is no part of it.
                if call.receipt is None and not (committed and call.error is not None):
                    call.error = heard
            if isinstance(error, ViewEvaluationError):
                self._find_guilty(group, error)
            elif not isinstance(error, Exception):
                raise
        finally:
            for call in group:
                call.done = True
            self.idle.set()

    def _heard(self, error: BaseException) -> Exception:
        """What the callers of an epoch hear of its end; an interrupt is for the thread that it hits."""
        if isinstance(error, Exception):
            return error
        broken = self._host.broken
        if broken is not None:
            # It was not when the epoch began, so it is this one that was committed.
            return HomeBroken(broken.epoch, broken.cause, included=True)
        return LedgerNotWritten(
            "the epoch was interrupted", detail="Nothing of it was committed.", hint="send the call again"
        )

    def _find_guilty(self, group: Sequence[Call], error: ViewEvaluationError) -> None:
        """Try each call apart, the rejected ones too: what they were checked on top of may not come to be."""
        if len(group) == 1:
            group[0].error = self._host.blame(error)
        else:
            for call in group:
                self._run([call])

    def _run_together(self, calls: list[Call], join: bool) -> None:
        watch = Stopwatch()
        if (broken := self._host.broken) is not None:
            raise broken
        now = self._host.tick()
        work = self._host.begin(now)
        group = Group(self._host.catalog, work, now, self._host.tombstone_retention)
        intake = _Intake(self._host, group)
        for call in calls:
            intake.take(call)
        accepted, twins = intake.accepted, intake.twins
        if join and accepted:
            self._join(calls, intake)
        if not accepted:
            return
        for name, delta in group.deltas().items():
            work.leave(name, delta)
        watch.lap("intake")
        self._host.follow(work)
        watch.lap("views")
        self._views_seconds = watch.stages["views"]
        if all(call.quiet for call in accepted) and not self._host.moves_anything(work):
            for call in accepted:
                call.receipt = Receipt(self._host.epoch)
            return
        epoch = self._host.epoch + 1
        receipts = {call: Receipt(epoch, call.applied, call.stale, dict.fromkeys(call.applied, 0)) for call in accepted}
        keyed = {call.key: call for call in accepted if call.key is not None}
        head = {
            "keys": {key: receipts[call].to_json() for key, call in keyed.items()},
            "digests": {key: call.digest for key, call in keyed.items()},
        }
        # An interrupt waits until each call has its receipt: all of them are committed by then.
        with interrupts_held():
            self._host.commit(work, now, head)
            watch.lap("ledger")
            for call in accepted:
                kept = receipts[call]
                stages = watch.stages
                call.receipt = Receipt(epoch, kept.applied, kept.stale, kept.dead, watch.seconds, stages, call.digest)
                if call.key is not None:
                    self._host.remember(call.key, call.receipt)
            for twin, first in twins:
                twin.receipt = None if twin.error is not None else first.receipt

    def _join(self, calls: list[Call], intake: _Intake) -> None:
        """Take calls in that came while those before them were checked, or that are on their way.

        One epoch for all is cheaper than one for each, but nobody waits for a call that may never come: only where
        epochs take long, for a small part of that, and while somebody is known to bring one.
        """
        until = time.monotonic() + min(_PATIENCE_SECONDS, self._views_seconds * _PATIENCE_SHARE)
        while True:
            fresh = self._take()
            calls.extend(fresh)
            for call in fresh:
                intake.take(call)
            left = until - time.monotonic()
            if left <= 0 or not (fresh or self.arriving()):
                return
            with self._arrivals:
                if not self._waiting:
                    self._arrivals.wait(min(left, _LOOK_SECONDS))


@contextmanager
def _collector_resting() -> Generator[None, None, None]:
    """An epoch makes many small values, all in use: looking for garbage among them takes long and finds none."""
    collected = gc.isenabled()
    gc.disable()
    try:
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

    def __init__(self, host: Host, group: Group) -> None:
        self._host = host
        self._group = group
        self._keys: dict[str, Call] = {}
        self.accepted: list[Call] = []
        self.twins: list[tuple[Call, Call]] = []

    def take(self, call: Call) -> None:
        """Accept a call, or give it its verdict: an error, or what became of the call that had its key before."""
        call.error = None
        call.receipt = self._host.known(call.key)
        if call.receipt is not None:
            _refuse_other_content(call, call.receipt.digest)
            return
        if call.key is not None and call.key in self._keys:
            _refuse_other_content(call, self._keys[call.key].digest)
            self.twins.append((call, self._keys[call.key]))
            return
        try:
            self._refuse_outdated(call)
            call.applied, call.stale = self._group.take(call.changes)
        except Exception as error:
            call.error = error
            return
        self.accepted.append(call)
        if call.key is not None:
            self._keys[call.key] = call

    def _refuse_outdated(self, call: Call) -> None:
        basis = call.basis
        if basis is not None and not (
            self._host.stands(basis) and not any(self._group.changes(name) for name in basis.relations)
        ):
            raise Outdated
        if call.failure is not None:
            raise call.failure


def _verdict(call: Call) -> Receipt:
    if call.error is not None:
        raise call.error
    assert call.receipt is not None
    return call.receipt


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
