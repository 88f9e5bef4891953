"""Debezium's change events in JSON, with their schema beside them or without.

With the schema, every value is read as the schema says. Without it, the type of the table's column and the options say
how values are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from headrace.capture.described import DescribedColumn, DescribedTable
from headrace.capture.exact_json import DEEPEST, SPACE, as_text, decode_at, read_record, refuse_depth
from headrace.capture.formats.connect import described_columns, encodings_of, fields_of, split_wrapper
from headrace.capture.formats.debezium_envelope import Envelope, tombstone
from headrace.capture.formats.debezium_mongodb import DocumentReader
from headrace.capture.formats.debezium_origin import text
from headrace.capture.messages import Message, NoChange, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.capture.rows import Image, RowReader
from headrace.capture.unavailable import unavailable_test
from headrace.capture.unknown_columns import UnknownColumns
from headrace.capture.values.assumed import debezium_values, text_values
from headrace.capture.values.encoding import Encoding
from headrace.intake.table import TableContract

# A topic has few schemas at a time: the old one and the new one, and those of other kinds of messages.
_KEPT_SCHEMAS = 16
_CONNECTORS = frozenset({"postgresql", "mysql", "mariadb", "sqlserver", "oracle", "mongodb"})


class _Known:
    """A schema, how what it describes is read, and the bytes by which a record with it is known."""

    def __init__(self, schema: Any, envelope: Envelope, columns: tuple[DescribedColumn, ...]) -> None:
        self.schema = schema
        self.envelope = envelope
        self.columns = columns
        # No JSON begins with this.
        self.prefix = b"\x00"


class DebeziumJson:
    """Reads the records of one table."""

    def __init__(self, table: TableContract | None, options: FormatOptions) -> None:
        self._table = table
        self._options = options
        self._is_unavailable = unavailable_test(options.unavailable_value)
        self._plain: dict[str, Envelope] = {}
        self._known: list[_Known] = []
        self._key_reader: tuple[Any, RowReader] | None = None
        self.unknown = UnknownColumns()
        self._used: dict[int, _Known] = {}

    def decode(self, record: Record) -> Message:
        """What a record says."""
        content = record.value
        if content is None:
            return self._decode(None, None, record)
        for known in self._known:
            if content.startswith(known.prefix):
                payload = _payload_after(content, len(known.prefix))
                if payload is not None:
                    self._used[id(known)] = known
                    return self._decode(payload, known.envelope, record)
        value = read_record(content)
        message = self.decode_json(value, record)
        self._remember_prefix(content, value)
        return message

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        payload, schema = split_wrapper(value)
        return self._decode(payload, None if schema is None else self._envelope(schema), record)

    def used_columns(self) -> list[tuple[DescribedColumn, ...]]:
        """The columns of the schemas that records came with since this was last asked."""
        used = [known.columns for known in self._used.values() if known.columns]
        self._used.clear()
        return used

    def describe(self, record: Record) -> DescribedTable | None:
        """The table as the schema of a record describes it; None where the record has none."""
        if record.value is None:
            return None
        payload, schema = split_wrapper(read_record(record.value))
        image = None if schema is None else _image_schema(schema, "after")
        if image is None or not isinstance(payload, dict):
            return None
        key_schema = None if record.key is None else split_wrapper(read_record(record.key))[1]
        key = () if key_schema is None else tuple(name for name, _ in fields_of(key_schema))
        source = cast("dict[str, Any]", payload).get("source")
        block = cast("dict[str, Any]", source) if isinstance(source, dict) else {}
        return DescribedTable(text(block.get("table")), described_columns(image), key)

    def _decode(self, payload: Any, envelope: Envelope | None, record: Record) -> Message:
        if payload is None:
            return tombstone(self._table, lambda: self._key(record))
        if payload == {}:
            return NoChange("empty")
        return (envelope or self._plain_envelope(payload)).decode(payload, lambda: self._key(record))

    def _plain_envelope(self, payload: Any) -> Envelope:
        """How envelopes without a schema are read, which depends on whose they are."""
        source = cast("dict[str, Any]", payload).get("source") if isinstance(payload, dict) else None
        name = text(cast("dict[str, Any]", source).get("connector")) if isinstance(source, dict) else ""
        connector = name if name in _CONNECTORS else ""
        if connector not in self._plain:
            self._plain[connector] = self._build(self._rows(None, connector), self._rows(None, connector))
        return self._plain[connector]

    def _envelope(self, schema: Any) -> Envelope:
        """How envelopes with a schema are read; a few schemas are remembered."""
        known = self._find(schema)
        if known is None:
            images = [_image_schema(schema, name) for name in ("before", "after")]
            before, after = (self._rows({} if image is None else encodings_of(image), "") for image in images)
            columns = () if images[1] is None else described_columns(images[1])
            known = _Known(schema, self._build(before, after), columns)
            self._known = [known, *self._known[: _KEPT_SCHEMAS - 1]]
        self._used[id(known)] = known
        return known.envelope

    def _find(self, schema: Any) -> _Known | None:
        return next((known for known in self._known if known.schema == schema), None)

    def _build(self, before: RowReader, after: RowReader) -> Envelope:
        # Documents have no schema, and their values say themselves what they are.
        options = replace(self._options, unknown_columns="ignore") if self._options.document_column else self._options
        rows = RowReader(self._table, options, text_values(options.binary_mode), unknown=self.unknown)
        return Envelope(self._table, before, after, DocumentReader(self._table, rows, options.document_column))

    def _rows(
        self, described: Mapping[str, Encoding] | None, connector: str, options: FormatOptions | None = None
    ) -> RowReader:
        options = options or self._options
        assume = debezium_values(options.time_precision, options.decimal_mode, options.binary_mode, connector)
        return RowReader(self._table, options, assume, described, self._is_unavailable, self.unknown)

    def _key(self, record: Record) -> Image | None:
        """The key of a record as a row, with or without its schema."""
        payload, schema = (None, None) if record.key is None else split_wrapper(read_record(record.key))
        if payload is None:
            return None
        if self._key_reader is None or self._key_reader[0] != schema:
            # What a key has is needed, also where the table calls it otherwise, as that of a document.
            options = replace(self._options, unknown_columns="pass")
            self._key_reader = schema, self._rows(None if schema is None else encodings_of(schema), "", options)
        return self._key_reader[1].read(payload, "the key")

    def _remember_prefix(self, content: bytes, value: Any) -> None:
        """Note where the payload begins after a schema: of the next record with the same bytes only that is read."""
        schema = split_wrapper(value)[1]
        known = None if schema is None or next(iter(value)) != "schema" else self._find(schema)
        if known is not None:
            known.prefix = _before_payload(as_text(content)).encode()


def _before_payload(content: str) -> str:
    """What stands before the value of `payload`, in the text of a schema and a payload."""
    end = decode_at(content, content.index("{", content.index("{") + 1))[1]
    after = content[end:].lstrip(SPACE).removeprefix(",").lstrip(SPACE)
    after = after.removeprefix('"payload"').lstrip(SPACE).removeprefix(":").lstrip(SPACE)
    return content[: len(content) - len(after)]


def _payload_after(content: bytes, begin: int) -> Any:
    """The object that begins at a position, if nothing but the end of its wrapper follows; None if it is otherwise."""
    try:
        words = content[begin:].decode()
        payload, end = decode_at(words, 0)
    except (UnicodeDecodeError, Undecodable):
        return None
    if not isinstance(payload, dict) or words[end:].strip(SPACE) != "}":
        return None
    if words.count("{") + words.count("[") > DEEPEST:
        refuse_depth(payload)
    return cast("dict[str, Any]", payload)


def _image_schema(schema: Any, name: str) -> Any:
    """The schema of an image of the row, if the envelope has one that is no text."""
    found = next((field for one, field in fields_of(schema) if one == name), None)
    return found if found is not None and found.get("type") == "struct" else None


def decoder(table: TableContract | None, options: FormatOptions) -> DebeziumJson:
    """What reads the records of a table."""
    return DebeziumJson(table, options)
