"""Events of a feed, many at once: what a sink is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal

import pyarrow as pa
from pyspark.sql.types import StructType

# A RESET is alone in its batch, has no row (NULL in all columns) and no key: the relation is another from here on. Only
# a delivery with `tells_resets = True` is given one.
Operation = Literal["INSERT", "UPDATE", "DELETE", "RESET"]


@dataclass(frozen=True, order=True)
class Mark:
    """How far a feed is: all up to an event of an epoch is told; `event` counts those of the epoch, from 1.

    What a filter leaves out is counted too, so that another filter changes no mark. `sequence` is the number of the
    last event that was told, of all that the feed ever had. A mark of an epoch that is told whole has the next epoch's
    number less one and all its events: marks are ordered as events are. Rows of a scan are events of the epoch that it
    reads. One whose `event` is 0 is past all of its epoch, unless that is being scanned.
    """

    epoch: int
    event: int
    sequence: int


NOWHERE = Mark(0, 0, 0)


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
            return Mark(self.epochs[index] - 1, 0, self.sequences[index] - 1)
        return Mark(self.epochs[index], place - 1, self.sequences[index] - 1)
