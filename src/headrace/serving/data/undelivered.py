"""What a table of PostgreSQL lacks of its relation: changes that a feed has not delivered yet, and parked events."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from fastapi.concurrency import run_in_threadpool

from headrace.catalog.catalog import PARKED, Catalog
from headrace.reading.following import Newest
from headrace.reading.held_rows import HeldRows
from headrace.reading.readings import Readings
from headrace.state.state import BEGIN


@dataclass(frozen=True)
class ParkedEvents:
    """How many events of a feed are parked, and a number that is another for other events."""

    count: int = 0
    digest: int = 0


@dataclass(frozen=True)
class _FirstChange:
    """When a relation first changed after an epoch, as far as its log up to another epoch says."""

    after: int
    until: int
    committed_at: datetime | None = None


_NONE = ParkedEvents()


class Undelivered:
    """Looks up what feeds have not delivered, once for each state of a feed, for the thousands who ask in a second."""

    def __init__(self) -> None:
        self._changes: dict[str, _FirstChange] = {}
        self._parked_at: tuple[int, Catalog] | None = None
        self._parked: dict[str, ParkedEvents] = {}

    async def lag(self, readings: Readings, newest: Newest, name: str, epoch: int) -> float:
        """Return the age in seconds of a relation's first change after an epoch; 0 if it has not changed since."""
        if epoch >= newest.changed_at:
            return 0.0
        known = self._changes.get(name)
        if known is None or known.after != epoch:
            known = _FirstChange(epoch, epoch)
        if known.committed_at is None and known.until < newest.epoch:
            at = readings.following.first_change(name, known.until, reads=False)
            if at is None:
                at = await run_in_threadpool(readings.following.first_change, name, known.until)
            known = self._changes[name] = _FirstChange(epoch, newest.epoch, at)
        return 0.0 if known.committed_at is None else max(time.time() - known.committed_at.timestamp(), 0.0)

    async def parked(self, readings: Readings, feed_id: str) -> ParkedEvents:
        """Return the parked events of a feed."""
        catalog = readings.catalog
        if PARKED not in catalog.relations:
            return _NONE
        newest = readings.newest_of(PARKED)
        # A table of an earlier release has the names of feeds, whose ids are in the catalog.
        if self._parked_at is None or self._parked_at[0] != newest.changed_at or self._parked_at[1] is not catalog:
            found = await run_in_threadpool(_parked_of, readings, newest)
            self._parked_at, self._parked = (newest.changed_at, catalog), found
        return self._parked.get(feed_id, _NONE)


def _parked_of(readings: Readings, newest: Newest) -> dict[str, ParkedEvents]:
    """Return the parked events of each feed, by its id."""
    relation, content = newest.relation, newest.content
    if relation is None or content is None:
        return {}
    names = relation.schema.names
    rows = HeldRows(content, names).piece(BEGIN, content.count + 1).rows
    by = "feed_id" if "feed_id" in names else "feed"
    feeds, numbers = (rows.column(name).to_numpy() for name in (by, "sequence"))
    found: dict[str, ParkedEvents] = {}
    for one in set(feeds.tolist()):
        parked = numbers[feeds == one]
        feed = readings.catalog.feeds.get(one) if by == "feed" else None
        found[feed.id if feed else one] = ParkedEvents(len(parked), int(np.bitwise_xor.reduce(parked)))
    return found
