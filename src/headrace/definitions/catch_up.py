"""Bringing a home that is open for reading to the newest epoch of its ledger, which another process writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.epoch.core import Core
from headrace.epoch.present import Prepared
from headrace.ledger.ledger import Entry, Head, summed

# What the head of an epoch may hold that changes rows alone.
_OF_ROWS = {"keys", "digests"}


def newer_heads(core: Core) -> Sequence[Head]:
    """The epochs that the ledger has, as it was last read, and the home has not."""
    return [head for head in core.ledger.heads() if head.epoch > core.epoch]


def can_catch_up(core: Core, heads: Sequence[Head]) -> bool:
    """Whether the log alone leads to these epochs: nothing was defined in them, and it reaches back far enough."""
    ledger = core.ledger
    return core.epoch >= max(ledger.oldest, ledger.compacted) and all(head.content.keys() <= _OF_ROWS for head in heads)


def catch_up(core: Core, heads: Sequence[Head]) -> Prepared:
    """What the home is after these epochs: what every store gets, worked out and not yet shown."""
    present = core.present
    stores = {store.name: store for store in core.all_stores()}
    entries: dict[str, list[Entry]] = {}
    for entry in core.ledger.entries_after(dict.fromkeys(stores, core.epoch)):
        entries.setdefault(entry.relation, []).append(entry)
    additions = tuple(
        (stores[name], stores[name].prepare(summed(stores[name].schema, log))) for name, log in entries.items()
    )
    changed_at = {**present.changed_at, **{name: log[-1].epoch for name, log in entries.items()}}
    after = replace(present, epoch=heads[-1].epoch, committed_at=heads[-1].committed_at, changed_at=changed_at)
    return Prepared(after, additions, {})
