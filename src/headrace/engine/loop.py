"""The epoch loop: calls in arrival order, taken together while one epoch runs, each with its own verdict."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from headrace.engine.bulk import Bulk, bulk_delta
from headrace.engine.catalog import Table
from headrace.engine.receipt import Receipt
from headrace.engine.tables import Pending
from headrace.engine.work import Work
from headrace.errors import ChangesRejected, HeadraceError, Rejection, ViewEvaluationError

Changes = Mapping[str, Sequence[object] | Bulk]


@dataclass(eq=False)
class Call:
    """One caller's changes; those of a statement are worked out when its turn comes."""

    changes: Changes | Callable[[], Changes]
    key: str | None = None
    quiet: bool = False
    done: bool = False
    receipt: Receipt | None = None
    error: BaseException | None = None
    applied: dict[str, int] = field(default_factory=dict[str, int])
    stale: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def alone(self) -> bool:
        """Whether the call reads what is committed, and so must not share an epoch."""
        return callable(self.changes)


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

    def submit(self, call: Call) -> Receipt:
        """Have a call applied, alone or together with others, and wait for its verdict."""
        with self._arrivals:
            self._waiting.append(call)
        while not call.done:
            with self.turn:
                if not call.done:
                    self._run(self._take())
        if call.error is not None:
            raise call.error
        assert call.receipt is not None
        return call.receipt

    def _take(self) -> list[Call]:
        with self._arrivals:
            group = [self._waiting.popleft()]
            while not group[0].alone and self._waiting and not self._waiting[0].alone:
                group.append(self._waiting.popleft())
        return group

    def _run(self, group: list[Call]) -> None:
        try:
            self._run_together(group)
        except ViewEvaluationError as error:
            undone = [call for call in group if not call.done]
            if len(undone) == 1:
                undone[0].error, undone[0].done = self._host.blame(error), True
            else:
                for call in undone:
                    self._run([call])
        except BaseException as error:
            for call in group:
                if not call.done:
                    call.error, call.done = error, True
            if not isinstance(error, Exception):
                raise

    def _run_together(self, group: Sequence[Call]) -> None:
        watch = Stopwatch()
        now = self._host.tick()
        work = self._host.begin(now)
        pending: dict[str, Pending] = {}
        accepted: list[Call] = []
        keys: dict[str, Call] = {}
        twins: list[tuple[Call, Call]] = []
        for call in group:
            known = self._host.known(call.key)
            if known is not None:
                call.receipt, call.done = known, True
            elif call.key is not None and call.key in keys:
                twins.append((call, keys[call.key]))
            elif self._accept(call, work, pending, now):
                accepted.append(call)
                if call.key is not None:
                    keys[call.key] = call
        if not accepted:
            return
        for one in pending.values():
            for name, delta in one.deltas(now, self._host.tombstone_retention).items():
                work.leave(name, delta)
        watch.lap("intake")
        self._host.follow(work)
        watch.lap("views")
        if all(call.quiet for call in accepted) and not self._host.moves_anything(work):
            for call in accepted:
                call.receipt, call.done = Receipt(self._host.epoch), True
            return
        epoch = self._host.epoch + 1
        receipts = {call: Receipt(epoch, call.applied, call.stale, dict.fromkeys(call.applied, 0)) for call in accepted}
        head = {"keys": {call.key: receipts[call].to_json() for call in accepted if call.key is not None}}
        self._host.commit(work, now, head)
        watch.lap("ledger")
        for call in accepted:
            kept = receipts[call]
            call.receipt = Receipt(epoch, kept.applied, kept.stale, kept.dead, watch.seconds, watch.stages)
            if call.key is not None:
                self._host.remember(call.key, call.receipt)
            call.done = True
        for twin, first in twins:
            twin.receipt, twin.error, twin.done = first.receipt, first.error, True

    def _accept(self, call: Call, work: Work, pending: dict[str, Pending], now: datetime) -> bool:
        """Check one call on top of those accepted before it; a rejected one leaves no trace."""
        call.applied, call.stale = {}, {}
        try:
            changes = call.changes() if callable(call.changes) else call.changes
            marks: list[tuple[Pending, int]] = []
            rejections: list[Rejection] = []
            for name, listed in changes.items():
                table = self._host.table(name)
                if isinstance(listed, Bulk):
                    work.leave(table.name, bulk_delta(table, work, listed))
                    call.applied[table.name] = len(listed)
                    call.stale[table.name] = 0
                    continue
                one = pending.get(table.name)
                if one is None:
                    one = pending[table.name] = Pending(table, work)
                marks.append((one, one.overlay.checkpoint()))
                verdict = one.overlay.take(listed, now)
                rejections.extend(verdict.rejections)
                call.applied[table.name] = call.applied.get(table.name, 0) + verdict.applied
                call.stale[table.name] = call.stale.get(table.name, 0) + verdict.stale
            if rejections:
                for one, mark in reversed(marks):
                    one.overlay.rollback(mark)
                raise ChangesRejected(rejections)
            return True
        except HeadraceError as error:
            call.error, call.done = error, True
            return False


class Host(Protocol):
    """What the loop needs of the home it runs in."""

    epoch: int

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

    def table(self, name: str) -> Table:
        """A table by name."""
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

    def moves_anything(self, work: Work) -> bool:
        """Whether an epoch changes more than the clock."""
        ...

    def remember(self, key: str, receipt: Receipt) -> None:
        """Keep the receipt of an idempotency key."""
        ...
