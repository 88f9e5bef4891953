"""What pandas writes where a table wants a date or a timestamp: milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pyarrow.types as types

from headrace.engine.catalog import Table
from headrace.intake.arrow import arrow_schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000


def from_pandas(changes: Sequence[object], table: Table) -> list[object]:
    """The same changes with dates and timestamps; what is no number stays as it is, for the contract to judge."""
    read = _readers(table)
    return [_change(change, read) for change in changes] if read else list(changes)


def _change(change: object, read: Mapping[str, Callable[[int], object]]) -> object:
    if not isinstance(change, dict):
        return change
    return {kind: _row(row, read) for kind, row in cast("dict[str, object]", change).items()}


def _row(row: object, read: Mapping[str, Callable[[int], object]]) -> object:
    if not isinstance(row, dict):
        return row
    named = cast("dict[str, Any]", row)
    return {name: read[key](v) if type(v) is int and (key := name.lower()) in read else v for name, v in named.items()}


def _readers(table: Table) -> dict[str, Callable[[int], object]]:
    found: dict[str, Callable[[int], object]] = {}
    for field in arrow_schema(table.schema):
        if types.is_timestamp(field.type):
            found[field.name.lower()] = _moment if field.type.tz else lambda ms: _without_zone(_moment(ms))
        elif types.is_date(field.type):
            found[field.name.lower()] = _day
    return found


def _moment(milliseconds: int) -> object:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


def _without_zone(moment: object) -> object:
    return moment.replace(tzinfo=None) if isinstance(moment, datetime) else moment


def _day(milliseconds: int) -> object:
    """A date; one that is not at midnight stays a moment, which the contract refuses."""
    moment = _moment(milliseconds)
    return moment.date() if isinstance(moment, datetime) and milliseconds % _DAY == 0 else moment
