"""Which change of a batch it was that a view fails on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import ViewEvaluationError
from headrace.sources.intake import Decoded


def guilty_change(decoded: Decoded, error: ViewEvaluationError) -> tuple[str, int] | None:
    """Which change brought the row that a view fails on, if it was found."""
    if not isinstance(error.row, Mapping):
        return None
    row: Mapping[str, Any] = error.row
    wanted = {name.lower(): str(value) for name, value in row.items()}
    for table, changes in decoded.changes.items():
        for index in range(len(changes) - 1, -1, -1):
            if _is_of(changes[index], wanted):
                return table, index
    return None


def _is_of(change: object, wanted: Mapping[str, str]) -> bool:
    """Whether a change brings a row, as far as both tell: by the text of values, for their types may differ."""
    given: Mapping[str, Any] = next(iter(change.values()), {}) if isinstance(change, Mapping) else {}
    names = [name for name in given if name.lower() in wanted]
    return bool(names) and len(names) == len(given) and all(str(given[n]) == wanted[n.lower()] for n in names)
