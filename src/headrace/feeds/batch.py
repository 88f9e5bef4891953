"""Events of a feed, many at once: what a sink is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Literal

import pyarrow as pa
from pyspark.sql.types import StructType

Operation = Literal["INSERT", "UPDATE", "DELETE"]


@dataclass(frozen=True, order=True)
class Mark:
    """How far a feed is: all up to an event of an epoch is told; `event` counts those of the epoch, from 1.

    `sequence` is the number of the last event that was told, of all that the feed ever had. A mark of an epoch that is
    told whole has the next epoch's number less one and all its events: marks are ordered as events are.
    """

    epoch: int
    event: int
    sequence: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Events in the order of their sequence, without a gap; at most one of a key and epoch."""

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
    # Where the feed is once all of these are told.
    after: Mark
    include_old_values: bool = False
    # Rows of an initial scan or of a scan after a reset, rather than changes.
    scan: bool = False
    envelope: Literal["ours", "wrapped", "debezium"] = "ours"
    # What feeds/json_events.py makes of it, once.
    made: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]], repr=False)

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def sequences(self) -> range:
        """The number of each event."""
        return range(self.first_sequence, self.first_sequence + len(self.operations))
