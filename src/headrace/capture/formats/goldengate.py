"""What Oracle GoldenGate's JSON formatter writes: operations with images of the row, or rows with their operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from headrace.capture.formats.debezium_origin import text
from headrace.capture.formats.json_records import decode_record, moment_of, object_of
from headrace.capture.messages import Message, Origin, Position, Transaction, Truncation, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.capture.row_changes import created, deleted, updated
from headrace.capture.rows import Image, RowReader
from headrace.capture.unknown_columns import UnknownColumns
from headrace.capture.values.assumed import text_values
from headrace.intake.reasons import shown
from headrace.intake.table import TableContract

# What a record has beside its row where its columns lie next to it.
_META = frozenset({"table", "op_type", "op_ts", "current_ts", "pos", "primary_keys", "tokens", "before", "after"})
_MISSING = "_isMissing"
_TRANSACTION = "6"


class GoldenGate:
    """Reads the records of one table."""

    def __init__(self, table: TableContract | None, options: FormatOptions) -> None:
        self._table = table
        self._part = options.missing_columns != "null"
        self.unknown = UnknownColumns()
        self._rows = RowReader(table, options, text_values(options.binary_mode), unknown=self.unknown)

    def decode(self, record: Record) -> Message:
        """What a record says."""
        return decode_record(record, self._table, self.decode_json)

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        content = object_of(value, "a record of GoldenGate")
        operation = content.get("op_type")
        origin = _origin(content)
        if operation == "T":
            return Truncation(origin)
        before, after = self._images(content, operation)
        match operation:
            case "I":
                return created(_needed(after, "after", operation), origin, self._table)
            case "U":
                return updated(before, _needed(after, "after", operation), origin, self._table, part=self._part)
            case "D":
                return deleted(_needed(before, "before", operation), origin, self._table)
            case _:
                raise Undecodable(f"{shown(operation)} is no op_type of GoldenGate: these are I, U, D and T")

    def _images(self, content: Mapping[str, Any], operation: Any) -> tuple[Image | None, Image | None]:
        """The row before and after; a record that models rows has one of them, beside what it says of itself."""
        if "before" in content or "after" in content:
            return self._image(content.get("before"), "before"), self._image(content.get("after"), "after")
        # A column that is named as a part of the record would be lost: such tables need images.
        row = self._image({name: part for name, part in content.items() if name not in _META}, "the row")
        return (row, None) if operation == "D" else (None, row)

    def _image(self, value: Any, what: str) -> Image | None:
        """An image of the row; columns that are marked as missing are not in it."""
        if value is None:
            return None
        content = object_of(value, what)
        marks = {
            name.removesuffix(_MISSING)
            for name, part in content.items()
            if name.endswith(_MISSING) and type(part) is bool and name.removesuffix(_MISSING) in content
        }
        missing = {name for name in marks if content[name + _MISSING]}
        named = marks.difference(missing)
        row = {
            name: part
            for name, part in content.items()
            if name in named or (name not in missing and name.removesuffix(_MISSING) not in marks)
        }
        return self._rows.read(row, what)


def _needed(image: Image | None, what: str, operation: Any) -> Image:
    if image is None:
        raise Undecodable(f"a record with the op_type {operation} has no {what}")
    return image


def _origin(content: Mapping[str, Any]) -> Origin:
    position = text(content.get("pos"))
    tokens = content.get("tokens")
    transaction = text(cast("dict[str, Any]", tokens).get(_TRANSACTION)) if isinstance(tokens, dict) else ""
    return Origin(
        "goldengate",
        text(content.get("table")),
        Position(position, (int(position),) if position.isascii() and position.isdecimal() else ()),
        moment_of(content.get("op_ts")),
        Transaction(transaction) if transaction else None,
    )


def decoder(table: TableContract | None, options: FormatOptions) -> GoldenGate:
    """What reads the records of a table."""
    return GoldenGate(table, options)
