"""Bringing a home that is open for reading to the newest epoch of its ledger, which another process writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.epoch.core import Core
from headrace.epoch.present import Prepared, receipts_of
from headrace.epoch.receipt import Receipt
from headrace.ledger.ledger import Entry, Head, summed

# What the head of an epoch may hold that leaves every relation what it was.
_OF_ROWS = {"keys", "digests", "sources", "drop_sources", "feeds", "drop_feeds"}


def newer_heads(core: Core) -> Sequence[Head]:
    """The epochs that the ledger has, as it was last read, and the home has not."""
    return [head for head in core.ledger.heads() if head.epoch > core.epoch]


def changes_rows_alone(heads: Sequence[Head]) -> bool:
    """Whether no relation was defined, changed or dropped in these epochs."""
    return all(head.content.keys() <= _OF_ROWS for head in heads)


def can_catch_up(core: Core, heads: Sequence[Head]) -> bool:
    """Whether the log alone leads to these epochs: nothing was defined in them, and it reaches back far enough."""
    ledger = core.ledger
    return core.epoch >= max(ledger.oldest, ledger.compacted) and changes_rows_alone(heads)


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
    catalog, receipts = present.catalog, dict[str, Receipt]()
    for head in heads:
        catalog = catalog.recorded(head.epoch, head.content)
        # Who takes the home over must know every call that the owner before it acknowledged.
        receipts.update(receipts_of(head.content))
    after = replace(
        present, epoch=heads[-1].epoch, committed_at=heads[-1].committed_at, catalog=catalog, changed_at=changed_at
    )
    return Prepared(after, additions, receipts)
