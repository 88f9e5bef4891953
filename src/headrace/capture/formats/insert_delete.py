"""Changes as Headrace itself writes them: `{"insert": row}`, `{"update": part of a row}`, `{"delete": row}`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from headrace.capture.formats.json_records import decode_record
from headrace.capture.messages import Message, Operation, RowChange, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.intake.table import NO_CHANGE, TableContract

_OPERATIONS: dict[str, Operation] = {"insert": "create", "update": "update", "delete": "delete"}
_DEBEZIUM = "; this is a record of Debezium, which a source WITH (format = 'debezium') reads"
_RAW = "; rows without that, as this may be one, are read by a source WITH (format = 'raw')"


def changes_of(value: Any) -> Sequence[Any]:
    """The changes of one value, which is one itself; what else it must be is said by the table, in the same words."""
    return (value,)


class InsertDelete:
    """Reads the records of one table; a tombstone deletes the row that its key names."""

    def __init__(self, table: TableContract | None) -> None:
        self._table = table

    def decode(self, record: Record) -> Message:
        """What a record says."""
        return decode_record(record, self._table, self.decode_json)

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
            ((kind, row),) = cast("dict[str, Any]", value).items()
            operation = _OPERATIONS.get(kind)
            if operation is not None and isinstance(row, dict):
                content = cast("dict[str, Any]", row)
                before, after = (content, None) if kind == "delete" else (None, content)
                return RowChange(operation, ({kind: content},), before, after)
        raise Undecodable(f"{NO_CHANGE}{_other_format(value)}")


def _other_format(value: Any) -> str:
    """What else a record looks like whose format was forgotten, if it does."""
    if _is_of_debezium(value):
        return _DEBEZIUM
    parts = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return _RAW if parts and not parts.keys() & _OPERATIONS.keys() else ""


def _is_of_debezium(value: Any) -> bool:
    """Whether it is an envelope of Debezium, whose format is easily forgotten."""
    parts = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    inner = parts.get("payload", parts)
    return isinstance(inner, dict) and {"op", "source"} <= cast("dict[str, Any]", inner).keys()


def decoder(table: TableContract | None, _: FormatOptions) -> InsertDelete:
    """What reads the records of a table."""
    return InsertDelete(table)
