"""Which row a view's expression failed on: halving the change until one row is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.engine.catalog import Table
from headrace.engine.work import Work
from headrace.errors import ViewEvaluationError
from headrace.state.delta import Delta
from headrace.state.store import take

_TRIES = 24


def guilty_row(table: Table, change: Delta, try_change: Callable[[Delta], Work], view: str) -> dict[str, Any] | None:
    """The new row that alone makes the view fail, or None if no single row does."""
    suspects = take(change, np.flatnonzero(change.weights > 0))
    tries = 0
    while len(suspects) > 1 and tries < _TRIES:
        tries += 1
        half = len(suspects) // 2
        first, second = np.arange(half), np.arange(half, len(suspects))
        suspects = take(suspects, first if _fails(try_change, take(suspects, first), view) else second)
    if len(suspects) != 1 or not _fails(try_change, suspects, view):
        return None
    (row,) = suspects.rows.rename_columns(table.schema.names).to_pylist()
    return row


def _fails(try_change: Callable[[Delta], Work], change: Delta, view: str) -> bool:
    try:
        try_change(change)
    except ViewEvaluationError as error:
        return error.view == view
    return False
