"""What must hold whenever a home is opened, however its last process ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from headrace.engine.fold import base_path
from headrace.errors import EpochExpired
from headrace.home import Headrace
from headrace.objects import name_below
from tests.checks.book import Check
from tests.checks.journal import Journal
from tests.checks.model import Action, Apply, Model
from tests.checks.storage import base_rows, orphans

Rows: TypeAlias = Counter[tuple[Any, ...]]
_RESENT = 2
_GONE = ("delete", "update_preimage")


@dataclass(frozen=True)
class Fault:
    """Something that does not hold: lost, duplicated, orphaned, or wrong in another way."""

    kind: str
    text: str


@dataclass(frozen=True)
class Standing:
    """What a home must hold, by the journal: each action made one epoch, in order."""

    actions: list[Action]
    model: Model
    upcoming: Action

    @property
    def epoch(self) -> int:
        return len(self.actions)


def key_of(number: int) -> str:
    """The idempotency key of an action."""
    return f"action-{number}"


def standing(check: Check, seed: int, count: int) -> Standing:
    """The first actions of a check, and what they come to."""
    actions: list[Action] = []
    for action, model in check.actions(seed):
        if len(actions) == count:
            return Standing(actions, model, action)
        actions.append(action)
    raise AssertionError("a check goes on forever")


def settle(hr: Headrace, check: Check, seed: int, journal: Journal) -> tuple[Standing, list[Fault]]:
    """Find out whether the call that was under way came to be; it is all there or not at all."""
    told = journal.read()
    faults: list[Fault] = []
    for number, epoch in enumerate(told.epochs):
        if epoch != number + 1:
            faults.append(Fault("wrong", f"action {number} was acknowledged as epoch {epoch}"))
    count = len(told.epochs)
    if hr.epoch < count:
        faults.append(Fault("lost", f"epoch {count} was acknowledged, the home stands at {hr.epoch}"))
    elif told.begun and hr.epoch == count + 1:
        journal.acknowledge(count, hr.epoch)
        count += 1
    elif hr.epoch > count:
        faults.append(Fault("duplicated", f"the home stands at epoch {hr.epoch}, but only {count} were made"))
    return standing(check, seed, count), faults


def validate(hr: Headrace, at: Standing, rng: Random, thorough: bool) -> list[Fault]:
    """All faults of a home that was just opened."""
    held = {name: rows(hr, name) for name in sorted(hr.catalog.relations)}
    faults = [*_epochs(hr, at), *_definitions(hr, at), *_tables(held, at), *_files(hr)]
    verdict = hr.verify()
    faults.extend(Fault("wrong", f"the judge: {one}") for one in verdict.differences[:3])
    for name, content in held.items():
        faults.extend(_changes(hr, name, content))
    for name in held if thorough else rng.sample(list(held), min(len(held), 1)):
        faults.extend(_base(hr, name))
    if not faults:
        faults.extend(_resend(hr, at, rng))
    return faults


def _epochs(hr: Headrace, at: Standing) -> Iterator[Fault]:
    """No number is skipped or used twice, and each epoch has just the key that it was acknowledged for."""
    oldest = hr.ledger.oldest
    heads = [head for head in hr.ledger.heads() if head.epoch > oldest]
    numbers = [head.epoch for head in heads]
    if numbers != list(range(oldest + 1, at.epoch + 1)):
        yield Fault("wrong", f"after epoch {oldest} come the epochs {numbers}, not all up to {at.epoch}")
    seen: Counter[str] = Counter()
    for head in heads:
        keys = list(head.content.get("keys", {}))
        seen.update(keys)
        sent = at.actions[head.epoch - 1] if 0 < head.epoch <= at.epoch else None
        expected = [key_of(head.epoch - 1)] if isinstance(sent, Apply) else []
        if keys != expected:
            yield Fault("lost", f"epoch {head.epoch} has the keys {keys}, not {expected}")
    for key, count in seen.items():
        if count > 1:
            yield Fault("duplicated", f"the key {key} is in {count} epochs")


def _definitions(hr: Headrace, at: Standing) -> Iterator[Fault]:
    found = {view.name: view.definition.sql for view in hr.catalog.views()}
    if found != at.model.views:
        yield Fault("wrong", f"the views are {found}, not {at.model.views}")
    if set(hr.catalog.sources) != at.model.sources:
        yield Fault("lost", f"the sources are {sorted(hr.catalog.sources)}, not {sorted(at.model.sources)}")
    tables = {table.name for table in hr.catalog.tables()}
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
    found = {*hr.ledger.unreferenced(None), *orphans(hr.path)}
    for path in sorted(found, key=str):
        yield Fault("orphaned", f"nothing names {name_below(hr.path, path)}")


def _changes(hr: Headrace, name: str, held: Rows) -> Iterator[Fault]:
    """A relation is the sum of its changes, on top of what it held at the oldest epoch that is kept."""
    oldest = hr.ledger.oldest
    total: Rows = Counter()
    if 0 < hr.reset_at.get(name, 0) <= oldest:
        total = rows(hr, name, oldest)
    for row in hr.changes(name, since=oldest).to_pylist():
        values = tuple(value for column, value in row.items() if not column.startswith("_"))
        total[values] += -1 if row["_change_type"] in _GONE else 1
    if {values: count for values, count in total.items() if count} != held:
        yield Fault("wrong", f"the changes of {name} come to {_some(+total)}, it holds {_some(held)}")


def _base(hr: Headrace, name: str) -> Iterator[Fault]:
    path = base_path(hr.path, name)
    if not (path / "_delta_log").exists():
        return
    epoch, found = base_rows(path)
    if epoch < max(hr.ledger.oldest, hr.reset_at.get(name, 0)):
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
    kept = range(hr.ledger.oldest, at.epoch)
    sent = [number for number in kept if isinstance(at.actions[number], Apply)]
    for number in {*sent[-1:], *rng.sample(sent, min(len(sent), _RESENT))}:
        action = at.actions[number]
        assert isinstance(action, Apply)
        again = hr.apply(action.changes, key=key_of(number)).epoch
        if again != number + 1 or hr.epoch != at.epoch:
            yield Fault("duplicated", f"action {number} sent again became epoch {again}, the home is at {hr.epoch}")
            return


def rows(hr: Headrace, name: str, epoch: int | None = None) -> Rows:
    """What a relation holds."""
    return Counter(tuple(row.values()) for row in hr.query(f"SELECT * FROM {name}", epoch=epoch).to_pylist())


def _some(counted: Rows) -> str:
    shown = sorted(counted.elements(), key=repr)
    return f"{shown[:4]}{f' and {len(shown) - 4} more' if len(shown) > 4 else ''}"
