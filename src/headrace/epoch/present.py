"""What a home is at its newest epoch, as one value: worked out before the epoch is committed, and shown after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace.catalog.catalog import Catalog
from headrace.epoch.receipt import Receipt
from headrace.state.delta import Delta
from headrace.state.store import Addition, Store


@dataclass(frozen=True, eq=False)
class Present:
    """The newest epoch, its relations, and when each store last changed and last began anew."""

    epoch: int = 0
    committed_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    catalog: Catalog = field(default_factory=Catalog)
    changed_at: Mapping[str, int] = field(default_factory=dict[str, int])
    reset_at: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, eq=False)
class Prepared:
    """All that an epoch changes in memory: whatever can fail has been done, only assignments are left."""

    present: Present
    additions: tuple[tuple[Store, Addition], ...]
    receipts: Mapping[str, Receipt]


def prepare(
    before: Present,
    now: datetime,
    head: Mapping[str, Any],
    deltas: Mapping[str, Delta],
    catalog: Catalog,
    stores: Iterable[Store],
) -> Prepared:
    """What follows from an epoch with this head and these deltas, over the stores of the catalog that it leaves."""
    epoch = before.epoch + 1
    by_name = {store.name: store for store in stores}
    changed = [(by_name[name], delta) for name, delta in deltas.items() if name in by_name and len(delta)]
    changed_at = {**before.changed_at, **{store.name: epoch for store, _ in changed}}
    reset_at = {**before.reset_at, **dict.fromkeys(head.get("reset", ()), epoch)}
    if catalog is not before.catalog:
        changed_at = {name: at for name, at in changed_at.items() if name in by_name}
        reset_at = {name: at for name, at in reset_at.items() if name in by_name}
    return Prepared(
        Present(epoch, now, catalog.recorded(epoch, head), changed_at, reset_at),
        tuple((store, store.prepare(delta)) for store, delta in changed),
        receipts_of(head),
    )


def receipts_of(head: Mapping[str, Any]) -> dict[str, Receipt]:
    """The receipts of the idempotency keys that an epoch used up, as its head keeps them."""
    digests = head.get("digests", {})
    return {key: Receipt.from_json(kept, digests.get(key, "")) for key, kept in head.get("keys", {}).items()}
