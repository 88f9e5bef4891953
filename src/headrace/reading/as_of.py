"""Which epoch a query reads: the newest, one that is named, or the one of a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from headrace.errors import QueryError
from headrace.reading.history import GoOn, always
from headrace.reading.queries import Relations
from headrace.reading.readings import Readings
from headrace.sql.syntax import Query

# More than any epoch has.
_DIGITS = 18


def relations_of(
    home: Readings, query: Query, epoch: int | None, evaluate: Callable[[str], pa.Table], go_on: GoOn = always
) -> tuple[int, Relations]:
    """The epoch that a query reads and all relations at it; `evaluate` runs a query that names none.

    Where those of an earlier epoch are worked out, `go_on` is asked now and then.
    """
    wanted = {_epoch_of(home, travel.kind, travel.expression, evaluate) for travel in query.time_travel}
    if epoch is not None:
        wanted.add(epoch)
    if len(wanted) > 1:
        raise QueryError(
            "one query reads one epoch",
            detail=f"It names the epochs {', '.join(str(one) for one in sorted(wanted))}.",
            hint="ask for each epoch in a query of its own",
        )
    if wanted:
        read = wanted.pop()
        _refuse_undated(home, query, read, epoch)
        return read, home.relations_at(read, go_on)
    return home.newest()


def _refuse_undated(home: Readings, query: Query, read: int, epoch: int | None) -> None:
    """Refuse to read relations of several epochs, as AS OF after only some of their names would ask for."""
    newest, relations = home.newest()
    others = [name for name in query.undated if name in relations]
    if others and epoch is None and read != newest:
        raise QueryError(
            "one query reads one epoch",
            detail=f"It names epoch {read} for some of its relations, and none for {', '.join(others)}.",
            hint="put AS OF at the very end, where it is for all of them, or ask for each epoch in a query of its own",
        )


def _epoch_of(home: Readings, kind: str, expression: str, evaluate: Callable[[str], pa.Table]) -> int:
    if kind == "version" and _is_number(expression):
        return int(expression)
    value: Any = evaluate(f"SELECT {expression} AS x").column(0)[0].as_py()
    if kind == "version":
        if type(value) is int or (isinstance(value, str) and _is_number(value)):
            return int(value)
        raise QueryError(
            "VERSION AS OF needs the number of an epoch",
            detail=f"It is given {value!r}.",
            hint="write VERSION AS OF 12",
        )
    if type(value) is date:
        value = datetime(value.year, value.month, value.day)
    elif isinstance(value, str):
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise QueryError(
            "TIMESTAMP AS OF needs a time",
            detail=f"It is given {value!r}.",
            hint="write TIMESTAMP AS OF '2026-01-31 12:00:00'",
        )
    return home.epoch_at(value if value.tzinfo else value.replace(tzinfo=UTC))


def _is_number(text: str) -> bool:
    """Whether a text is the number of an epoch; Python refuses to read one of thousands of digits."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS
