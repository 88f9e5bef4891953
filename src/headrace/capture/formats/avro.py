"""Avro in the wire format of schema registries: a zero byte, the id of the schema, and the value in Avro's binary form.

A record whose schema is an envelope of Debezium is read as one; any other is a row, which is inserted.
"""

from __future__ import annotations

import importlib
import io
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from headrace.capture.described import DescribedColumn, DescribedTable
from headrace.capture.exact_json import read_record
from headrace.capture.formats.avro_schema import SchemaReading
from headrace.capture.formats.debezium_envelope import Envelope, tombstone
from headrace.capture.formats.debezium_mongodb import DocumentReader
from headrace.capture.formats.debezium_origin import text
from headrace.capture.formats.registry import KEPT_SCHEMAS, Registry
from headrace.capture.messages import Message, Origin, Undecodable
from headrace.capture.options import FormatOptions
from headrace.capture.record import Record
from headrace.capture.row_changes import created
from headrace.capture.rows import Image, RowReader
from headrace.capture.unavailable import unavailable_test
from headrace.capture.unknown_columns import UnknownColumns
from headrace.capture.values.assumed import debezium_values, text_values
from headrace.capture.values.encoding import Encoding, Kind, spark_type
from headrace.errors import SetupError
from headrace.intake.table import TableContract

_HEADER = struct.Struct(">bI")
# The fields by which an envelope, the end of a transaction and a change of a schema are known.
_ENVELOPES = (
    frozenset({"op", "source"}),
    frozenset({"status", "id", "event_count"}),
    frozenset({"ddl", "databaseName"}),
)


@dataclass(frozen=True)
class _Schema:
    """A schema as it is used: what reads the bytes, how the value is written, and what reads it as a message."""

    plain: Any
    encoding: Encoding
    rows: RowReader
    keys: RowReader
    envelope: Envelope | None


