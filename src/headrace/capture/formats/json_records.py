"""What all formats that are written as JSON have in common: tombstones, objects, and moments as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from headrace.capture.exact_json import read_record
from headrace.capture.messages import Message, Tombstone, Undecodable
from headrace.capture.record import Record
from headrace.capture.row_changes import deleted_key
from headrace.intake.reasons import BadValue, shown
from headrace.intake.table import TableContract
from headrace.intake.temporal import timestamp_converter


def decode_record(
    record: Record, table: TableContract | None, decode_json: Callable[[Any, Record], Message]
) -> Message:
    """What a record says, by what its value says as JSON; one without a value is a tombstone."""
    if record.value is None:
        return tombstone(record, table)
    return decode_json(read_record(record.value), record)


def tombstone(record: Record, table: TableContract | None) -> Tombstone:
    """A key without a value: it names a row by its columns, or by itself where the table's key is one column."""
    try:
        key = None if record.key is None else read_record(record.key)
    except Undecodable:
        return Tombstone()
    if table is None or key is None:
        return Tombstone()
    if isinstance(key, dict):
        declared = {name.lower(): name for name in table.schema.names}
        named = {declared.get(name.lower(), name): part for name, part in cast("dict[str, Any]", key).items()}
        return Tombstone(deleted_key(named, table))
    return Tombstone(deleted_key({table.key[0]: key}, table) if len(table.key) == 1 else ())


def object_of(value: Any, what: str) -> Mapping[str, Any]:
    """A value that must be an object."""
    if not isinstance(value, dict):
        raise Undecodable(f"{what} is no object, but {shown(value)}")
    return cast("dict[str, Any]", value)


def moment_of(value: Any) -> datetime | None:
    """The moment that a text tells, if it tells one."""
    try:
        return None if type(value) is not str else timestamp_converter()(value).astimezone(UTC)
    except (BadValue, OverflowError):
        return None
