"""Which row a view's expression failed on: halving the change until one row is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.catalog.catalog import Catalog, Table
from headrace.epoch.work import Work
from headrace.errors import ViewEvaluationError, WorkFailed
from headrace.state.delta import Delta, gather

_TRIES = 24

# Works out all views over one table's change, and raises what they raise.
Try = Callable[[str, Delta], None]


def with_guilty_row(error: ViewEvaluationError, failed: Work, catalog: Catalog, try_change: Try) -> ViewEvaluationError:
    """The error with the row that caused it, where one can be found in what the failed work was given."""
    for table in catalog.tables():
        change = failed.delta_of(table.name)
        # Halving a backfill would take as long as the backfill itself.
        if not 0 < len(change) <= failed.bound:
            continue
        try:
            row = _guilty_row(table, change, try_change, error.view)
        except WorkFailed:
            # The view's fault is known all the same; the machine would not say of which row.
            return error
        if row is not None:
            return ViewEvaluationError(
                error.message,
                view=error.view,
                expression=error.expression,
                row=row,
                detail=f"{error.detail} The row is {row!r} of table {table.name}.",
                hint=error.hint,
            )
    return error


def _guilty_row(table: Table, change: Delta, try_change: Try, view: str) -> dict[str, Any] | None:
    """The new row that alone makes the view fail, or None if no single row does."""

    def fails(suspects: Delta) -> bool:
        try:
            try_change(table.name, suspects)
        except ViewEvaluationError as error:
            return error.view == view
        return False

    suspects = gather(change, np.flatnonzero(change.weights > 0))
    tries = 0
    while len(suspects) > 1 and tries < _TRIES:
        tries += 1
        half = len(suspects) // 2
        first, second = np.arange(half), np.arange(half, len(suspects))
        suspects = gather(suspects, first if fails(gather(suspects, first)) else second)
    if len(suspects) != 1 or not fails(suspects):
        return None
    (row,) = suspects.rows.rename_columns(table.schema.names).to_pylist()
    return row
