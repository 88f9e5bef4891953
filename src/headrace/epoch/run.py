"""One epoch, from top to bottom: calls are taken in, views follow, one append commits, each call has its receipt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.epoch.batch import Batch
from headrace.epoch.calls import Call, Outdated, Stopwatch
from headrace.epoch.core import Core
from headrace.epoch.receipt import Receipt
from headrace.errors import KeyReused
from headrace.interrupts import interrupts_held

# Takes further calls into the list and the intake; run once, when those before them are checked.
Join = Callable[[list[Call], "Intake"], None]


def run_epoch(core: Core, calls: list[Call], join: Join | None = None) -> Mapping[str, float]:
    """Bring calls, and those that join them, to their receipts; the seconds of each stage, none if nothing was done.

    A call that is rejected has its error, and is no part of the epoch. What is raised is about all of the others.
    """
    watch = Stopwatch()
    if (broken := core.broken) is not None:
        raise broken
    # Intake: each call is checked on top of those accepted before it.
    now = core.tick()
    work = core.begin(now)
    batch = Batch(core.catalog, work, now, core.tombstone_retention)
    intake = Intake(core, batch)
    for call in calls:
        intake.take(call)
    if join is not None and intake.accepted:
        join(calls, intake)
    accepted = intake.accepted
    if not accepted:
        return {}
    for name, delta in batch.deltas().items():
        work.record(name, delta)
    watch.lap("intake")
    # Views: the net change of everything that depends on the tables' changes.
    core.follow(work)
    watch.lap("views")
    # A key stands for its call also where that changes nothing, and only an epoch keeps it.
    if all(call.quiet and call.key is None for call in accepted) and not core.moves_anything(work):
        for call in accepted:
            call.receipt = Receipt(core.epoch, **call.told)
        return watch.stages
    epoch = core.epoch + 1
    receipts = {
        call: Receipt(epoch, call.applied, call.stale, call.dead, digest=call.digest, **call.told) for call in accepted
    }
    head = _head(receipts)
    receipts = intake.with_twins(receipts)
    # Ledger: an interrupt waits until each call has its receipt, for all of them are committed by then.
    with interrupts_held():
        core.commit(work, now, head)
        for call, receipt in receipts.items():
            call.receipt = receipt
        watch.lap("ledger")
        seconds = watch.seconds
        for call, receipt in receipts.items():
            call.receipt = timed = replace(receipt, seconds=seconds, stages=watch.stages)
            if call.key is not None:
                core.remember(call.key, timed)
    return watch.stages


def _head(receipts: Mapping[Call, Receipt]) -> dict[str, Any]:
    """What the ledger keeps of the calls: the receipts of idempotency keys, and what each key stands for."""
    keyed = {call.key: call for call in receipts if call.key is not None}
    head: dict[str, Any] = {
        "keys": {key: receipts[call].to_json() for key, call in keyed.items()},
        "digests": {key: call.digest for key, call in keyed.items()},
    }
    for call in receipts:
        for word, content in call.head.items():
            head[word] = [*head.get(word, ()), *content]
    return head


class Intake:
    """The calls of one epoch, each checked on top of those accepted before it; a rejected one leaves no trace."""

    def __init__(self, core: Core, batch: Batch) -> None:
        self._core = core
        self._batch = batch
        self._keys: dict[str | None, Call] = {}
        self.accepted: list[Call] = []
        self._twins: list[tuple[Call, Call]] = []

    def take(self, call: Call) -> None:
        """Accept a call, or give it its verdict: an error, or what became of the call that had its key before."""
        call.error = None
        call.receipt = self._core.known(call.key)
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
            self._take(call)
        except Exception as error:
            call.error = error
            return
        self.accepted.append(call)
        if call.key is not None:
            self._keys[call.key] = call

    def _take(self, call: Call) -> None:
        mark = self._batch.mark()
        made = None if call.within is None else call.within(self._batch)
        changes = call.changes if made is None else made.changes
        verdicts = self._batch.take(changes, each=call.after is not None)
        if call.after is not None:
            try:
                self._batch.take(call.after(verdicts))
            except BaseException:
                self._batch.rollback(mark)
                raise
        if made is not None:
            self._batch.notes.update(made.noted)
            call.told = made.told
        call.applied, call.stale, call.dead = verdicts.applied, verdicts.stale, verdicts.dead

    def with_twins(self, receipts: Mapping[Call, Receipt]) -> dict[Call, Receipt]:
        """The receipts of those accepted, and for each who brought the same under the same key that of the first."""
        return {**receipts, **{twin: receipts[first] for twin, first in self._twins if twin.error is None}}

    def _refuse_outdated(self, call: Call) -> None:
        basis = call.basis
        if basis is not None and not (
            self._core.stands(basis) and not any(self._batch.changes(name) for name in basis.relations)
        ):
            raise Outdated
        if call.failure is not None:
            raise call.failure


def _refuse_other_content(call: Call, digest: str) -> None:
    """Refuse a call whose key was used for something else; what an older release kept tells no difference."""
    if digest and call.digest and call.digest != digest:
        call.receipt, call.error = None, KeyReused(call.key or "")
