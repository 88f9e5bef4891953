"""Rows without any wrapping: each is inserted, and of a table with a key replaces the row of its key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from headrace.capture.formats.json_records import decode_record
from headrace.capture.messages import Message, RowChange, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.intake.reasons import shown
from headrace.intake.table import TableContract


def changes_of(value: Any) -> Sequence[Any]:
    """The changes of one value: its insert."""
    return ({"insert": value},)


class Raw:
    """Reads the records of one table; a tombstone deletes the row that its key names."""

    def __init__(self, table: TableContract | None) -> None:
        self._table = table

    def decode(self, record: Record) -> Message:
        """What a record says."""
        return decode_record(record, self._table, self.decode_json)

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        if not isinstance(value, dict):
            raise Undecodable(f"a row is an object by column name, not {shown(value)}")
        row = cast("dict[str, Any]", value)
        return RowChange("create", tuple(changes_of(row)), None, row)


def decoder(table: TableContract | None, _: FormatOptions) -> Raw:
    """What reads the records of a table."""
    return Raw(table)
