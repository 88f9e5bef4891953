"""Batches of events as the runner of a feed makes them, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.feeds.batch import Batch, EventForm, Mark, Operation, null_rows
from headrace.feeds.sink import Target

COLUMNS = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
_ARROW = pa.schema([("id", pa.int64()), ("name", pa.string())])
_AT = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)

Event = tuple[Operation, int, str | None]


def target(location: str, feed_id: str = "f1", fence: int = 0, **options: Any) -> Target:
    """A feed called `parts_out` of a table `parts` (id, name) into a sink."""
    return Target("parts_out", feed_id, location, options, "parts", COLUMNS, ("id",), True, fence)


def batch(events: Sequence[Event], first: int = 1, epoch: int | None = None) -> Batch:
    """A batch of (operation, id, name), each in an epoch of its own unless one is told."""
    rows = [{"id": number, "name": name} for _, number, name in events]
    epochs = [first + index if epoch is None else epoch for index in range(len(events))]
    return Batch(
        operations=np.array([operation for operation, _, _ in events], dtype=object),
        epochs=np.array(epochs),
        committed_at=np.array([_AT + timedelta(seconds=number) for number in epochs], dtype=object),
        places=np.ones(len(events), np.int64) if epoch is None else np.arange(1, len(events) + 1),
        rows=pa.Table.from_pylist(rows, _ARROW),
        old_rows=null_rows(_ARROW, len(rows)),
        form=EventForm("parts_out", "parts", COLUMNS, ("id",)),
        sequences=range(first, first + len(events)),
        after=Mark(epochs[-1], 1 if epoch is None else len(events), first + len(events) - 1),
    )


def inserts(first: int, count: int, keys: int = 1_000_000) -> Batch:
    """So many events from a number on; keys repeat after so many."""
    return batch([("INSERT", number % keys, f"row {number}") for number in range(first, first + count)], first)


def with_gaps(whole: Batch, missing: Sequence[int], after: Mark) -> Batch:
    """A batch without some events, which wait for an earlier one."""
    kept = [index for index, number in enumerate(whole.sequences) if number not in missing]
    return replace(whole.part(np.array(kept)), after=after)


def reset(number: int) -> Batch:
    """The batch that says that a relation is another from here on."""
    return replace(batch([("RESET", 0, None)], number), rows=null_rows(_ARROW, 1))
