"""Literals such as TIMESTAMP 'now': Spark turns them into the time at which it reads the text, whatever asks later."""

from __future__ import annotations

from itertools import pairwise

from headrace.errors import ViewError
from headrace.sql.tokens import scan, string_value

_TYPES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
_TIMES = frozenset({"now", "today", "tomorrow", "yesterday"})


def refuse_fixed_times(name: str, sql: str, line: int, column: int) -> None:
    """Refuse a view whose text names a time that would stand still, and be another one in the judge's recompute."""
    for word, text in pairwise(scan(sql)):
        if word.keyword not in _TYPES or text.kind != "string":
            continue
        value = string_value(text).strip().lower()
        if value in _TIMES:
            error = ViewError(
                f"view {name} uses {word.text} '{value}', which Spark turns into a constant when it reads the query",
                detail="The view would stand still at the time at which it was defined.",
                hint="write now() or current_date(), which follow the epoch's clock",
            )
            error.met_at(line + word.line - 1, word.column + (column - 1 if word.line == 1 else 0))
            raise error
