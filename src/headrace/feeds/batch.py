"""Events of a feed, many at once: what a sink is given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, total_ordering
from typing import Literal

import pyarrow as pa
from pyspark.sql.types import StructType

# A RESET is alone in its batch, has no row (NULL in all columns) and no key: the relation is another from here on. Only
# a delivery with `tells_resets = True` is given one.
Operation = Literal["INSERT", "UPDATE", "DELETE", "RESET"]


@total_ordering
@dataclass(frozen=True)
class Mark:
    """The position of a feed: the last epoch, how many of its events are delivered, and the last event's number.

    `event` is None where the epoch is delivered whole. Otherwise it counts the delivered events of the epoch, or the
    rows of the scan that reads the epoch. Events that a filter leaves out are counted too, so that another filter
    changes no position. `sequence` only rises, also where all rows are delivered again.
    """

    epoch: int
    event: int | None
    sequence: int

    def __lt__(self, other: Mark) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, int, float]:
        return self.sequence, self.epoch, math.inf if self.event is None else self.event

    @property
    def stored_event(self) -> int:
        """Return `event` as sinks store it: 0 for a whole epoch."""
        return self.event or 0

    @property
    def stored_fields(self) -> dict[str, int]:
        """Return the position as sinks store it."""
        return {"epoch": self.epoch, "event": self.stored_event, "sequence": self.sequence}

    @staticmethod
    def stored(epoch: int, event: int, sequence: int) -> Mark:
        """Return the position that a sink has stored."""
        return Mark(epoch, event or None, sequence)


NOWHERE = Mark(0, None, 0)


@dataclass(frozen=True, eq=False)
class Batch:
    """Events in the order of their sequence; at most one of a key and epoch, but for rows that repeat without a key.

    There is a gap only where events wait for an earlier one of their key that the sink refused: so `sequences`, and
    never `first_sequence` plus an index, tells the number of an event.
    """

    feed: str
    table: str
    columns: StructType
    # The columns of the primary or derived key; all columns where a relation has none.
    key: tuple[str, ...]
    first_sequence: int
    operations: Sequence[Operation]
    # Of each event: the epoch, and when that was committed.
    epochs: Sequence[int]
    committed_at: Sequence[datetime]
    # The new rows, and of a DELETE the row that is gone; the old rows of an UPDATE or DELETE, NULL in all columns else.
    rows: pa.Table
    old_rows: pa.Table
    # Where the feed is once all of these are told; as long as refused events wait, before the first of them. One that
    # keeps a mark keeps this one, or, where it refuses events itself, `mark_before` the first of those.
    after: Mark
    include_old_values: bool = False
    # Rows of an initial scan or of a scan after a reset, rather than changes.
    scan: bool = False
    envelope: Literal["ours", "wrapped", "debezium"] = "ours"
    # What feeds/json_events.py makes of it, once.
    made: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]], repr=False)
    # The number of each event, where they have gaps; and its place among those of its epoch, from 1.
    numbers: Sequence[int] | None = None
    places: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def sequences(self) -> Sequence[int]:
        """The number of each event."""
        return range(self.first_sequence, self.first_sequence + len(self)) if self.numbers is None else self.numbers

    def mark_before(self, index: int) -> Mark:
        """Where a feed is that has told all before an event of this batch."""
        if self.places is not None:
            place = self.places[index]
        else:
            place = 1 + sum(epoch == self.epochs[index] for epoch in self.epochs[:index])
        if place == 1 and not self.scan:
            return Mark(self.epochs[index] - 1, None, self.sequences[index] - 1)
        return Mark(self.epochs[index], place - 1, self.sequences[index] - 1)
