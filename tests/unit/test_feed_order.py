"""Events of an epoch in an order that a sink with a key of its own can follow."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from headrace.feeds.cursor import change_events
from headrace.reading.history import EpochChanges


def test_of_a_relation_without_a_key_all_that_goes_is_told_before_what_comes() -> None:
    """A join that is updated is the old row gone and the new one come; by its own key a sink has one row of it."""
    count = 200
    rows = pa.table({"id": [*range(count)] * 2, "status": ["old"] * count + ["new"] * count})
    kinds = pa.array(["delete"] * count + ["insert"] * count)
    events = change_events(EpochChanges(5, datetime(2026, 1, 1, tzinfo=UTC), kinds, rows), [0, 1])
    assert events.operations.tolist() == ["DELETE"] * count + ["INSERT"] * count
    held: dict[int, str] = {}
    for operation, row in zip(events.operations, events.rows.to_pylist(), strict=True):
        if operation == "DELETE":
            held.pop(row["id"], None)
        else:
            held[row["id"]] = row["status"]
    assert held == dict.fromkeys(range(count), "new")
    again = change_events(
        EpochChanges(
            5, datetime(2026, 1, 1, tzinfo=UTC), kinds[::-1], rows.take(pa.array(range(2 * count - 1, -1, -1)))
        ),
        [0, 1],
    )
    assert again.rows.to_pylist() == events.rows.to_pylist()
