"""Batches made by hand, for tests of sinks: a small table of rows and what happens to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DecimalType, IntegerType, StringType, StructField, StructType

from headrace.feeds.batch import Batch, Mark, Operation
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
    **parts: Any,
) -> Batch:
    """Events as (operation, row) or (operation, row, old row), each an epoch of its own if nobody says."""
    numbers = parts.get("numbers") or range(first, first + len(events))
    parts.setdefault("after", Mark(numbers[-1], 1, numbers[-1]) if events else Mark(first, None, first - 1))
    parts.setdefault("epochs", list(numbers))
    return Batch(
        feed="f",
        table="items",
        columns=columns,
        key=key,
        first_sequence=first,
        operations=[event[0] for event in events],
        committed_at=[MOMENT] * len(events),
        rows=rows_of(columns, [event[1] for event in events]),
        old_rows=rows_of(columns, [event[2] if len(event) == 3 else None for event in events]),
        **parts,
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
