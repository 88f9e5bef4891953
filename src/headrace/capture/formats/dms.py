"""What AWS DMS writes into Kafka and Kinesis: rows with metadata, and control records between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.capture.formats.debezium_origin import text
from headrace.capture.formats.json_records import decode_record, moment_of, object_of
from headrace.capture.messages import Message, NoChange, Origin, Position, Transaction, Truncation, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.capture.row_changes import created, deleted, updated
from headrace.capture.rows import RowReader
from headrace.capture.unknown_columns import UnknownColumns
from headrace.capture.values.assumed import text_values
from headrace.intake.reasons import shown
from headrace.intake.table import TableContract

_BEFORE_PREFIX = "BI_"


class Dms:
    """Reads the records of one table."""

    def __init__(self, table: TableContract | None, options: FormatOptions) -> None:
        self._table = table
        self._options = options
        self.unknown = UnknownColumns()
        self._rows = RowReader(table, options, text_values(options.binary_mode), unknown=self.unknown)
        self._columns = frozenset[str]() if table is None else frozenset(name.lower() for name in table.schema.names)

    def decode(self, record: Record) -> Message:
        """What a record says."""
        return decode_record(record, self._table, self.decode_json)

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        content = object_of(value, "a record of DMS")
        metadata = object_of(content.get("metadata"), "the metadata of a record of DMS")
        origin = _origin(metadata)
        kind, operation = text(metadata.get("record-type")), text(metadata.get("operation"))
        if kind == "control":
            return Truncation(origin) if operation == "truncate-table" else NoChange("control", origin)
        if kind != "data":
            raise Undecodable(f"{shown(metadata.get('record-type'))} is no record-type of DMS: data or control")
        data, images = self._split(object_of(content.get("data"), "the data of a record of DMS"))
        given = content.get(self._options.before_image)
        images.update({} if given is None else object_of(given, self._options.before_image))
        row = self._rows.read(data, "data")
        match operation:
            case "load" | "insert":
                return created(row, origin, self._table, read=operation == "load")
            case "update":
                before = self._rows.read(images, "the before image") if images else None
                part = self._options.missing_columns == "keep"
                return updated(before, row, origin, self._table, part=part)
            case "delete":
                return deleted(row, origin, self._table)
            case _:
                raise Undecodable(f"{shown(metadata.get('operation'))} is no operation of DMS on data")

    def _split(self, data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns of the row, and those of the row before, which a rule of a task adds to it under a prefix."""
        row: dict[str, Any] = {}
        before: dict[str, Any] = {}
        for name, value in data.items():
            plain = name.removeprefix(_BEFORE_PREFIX)
            if plain != name and name.lower() not in self._columns and plain.lower() in self._columns:
                before[plain] = value
            else:
                row[name] = value
        return row, before


def _origin(metadata: Mapping[str, Any]) -> Origin:
    names = [text(metadata.get(name)) for name in ("schema-name", "table-name")]
    transaction = text(metadata.get("transaction-id"))
    order = metadata.get("transaction-record-id")
    return Origin(
        "dms",
        ".".join(name for name in names if name),
        Position(text(metadata.get("stream-position"))),
        moment_of(metadata.get("commit-timestamp")) or moment_of(metadata.get("timestamp")),
        Transaction(transaction, order if type(order) is int else None) if transaction else None,
        metadata.get("operation") == "load",
    )


def decoder(table: TableContract | None, options: FormatOptions) -> Dms:
    """What reads the records of a table."""
    return Dms(table, options)
