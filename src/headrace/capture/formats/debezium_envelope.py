"""Debezium's envelopes, whatever they were written in: operations with images of rows, and what else comes between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.capture.formats.debezium_mongodb import ID, DocumentReader, decode_document, is_document, key_of
from headrace.capture.formats.debezium_origin import moment, number, origin_of, text
from headrace.capture.formats.debezium_schema_change import is_schema_change, schema_change
from headrace.capture.messages import (
    Message,
    NoChange,
    Origin,
    Tombstone,
    TransactionBoundary,
    Truncation,
    Undecodable,
)
from headrace.capture.row_changes import created, deleted, deleted_key, updated
from headrace.capture.rows import Image, RowReader
from headrace.intake.reasons import shown
from headrace.intake.table import TableContract

_HEARTBEAT = frozenset({"ts_ms", "ts_us", "ts_ns"})
# What reads the key of the record, if it has one that can be read.
ReadKey = Callable[[], Image | None]


@dataclass(frozen=True)
class Envelope:
    """How the envelopes of one topic are read: their images, and documents where they have these instead."""

    table: TableContract | None
    before: RowReader
    after: RowReader
    documents: DocumentReader

    def decode(self, payload: Any, read_key: ReadKey) -> Message:
        """What an envelope says."""
        if not isinstance(payload, dict):
            raise Undecodable(f"a record of Debezium is an object, not {shown(payload)}")
        content = cast("dict[str, Any]", payload)
        operation = content.get("op")
        if operation is None:
            return _without_operation(content)
        origin = origin_of(content)
        if operation == "t":
            return Truncation(origin)
        if operation == "m":
            return NoChange("message", origin)
        if operation not in ("c", "r", "u", "d"):
            raise Undecodable(f"{shown(operation)} is no operation of Debezium: these are c, r, u, d, t and m")
        if is_document(content, origin.connector):
            return decode_document(operation, content, origin, self.documents, read_key)
        return self._row(operation, content, origin, read_key)

    def _row(self, operation: str, content: Mapping[str, Any], origin: Origin, read_key: ReadKey) -> Message:
        before = content.get("before")
        if operation == "d":
            image = None if before is None else self.before.read(before, "before")
            return deleted(with_key(image, self.table, read_key), origin, self.table)
        after = content.get("after")
        if after is None:
            raise Undecodable(f"an envelope with the operation {operation} has no after")
        image = self.after.read(after, "after")
        if operation == "u":
            return updated(None if before is None else self.before.read(before, "before"), image, origin, self.table)
        return created(image, origin, self.table, read=operation == "r")


def tombstone(table: TableContract | None, read_key: ReadKey) -> Tombstone:
    """A key without a value: where it can be read and names a row of the table, it deletes it."""
    try:
        key = read_key()
        row = {} if key is None else key.row
        if table is not None and table.key == (ID,) and ID not in row and key is not None:
            row = {ID: key_of(read_key)}
    except Undecodable:
        return Tombstone()
    return Tombstone(deleted_key(row, table))


def with_key(image: Image | None, table: TableContract | None, read_key: ReadKey) -> Image:
    """What is known of a row that is gone; where its image does not have its key, the record's own key does."""
    wanted = () if table is None else table.key
    if image is not None and all(image.row.get(name) is not None for name in wanted):
        return image
    key = read_key()
    if key is None:
        if image is None:
            raise Undecodable("a delete has neither a before nor a key")
        return image
    return Image(
        {**({} if image is None else image.row), **key.row}, frozenset(), {} if image is None else image.left_out
    )


def _without_operation(content: Mapping[str, Any]) -> Message:
    if is_schema_change(content):
        return schema_change(content)
    status = content.get("status")
    if status in ("BEGIN", "END") and "id" in content:
        return _boundary(status, content)
    if content.keys() <= _HEARTBEAT and content:
        return NoChange("heartbeat")
    raise Undecodable("an envelope has no op, and is no change of a schema, no end of a transaction and no heartbeat")


def _boundary(status: Any, content: Mapping[str, Any]) -> TransactionBoundary:
    name = text(content.get("id"))
    if not name:
        raise Undecodable(f"a transaction has the id {shown(content.get('id'))}")
    counts: dict[str, int] = {}
    for part in _parts(content.get("data_collections")):
        table, count = text(part.get("data_collection")), number(part.get("event_count"))
        if not table or count is None or count < 0:
            raise Undecodable(f"a part of a transaction's end is {shown(part)}")
        counts[table] = count
    return TransactionBoundary(status, name, moment(content), number(content.get("event_count")), counts)


def _parts(value: Any) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in cast("list[Any]", value)):
        raise Undecodable(f"the tables of a transaction's end are {shown(value)}")
    return cast("list[Mapping[str, Any]]", value)
