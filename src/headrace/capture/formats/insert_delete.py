"""Changes as Headrace itself writes them: `{"insert": row}`, `{"update": part of a row}`, `{"delete": row}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from headrace.capture.exact_json import read_record
from headrace.capture.messages import Message, Operation, RowChange, Tombstone, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.capture.row_changes import deleted_key
from headrace.intake.table import NO_CHANGE, TableContract

_OPERATIONS: dict[str, Operation] = {"insert": "create", "update": "update", "delete": "delete"}


def changes_of(value: Any) -> Sequence[Any]:
    """The changes of one value, which is one itself; what else it must be is said by the table, in the same words."""
    return (value,)


class InsertDelete:
    """Reads the records of one table; a tombstone deletes the row that its key names."""

    def __init__(self, table: TableContract | None) -> None:
        self._table = table

    def decode(self, record: Record) -> Message:
        """What a record says."""
        if record.value is None:
            return tombstone(record, self._table)
        return self.decode_json(read_record(record.value), record)

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
            ((kind, row),) = cast("dict[str, Any]", value).items()
            operation = _OPERATIONS.get(kind)
            if operation is not None and isinstance(row, dict):
                content = cast("dict[str, Any]", row)
                before, after = (content, None) if kind == "delete" else (None, content)
                return RowChange(operation, ({kind: content},), before, after)
        raise Undecodable(NO_CHANGE)


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


def decoder(table: TableContract | None, _: FormatOptions) -> InsertDelete:
    """What reads the records of a table."""
    return InsertDelete(table)
