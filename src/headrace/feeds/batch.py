"""Events of a feed, many at once, and batches of them: what a sink is given."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import total_ordering
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.state.delta import Positions

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
class Events:
    """Events in order; at most one of a key and epoch, but for rows that repeat without a key."""

    operations: npt.NDArray[np.object_]
    # Of each event: the epoch, the time of its commit, and the place among all events of the epoch, from 1.
    epochs: npt.NDArray[np.int64]
    committed_at: npt.NDArray[np.object_]
    places: npt.NDArray[np.int64]
    # The new rows, and of a DELETE the row that is gone; the old rows of an UPDATE or DELETE, NULL in all columns else.
    rows: pa.Table
    old_rows: pa.Table
    # Rows of an initial scan or of a scan after a reset, rather than changes.
    scan: bool = False

    @staticmethod
    def of_epoch(
        epoch: int, committed_at: datetime, operations: npt.ArrayLike, rows: pa.Table, old_rows: pa.Table | None = None
    ) -> Events:
        """Return the events of an epoch from its first event on, with an operation for each or one for all."""
        count = rows.num_rows
        return Events(
            np.full(count, operations, dtype=object),
            np.full(count, epoch, dtype=np.int64),
            np.full(count, committed_at, dtype=object),
            np.arange(1, count + 1),
            rows,
            null_rows(rows.schema, count) if old_rows is None else old_rows,
        )

    @staticmethod
    def concatenate(parts: Sequence[Events]) -> Events:
        """Return events one after the other: all of them changes, or all rows of a scan."""
        if len(parts) == 1:
            return parts[0]
        return Events(
            np.concatenate([one.operations for one in parts]),
            np.concatenate([one.epochs for one in parts]),
            np.concatenate([one.committed_at for one in parts]),
            np.concatenate([one.places for one in parts]),
            pa.concat_tables([one.rows for one in parts]).combine_chunks(),
            pa.concat_tables([one.old_rows for one in parts]).combine_chunks(),
            parts[0].scan,
        )

    def __len__(self) -> int:
        return len(self.operations)

    @property
    def event_bytes(self) -> int:
        """Return the bytes of an event on average."""
        return max(1, (self.rows.nbytes + self.old_rows.nbytes) // max(1, len(self)))

    def part(self, chosen: slice | Positions) -> Self:
        """Return events that follow each other, without a copy of them, or the events at some positions."""
        rows, old_rows = (
            table[chosen] if isinstance(chosen, slice) else table.take(pa.array(chosen))
            for table in (self.rows, self.old_rows)
        )
        return replace(
            self,
            operations=self.operations[chosen],
            epochs=self.epochs[chosen],
            committed_at=self.committed_at[chosen],
            places=self.places[chosen],
            rows=rows,
            old_rows=old_rows,
        )


def null_rows(schema: pa.Schema, count: int) -> pa.Table:
    """Return rows that are NULL in all columns."""
    fields = [one.with_nullable(True) for one in schema]
    return pa.table([pa.nulls(count, one.type) for one in fields], schema=pa.schema(fields))


@dataclass(frozen=True)
class EventForm:
    """The properties that all events of a feed share: names, columns and key, and their form as JSON."""

    feed: str
    table: str
    columns: StructType
    # The columns of the primary or derived key; all columns where a relation has none.
    key: tuple[str, ...]
    include_old_values: bool = False
    envelope: Literal["ours", "wrapped", "debezium"] = "ours"


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch(Events):
    """Events with their numbers, in the order of these.

    There is a gap only where events wait for an earlier one of their key that the sink refused: so `sequences`, and
    never the first number plus an index, tells the number of an event.
    """

    form: EventForm
    sequences: Sequence[int]
    # The position of the feed once all of these are delivered; as long as refused events wait, before the first of
    # them. A sink that stores a position stores this one, or, where it refuses events itself, `mark_without` those.
    after: Mark
    # What feeds/json_events.py makes of it, once.
    made: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]], repr=False)

    @staticmethod
    def of(form: EventForm, events: Events, after: Mark) -> Batch:
        """Return events as a batch, the last one with the number of the position after it."""
        sequences = range(after.sequence - len(events) + 1, after.sequence + 1)
        return Batch(**vars(events), form=form, sequences=sequences, after=after)

    @property
    def columns(self) -> StructType:
        """Return the columns of the relation."""
        return self.form.columns

    @property
    def key(self) -> tuple[str, ...]:
        """Return the columns of the key."""
        return self.form.key

    def part(self, chosen: slice | Positions) -> Self:
        """Return some of the events with their numbers and their texts."""
        indexes = range(len(self))[chosen] if isinstance(chosen, slice) else chosen.tolist()
        return replace(
            super().part(chosen),
            sequences=[self.sequences[one] for one in indexes],
            made={name: [texts[one] for one in indexes] for name, texts in self.made.items()},
        )

    def mark_before(self, index: int) -> Mark:
        """Return the position of a feed that has delivered all before an event of this batch."""
        epoch, place, sequence = int(self.epochs[index]), int(self.places[index]), self.sequences[index]
        if place == 1 and not self.scan:
            return Mark(epoch - 1, None, sequence - 1)
        return Mark(epoch, place - 1, sequence - 1)

    def mark_without(self, refused: Collection[int]) -> Mark:
        """Return the position after the batch if some of its events are refused."""
        return min(self.after, self.mark_before(min(refused))) if refused else self.after