class Avro:
    """Reads the records of one table, by the schemas of one registry."""

    def __init__(self, table: TableContract | None, options: FormatOptions, registry: Registry) -> None:
        self._table = table
        self._options = options
        # What a key has is needed, also where the table calls it otherwise, as that of a document.
        self._of_keys = replace(options, unknown_columns="pass")
        self._registry = registry
        self._is_unavailable = unavailable_test(options.unavailable_value)
        self._library = _library()
        self._schemas: OrderedDict[int, _Schema] = OrderedDict()
        self.unknown = UnknownColumns()
        self._used: dict[int, _Schema] = {}

    def decode(self, record: Record) -> Message:
        """What a record says."""
        if record.value is None:
            return tombstone(self._table, lambda: self._key(record))
        schema, value = self._read(record.value)
        self._used[id(schema)] = schema
        if schema.envelope is not None:
            return schema.envelope.decode(value, lambda: self._key(record))
        return created(schema.rows.read(value, "the record"), Origin(), self._table)

    def used_columns(self) -> list[tuple[DescribedColumn, ...]]:
        """The columns of the schemas that records came with since this was last asked."""
        used = [columns for schema in self._used.values() if (columns := _columns(schema))]
        self._used.clear()
        return used

    def describe(self, record: Record) -> DescribedTable | None:
        """The table as the schema of a record describes it."""
        if record.value is None:
            return None
        schema, value = self._read(record.value)
        columns = _columns(schema)
        if not columns:
            return None
        name = ""
        if schema.envelope is not None:
            source = cast("dict[str, Any]", value).get("source")
            name = text(cast("dict[str, Any]", source).get("table")) if isinstance(source, dict) else ""
        key: tuple[str, ...] = ()
        if record.key is not None and record.key.startswith(b"\x00"):
            key = tuple(one for one, _ in self._read(record.key)[0].encoding.fields)
        return DescribedTable(name, columns, key)

    def _key(self, record: Record) -> Image | None:
        """The key of a record as a row: in Avro, or in JSON where another converter wrote it."""
        if record.key is None:
            return None
        if record.key.startswith(b"\x00"):
            schema, value = self._read(record.key)
            return schema.keys.read(value, "the key")
        value = read_record(record.key)
        return self._rows({}, self._of_keys).read(value, "the key") if isinstance(value, dict) else None

    def _read(self, content: bytes) -> tuple[_Schema, Any]:
        """The schema and the value of bytes in the wire format."""
        if len(content) < _HEADER.size or content[0] != 0:
            raise Undecodable("not in the wire format of a schema registry: it begins with no zero byte and id", "text")
        schema = self._schema(_HEADER.unpack_from(content)[1])
        stream = io.BytesIO(content)
        stream.seek(_HEADER.size)
        try:
            value = self._library.schemaless_reader(stream, schema.plain, None)
        except (EOFError, IndexError, KeyError, OverflowError, UnicodeDecodeError, ValueError, TypeError) as error:
            raise Undecodable(f"not Avro of its schema: {type(error).__name__} {error}"[:200].strip(), "text") from None
        if stream.tell() != len(content):
            raise Undecodable(f"not Avro of its schema: {len(content) - stream.tell()} bytes are left over", "text")
        return schema, value

    def _schema(self, number: int) -> _Schema:
        found = self._schemas.get(number)
        if found is None:
            found = self._compile(number)
            self._schemas[number] = found
            while len(self._schemas) > KEPT_SCHEMAS:
                self._schemas.popitem(last=False)
        return found

    def _compile(self, number: int) -> _Schema:
        registered = self._registry.schema(number)
        reading = SchemaReading()
        named: dict[str, Any] = {}
        plain: Any = None
        encoding = Encoding()
        for one in (*registered.references, registered.text):
            try:
                read = read_record(one.encode())
                plain, encoding = reading.read(read)
                plain = self._library.parse_schema(plain, named_schemas=named)
            except Undecodable as bad:
                raise Undecodable(f"schema {number}: {bad.reason}", "schema") from None
            except (self._library.schema.SchemaParseException, KeyError, TypeError, ValueError) as error:
                raise Undecodable(f"schema {number} is no Avro schema: {error}"[:200], "schema") from None
        fields = dict(encoding.fields)
        envelope = self._envelope(fields) if any(names <= fields.keys() for names in _ENVELOPES) else None
        return _Schema(plain, encoding, self._rows(fields), self._rows(fields, self._of_keys), envelope)

    def _envelope(self, fields: Mapping[str, Encoding]) -> Envelope:
        before, after = (dict(fields.get(name, Encoding()).fields) for name in ("before", "after"))
        options = replace(self._options, unknown_columns="ignore") if self._options.document_column else self._options
        documents = RowReader(self._table, options, text_values(options.binary_mode), unknown=self.unknown)
        return Envelope(
            self._table,
            self._rows(before),
            self._rows(after),
            DocumentReader(self._table, documents, options.document_column),
        )

    def _rows(self, described: Mapping[str, Encoding], options: FormatOptions | None = None) -> RowReader:
        options = options or self._options
        assume = debezium_values(options.time_precision, options.decimal_mode, options.binary_mode)
        return RowReader(self._table, options, assume, described, self._is_unavailable, self.unknown)


def _columns(schema: _Schema) -> tuple[DescribedColumn, ...]:
    """The columns of the rows that records of a schema bring; none where they bring no rows."""
    encoding: Encoding | None = schema.encoding
    if schema.envelope is not None:
        encoding = dict(schema.encoding.fields).get("after")
    if encoding is None or encoding.kind is not Kind.STRUCT:
        return ()
    return tuple(DescribedColumn(name, spark_type(inner)) for name, inner in encoding.fields)


def _library() -> Any:
    """What reads Avro's bytes, which only those need who have Avro."""
    try:
        return importlib.import_module("fastavro")
    except ImportError as error:
        raise SetupError(
            "the format avro needs the library fastavro", hint="install headrace[avro], or fastavro itself"
        ) from error


def decoder(table: TableContract | None, options: FormatOptions, registry: Registry) -> Avro:
    """What reads the records of a table."""
    return Avro(table, options, registry)
