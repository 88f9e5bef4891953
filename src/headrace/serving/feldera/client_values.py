"""Values as the client writes them where our intake wants another form.

It writes a Python Decimal as text, also for a column of floating point; pandas writes a date or a timestamp as
milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow.types as types

from headrace.catalog.catalog import Table
from headrace.intake.arrow import table_schema
from headrace.intake.numeric import NUMBER_TEXT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000

# From a value of the type that the client writes to the one that our intake reads, by column in lower case.
_Readers = Mapping[str, tuple[type, Callable[[Any], object]]]


def from_client(changes: Sequence[object], table: Table, *, pandas: bool) -> list[object]:
    """The same changes in our forms; what cannot be read stays as it is, for the contract to judge."""
    readers = _readers(table, pandas=pandas)
    return [_change(change, readers) for change in changes] if readers else list(changes)


def _change(change: object, readers: _Readers) -> object:
    if not isinstance(change, dict):
        return change
    return {kind: _row(row, readers) for kind, row in cast("dict[str, object]", change).items()}


def _row(row: object, readers: _Readers) -> object:
    if not isinstance(row, dict):
        return row
    read = dict(cast("dict[str, Any]", row))
    for name, value in read.items():
        found = readers.get(name.lower())
        if found is not None and type(value) is found[0]:
            read[name] = found[1](value)
    return read


def _readers(table: Table, *, pandas: bool) -> _Readers:
    found: dict[str, tuple[type, Callable[[Any], object]]] = {}
    for field in table_schema(table.schema):
        if types.is_floating(field.type):
            found[field.name.lower()] = str, _number
        elif pandas and types.is_timestamp(field.type):
            found[field.name.lower()] = int, _moment if field.type.tz else _local_moment
        elif pandas and types.is_date(field.type):
            found[field.name.lower()] = int, _day
    return found


def _number(text: str) -> object:
    return Decimal(text) if NUMBER_TEXT.fullmatch(text) else text


def _moment(milliseconds: int) -> object:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


def _local_moment(milliseconds: int) -> object:
    moment = _moment(milliseconds)
    return moment.replace(tzinfo=None) if isinstance(moment, datetime) else moment


def _day(milliseconds: int) -> object:
    """A date; one that is not at midnight stays a moment, which the contract refuses."""
    moment = _moment(milliseconds)
    return moment.date() if isinstance(moment, datetime) and milliseconds % _DAY == 0 else moment
