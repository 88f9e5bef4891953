"""Batches made by hand, for tests of sinks: a small table of rows and what happens to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import DecimalType, IntegerType, StringType, StructField, StructType

from headrace.feeds.batch import Batch, EventForm, Mark, Operation
from headrace.feeds.cursor import change_events
from headrace.feeds.sink import Target
from headrace.reading.history import EpochChanges
from headrace.state.arrow_types import arrow_type
from headrace.state.change_images import change_images
from headrace.state.delta import weights_of

Row = Mapping[str, Any]
ITEMS = StructType(
    [
        StructField("id", IntegerType(), False),
        StructField("name", StringType()),
        StructField("price", DecimalType(10, 2)),
    ]
)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def rows_of(columns: StructType, rows: Iterable[Row | None]) -> pa.Table:
    """Rows as a batch has them; NULL in all columns where there is none."""
    given = [row or {} for row in rows]
    arrays = [pa.array([row.get(one.name) for row in given], arrow_type(one.dataType)) for one in columns.fields]
    return pa.table(arrays, names=columns.names)


def batch_of(
    events: Sequence[tuple[Operation, Row] | tuple[Operation, Row, Row]],
    first: int = 1,
    columns: StructType = ITEMS,
    key: tuple[str, ...] = ("id",),
    *,
    numbers: Sequence[int] = (),
    epochs: Sequence[int] = (),
    after: Mark | None = None,
    scan: bool = False,
) -> Batch:
    """Events as (operation, row) or (operation, row, old row), each an epoch of its own if nobody says."""
    numbers = numbers or range(first, first + len(events))
    epochs = epochs or numbers
    last = Mark(numbers[-1], 1, numbers[-1]) if events else Mark(first, None, first - 1)
    return Batch(
        operations=np.array([event[0] for event in events], dtype=object),
        epochs=np.array(epochs, dtype=np.int64),
        committed_at=np.full(len(events), MOMENT, dtype=object),
        places=places_in(epochs),
        rows=rows_of(columns, [event[1] for event in events]),
        old_rows=rows_of(columns, [event[2] if len(event) == 3 else None for event in events]),
        scan=scan,
        form=EventForm("f", "items", columns, key),
        sequences=numbers,
        after=after or last,
    )


def changes_between(
    before: Iterable[Row], after: Iterable[Row], own_key: Sequence[str], key: Sequence[str], columns: StructType = ITEMS
) -> list[tuple[Operation, Row, Row]]:
    """The events, by a key, of an epoch that changes a relation with a key of its own, or with none."""
    old, new = list(before), list(after)
    changed = [(row, -1) for row in old if row not in new] + [(row, 1) for row in new if row not in old]
    rows = rows_of(columns, [row for row, _ in changed])
    own, by = ([columns.names.index(name) for name in names] for names in (own_key, key))
    positions, kinds = change_images(rows, weights_of([weight for _, weight in changed]), own)
    events = change_events(EpochChanges(1, MOMENT, kinds, rows.take(pa.array(positions))), by)
    return list(zip(events.operations.tolist(), events.rows.to_pylist(), events.old_rows.to_pylist(), strict=True))


def places_in(epochs: Sequence[int]) -> npt.NDArray[np.int64]:
    """The places of events in their epochs, of which no earlier event is left out."""
    counts = Counter[int]()
    places: list[int] = []
    for epoch in epochs:
        counts[epoch] += 1
        places.append(counts[epoch])
    return np.array(places, dtype=np.int64)


def target_of(location: str, columns: StructType = ITEMS, **parts: Any) -> Target:
    """What a statement says; options and whatever else by name."""
    given = {
        "feed": "f",
        "feed_id": "id-of-f",
        "table": "items",
        "key": ("id",),
        "has_key": True,
        "options": {},
        **parts,
    }
    return Target(location=location, columns=columns, **given)
