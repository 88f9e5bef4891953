"""What must hold whenever a home is opened, however its last process ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from headrace.errors import EpochExpired
from headrace.face import Headrace, home_of
from headrace.storage.objects import name_below
from headrace.upkeep.fold import base_path
from tests.checks.book import Check
from tests.checks.journal import CallId, Journal
from tests.checks.model import Apply, Model, calls_of
from tests.checks.storage import base_rows, orphans

Rows: TypeAlias = Counter[tuple[Any, ...]]
_RESENT = 2
_GONE = ("delete", "update_preimage")


@dataclass(frozen=True)
class Fault:
    """Something that does not hold: lost, duplicated, orphaned, or wrong in another way."""

    kind: str
    text: str


@dataclass
class Standing:
    """What a home must hold, by the journal and by what it has of the action that was under way.

    The epochs are those of all that came to be. Where views follow the clock, it makes epochs of its own between them.
    """

    clock: bool
    count: int = 0
    calls: dict[CallId, Apply] = field(default_factory=dict[CallId, Apply])
    epochs: dict[CallId, int] = field(default_factory=dict[CallId, int])
    model: Model = field(default_factory=lambda: Model({}))

    @property
    def keys(self) -> dict[int, set[str]]:
        """The keys of each epoch that calls and statements made."""
        found: dict[int, set[str]] = {}
        for call_id, epoch in self.epochs.items():
            found.setdefault(epoch, set()).update([key_of(call_id)] if call_id in self.calls else [])
        return found


def key_of(call_id: CallId) -> str:
    """The idempotency key of a call."""
    return f"action-{call_id[0]}-{call_id[1]}"


def settle(hr: Headrace, check: Check, seed: int, journal: Journal) -> tuple[Standing, list[Fault]]:
    """Find out what of the action that was under way came to be: each of its calls is all there or not at all."""
    told = journal.read()
    held = {key: head.epoch for head in home_of(hr).core.ledger.heads() for key in head.content.get("keys", {})}
    at = Standing(check.clock)
    faults: list[Fault] = []
    newest = max(told.epochs.values(), default=0)
    if hr.epoch < newest:
        faults.append(Fault("lost", f"epoch {newest} was acknowledged, the home stands at {hr.epoch}"))
    for number, (action, model) in enumerate(check.actions(seed)):
        at.count, at.model = number, model
        last = max(at.epochs.values(), default=0)
        calls = {(number, index): call for index, call in enumerate(calls_of(action))}
        unsaid = number == told.begun - 1 and (number, 0) not in {*told.epochs, *told.refused}
        if not calls and unsaid and hr.epoch > last:
            journal.acknowledge((number, 0), last + 1)
            told = journal.read()
        made = {call_id: told.epochs[call_id] for call_id in calls or [(number, 0)] if call_id in told.epochs}
        if any(epoch <= last for epoch in made.values()):
            faults.append(Fault("wrong", f"{made} were acknowledged after epoch {last}"))
        at.calls.update(calls)
        if len(made) == max(len(calls), 1):
            at.epochs.update(made)
            continue
        for call_id, call in calls.items():
            if key_of(call_id) in held and call_id in told.refused:
                faults.append(Fault("wrong", f"{key_of(call_id)} is there, and its caller was told that it is not"))
            if key_of(call_id) in held:
                at.epochs[call_id] = held[key_of(call_id)]
                model.follow(call)
            if call_id in made and made[call_id] != at.epochs.get(call_id):
                faults.append(Fault("lost", f"{key_of(call_id)} was acknowledged as epoch {made[call_id]}"))
        break
    return at, faults


def validate(hr: Headrace, at: Standing, rng: Random, thorough: bool) -> list[Fault]:
    """All faults of a home that was just opened."""
    # The clock goes on while this reads: what is compared is of one epoch.
    epoch = hr.epoch
    read_at = epoch if at.clock else None
    held = {name: rows(hr, name, read_at) for name in sorted(home_of(hr).core.catalog.relations)}
    faults = [*_epochs(hr, at, epoch), *_definitions(hr, at), *_tables(held, at), *_files(hr)]
    verdict = hr.verify()
    faults.extend(Fault("wrong", f"the judge: {one}") for one in verdict.differences[:3])
    for name, content in held.items():
        faults.extend(_changes(hr, name, content, epoch))
    for name in held if thorough else rng.sample(list(held), min(len(held), 1)):
        faults.extend(_base(hr, name))
    if not faults:
        faults.extend(_resend(hr, at, rng))
    return faults


def _epochs(hr: Headrace, at: Standing, newest: int) -> Iterator[Fault]:
    """No number is skipped or used twice, and each epoch has just the keys that it was acknowledged for."""
    oldest = home_of(hr).core.ledger.oldest
    heads = [head for head in home_of(hr).core.ledger.heads() if oldest < head.epoch <= newest]
    numbers = [head.epoch for head in heads]
    if numbers != list(range(oldest + 1, newest + 1)):
        yield Fault("wrong", f"after epoch {oldest} come the epochs {numbers}, not all up to {newest}")
    expected = at.keys
    if not at.clock and sorted(expected) != list(range(1, newest + 1)):
        yield Fault("duplicated", f"the home stands at epoch {newest}, but only {sorted(expected)} were made")
    seen: Counter[str] = Counter()
    for head in heads:
        keys = set(head.content.get("keys", {}))
        seen.update(keys)
        if keys != expected.get(head.epoch, set()):
            yield Fault("lost", f"epoch {head.epoch} has the keys {keys}, not {expected.get(head.epoch)}")
    for key, count in seen.items():
        if count > 1:
            yield Fault("duplicated", f"the key {key} is in {count} epochs")


def _definitions(hr: Headrace, at: Standing) -> Iterator[Fault]:
    found = {view.name: view.definition.sql for view in home_of(hr).core.catalog.views()}
    if found != at.model.views:
        yield Fault("wrong", f"the views are {found}, not {at.model.views}")
    if set(home_of(hr).core.catalog.sources) != at.model.sources:
        yield Fault(
            "lost", f"the sources are {sorted(home_of(hr).core.catalog.sources)}, not {sorted(at.model.sources)}"
        )
    tables = {table.name for table in home_of(hr).core.catalog.tables()}
    if tables != set(at.model.tables):
        yield Fault("wrong", f"the tables are {sorted(tables)}, not {sorted(at.model.tables)}")


def _tables(held: Mapping[str, Rows], at: Standing) -> Iterator[Fault]:
    for name, table in at.model.tables.items():
        found, expected = held.get(name, Counter()), table.rows()
        if missing := expected - found:
            yield Fault("lost", f"{missing.total()} rows of {name} are missing: {_some(missing)}")
        if extra := found - expected:
            yield Fault("duplicated", f"{extra.total()} rows of {name} are too many: {_some(extra)}")


def _files(hr: Headrace) -> Iterator[Fault]:
    # Ours and an outside reader's opinion of what is named must be the same: nothing else is there.
    # Between epochs and folds, because the clock goes on, and what they are about to commit has no name yet.
    with home_of(hr)._fold.held_off():
        found = home_of(hr).loop.between_epochs(
            lambda: {*home_of(hr).core.ledger.unreferenced(None), *orphans(home_of(hr).path)}
        )
    for path in sorted(found, key=str):
        yield Fault("orphaned", f"nothing names {name_below(home_of(hr).path, path)}")


def _changes(hr: Headrace, name: str, held: Rows, until: int) -> Iterator[Fault]:
    """A relation is the sum of its changes, on top of what it held when it was made or as long as epochs are kept."""
    begin = max(home_of(hr).core.ledger.oldest, home_of(hr).core.present.reset_at.get(name, 0))
    total = rows(hr, name, begin) if begin else Rows()
    for row in hr.changes(name, since=begin, until=until).to_pylist():
        values = tuple(value for column, value in row.items() if not column.startswith("_"))
        total[values] += -1 if row["_change_type"] in _GONE else 1
    if {values: count for values, count in total.items() if count} != held:
        yield Fault("wrong", f"the changes of {name} come to {_some(+total)}, it holds {_some(held)}")


def _base(hr: Headrace, name: str) -> Iterator[Fault]:
    path = base_path(home_of(hr).path, name)
    if not (path / "_delta_log").exists():
        return
    epoch, found = base_rows(path)
    if epoch < max(home_of(hr).core.ledger.oldest, home_of(hr).core.present.reset_at.get(name, 0)):
        return
    try:
        held = rows(hr, name, epoch)
    except EpochExpired:
        # A base may stand at an epoch that the log no longer tells of.
        return
    if found != held:
        yield Fault("wrong", f"the base of {name} at epoch {epoch} has {_some(found)}, the log {_some(held)}")


def _resend(hr: Headrace, at: Standing, rng: Random) -> Iterator[Fault]:
    """A key that was acknowledged, or came to be unseen, is answered with its epoch and makes no other."""
    sent = [call_id for call_id in at.calls if at.epochs.get(call_id, 0) > home_of(hr).core.ledger.oldest]
    for call_id in {*sent[-1:], *rng.sample(sent, min(len(sent), _RESENT))}:
        before = hr.epoch
        again = hr.apply(at.calls[call_id].changes, key=key_of(call_id)).epoch
        if again != at.epochs[call_id] or (hr.epoch != before and not at.clock):
            yield Fault("duplicated", f"{key_of(call_id)} sent again became epoch {again}, not {at.epochs[call_id]}")
            return


def rows(hr: Headrace, name: str, epoch: int | None = None) -> Rows:
    """What a relation holds."""
    return Counter(tuple(row.values()) for row in hr.query(f"SELECT * FROM {name}", epoch=epoch).to_pylist())


def _some(counted: Rows) -> str:
    shown = sorted(counted.elements(), key=repr)
    return f"{shown[:4]}{f' and {len(shown) - 4} more' if len(shown) > 4 else ''}"
