"""Envelopes of MongoDB's connector: documents as text, whole or as what an update changed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.capture.exact_json import json_text
from headrace.capture.formats.extended_json import read_extended
from headrace.capture.messages import Message, Origin, Undecodable
from headrace.capture.row_changes import created, deleted, updated
from headrace.capture.rows import Image, RowReader
from headrace.intake.reasons import shown
from headrace.intake.table import TableContract

# The field that names a document, and the column for it.
ID = "_id"


@dataclass(frozen=True)
class DocumentReader:
    """How documents become rows: fields by the name of a column, and the whole of it in one, if one is named."""

    table: TableContract | None
    rows: RowReader
    column: str = ""

    def read(self, document: Any, what: str) -> Image:
        """The row of a document."""
        if not isinstance(document, dict):
            raise Undecodable(f"{what} is no document, but {shown(document)}")
        content = cast("dict[str, Any]", document)
        if not self.column:
            return self.rows.read(content, what)
        # With a column for the whole, a field that has none of its own is not lost.
        names = {self.column.lower()} if self.table is None else {name.lower() for name in self.table.schema.names}
        fields = {name: part for name, part in content.items() if name.lower() in names or name == ID}
        return self.rows.read({**fields, self.column: json_text(content)}, what)


def is_document(payload: Mapping[str, Any], connector: str) -> bool:
    """Whether an envelope carries a document."""
    return connector == "mongodb" or "updateDescription" in payload or isinstance(payload.get("after"), str)


def decode_document(
    operation: str,
    payload: Mapping[str, Any],
    origin: Origin,
    documents: DocumentReader,
    read_key: Callable[[], Image | None],
) -> Message:
    """The change of a document."""
    table = documents.table
    before = _document(payload.get("before"), "before")
    if operation == "d":
        known = before if before is not None else {ID: key_of(read_key)}
        return deleted(documents.read(known, "before"), origin, table)
    after = _document(payload.get("after"), "after")
    if operation != "u":
        if after is None:
            raise Undecodable(f"an envelope with the operation {operation} has no after")
        return created(documents.read(after, "after"), origin, table, read=operation == "r")
    old = None if before is None else documents.read(before, "before")
    if after is not None:
        return updated(old, documents.read(after, "after"), origin, table)
    if documents.column:
        raise Undecodable("an update without the whole document cannot be taken into a column for whole documents")
    changed = _changed_fields(payload.get("updateDescription"))
    identity = before.get(ID) if before is not None else key_of(read_key)
    part = documents.rows.read({ID: identity, **changed}, "updatedFields")
    return updated(old, part, origin, table, part=True)


def key_of(read_key: Callable[[], Image | None]) -> Any:
    """The id of a document, which the key of its record has as text of extended JSON."""
    key = read_key()
    if key is None or type(key.row.get("id")) is not str:
        raise Undecodable("a change without the document has no key that names it")
    return read_extended(key.row["id"], "the key")


def _document(value: Any, what: str) -> dict[str, Any] | None:
    if value is None:
        return None
    if type(value) is not str:
        raise Undecodable(f"{what} is no text of a document, but {shown(value)}")
    document = read_extended(value, what)
    if not isinstance(document, dict):
        raise Undecodable(f"{what} is no document, but {shown(document)}")
    return cast("dict[str, Any]", document)


def _changed_fields(description: Any) -> dict[str, Any]:
    """What an update changed: fields with their values, and those that are gone."""
    if not isinstance(description, dict):
        raise Undecodable(f"an update has neither an after nor a description, but {shown(description)}")
    content = cast("dict[str, Any]", description)
    changed = _document(content.get("updatedFields"), "updatedFields") or {}
    removed = content.get("removedFields") or []
    truncated = content.get("truncatedArrays") or []
    if not isinstance(removed, list) or not all(type(name) is str for name in cast("list[Any]", removed)):
        raise Undecodable(f"removedFields is no list of names, but {shown(removed)}")
    fields = {**changed, **dict.fromkeys(cast("list[str]", removed))}
    inner = next((name for name in fields if "." in name), None)
    if inner is not None or truncated:
        raise Undecodable(
            f"an update changes a part of the field {(inner or shown(truncated)).partition('.')[0]}, whose whole is "
            "not known; set capture.mode to change_streams_update_full"
        )
    return fields
