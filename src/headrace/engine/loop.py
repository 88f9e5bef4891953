"""The epoch loop: calls in arrival order, taken together while one epoch runs, each with its own verdict."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from headrace.engine.catalog import Catalog
from headrace.engine.group import Changes, Group, ViewMoved
from headrace.engine.queries import Relations
from headrace.engine.receipt import Receipt
from headrace.engine.work import Work
from headrace.errors import HomeBroken, KeyReused, LedgerNotWritten, ViewEvaluationError
from headrace.interrupts import interrupts_held


@dataclass(eq=False)
class Call:
    """One caller's changes; those of a statement are worked out when its turn comes."""

    changes: Changes | Callable[[Relations], Changes]
    key: str | None = None
    digest: str = ""
    quiet: bool = False
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
        self._arrivals = threading.Lock()
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
        return call

    def settle(self, call: Call) -> Receipt:
        """Wait for the verdict of a call that is in line, and run the epoch if nobody else does."""
        while not call.done:
            with self.turn:
                if not call.done:
                    self._run(self._take())
        if call.error is not None:
            raise call.error
        assert call.receipt is not None
        return call.receipt

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

    def _put_back(self, calls: Sequence[Call]) -> None:
        with self._arrivals:
            self._waiting.extendleft(reversed(calls))

    def _run(self, group: list[Call]) -> None:
        """Bring every call of the group to its verdict, but for those that are put back for the next one."""
        self.idle.clear()
        try:
            with _collector_resting():
                self._run_together(group)
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

    def _run_together(self, calls: list[Call]) -> None:
        watch = Stopwatch()
        if (broken := self._host.broken) is not None:
            raise broken
        now = self._host.tick()
        work = self._host.begin(now)
        group = Group(self._host.catalog, work, now, self._host.tombstone_retention)
        accepted: list[Call] = []
        keys: dict[str, Call] = {}
        twins: list[tuple[Call, Call]] = []
        for place, call in enumerate(calls):
            call.error = None
            call.receipt = self._host.known(call.key)
            if call.receipt is not None:
                _refuse_other_content(call, call.receipt.digest)
                continue
            if call.key is not None and call.key in keys:
                _refuse_other_content(call, keys[call.key].digest)
                twins.append((call, keys[call.key]))
                continue
            try:
                if not _accept(call, group):
                    continue
            except ViewMoved:
                self._put_back(calls[place:])
                del calls[place:]
                break
            accepted.append(call)
            if call.key is not None:
                keys[call.key] = call
        if not accepted:
            return
        for name, delta in group.deltas().items():
            work.leave(name, delta)
        watch.lap("intake")
        self._host.follow(work)
        watch.lap("views")
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


def _accept(call: Call, group: Group) -> bool:
    """Check one call on top of those accepted before it; a rejected one leaves no trace."""
    try:
        changes = call.changes(group.relations()) if callable(call.changes) else call.changes
        call.applied, call.stale = group.take(changes)
    except ViewMoved:
        raise
    except Exception as error:
        call.error = error
    return call.error is None


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
