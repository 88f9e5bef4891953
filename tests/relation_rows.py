"""The rows of a relation, read from its state without Spark."""

from __future__ import annotations

from typing import Any


def rows_of(hr: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows that a relation of an open home has, in a fixed order."""
    from headrace.face import home_of
    from headrace.json_forms import json_rows
    from headrace.state.repeat import repeat

    snapshot, schema = home_of(hr).core.relations()[name]
    held = snapshot.all()
    rows = json_rows(repeat(held.rows, held.weights).rename_columns(schema.names))
    return sorted(rows, key=lambda row: str(list(row.values())))
