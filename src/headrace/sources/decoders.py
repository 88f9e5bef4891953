"""How the records of a source are read, table by table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol, runtime_checkable

from headrace.capture.connector import Connector
from headrace.capture.described import DescribedColumn, DescribedTable
from headrace.capture.formats import FORMATS, avro
from headrace.capture.formats.text_rows import TextRows
from headrace.capture.messages import Decode, Message
from headrace.capture.options import read_options
from headrace.capture.record import Record
from headrace.capture.unknown_columns import UnknownColumns
from headrace.catalog.catalog import Source
from headrace.epoch.core import Core
from headrace.intake.table import TableContract
from headrace.sources.connectors import FORMAT_OPTIONS, registry_of
from headrace.sources.secrets import looked_up


class Decoder(Protocol):
    """What reads the records of one table."""

    def decode(self, record: Record) -> Message:
        """What a record says."""
        ...


@runtime_checkable
class NotesUnknown(Protocol):
    """A decoder that notes what it leaves out, since the table has no such column."""

    unknown: UnknownColumns


@runtime_checkable
class Describes(Protocol):
    """A decoder whose records come with their schema."""

    def used_columns(self) -> Sequence[tuple[DescribedColumn, ...]]:
        """The columns of the schemas that records came with since this was last asked."""
        ...

    def describe(self, record: Record) -> DescribedTable | None:
        """The table as the schema of a record describes it; None where the record has none."""
        ...


class Decoders:
    """The decoders of a source, made when they are first asked for, and anew when a table has other columns."""

    def __init__(self, core: Core, source: Source, connector: Connector) -> None:
        options = looked_up(source.options)
        self._core = core
        # A connector that brings messages, and no bytes, has its dead letters as this one writes changes.
        self._format = str(options.get("format", connector.format)) if connector.has_format else "insert_delete"
        self._registry = registry_of(options) if self._format == "avro" else None
        self._options = read_options({name: value for name, value in options.items() if name in FORMAT_OPTIONS})
        if "unknown_columns" not in options:
            # What a table has no column for is noted, and is for the schema policy of the source to decide about.
            self._options = replace(self._options, unknown_columns="ignore")
        self._made = lru_cache(maxsize=1000)(self._make)
        self._is_text_row = connector.is_text_row
        self._text_rows = lru_cache(maxsize=1000)(TextRows)

    def __call__(self, table: str) -> Decode:
        """What decodes the records of a table."""
        decode, is_text_row = self.of(table).decode, self._is_text_row
        if is_text_row is None:
            return decode
        of_texts = self._text_rows(self._contract(table)).decode
        return lambda record: of_texts(record) if is_text_row(record) else decode(record)

    def of(self, table: str) -> Decoder:
        """What reads the records of a table; without one, of which columns they are is left to them."""
        return self._made(self._contract(table))

    def _contract(self, table: str) -> TableContract | None:
        return self._core.catalog.table(table).contract if table else None

    def _make(self, contract: TableContract | None) -> Decoder:
        if self._registry is not None:
            return avro.decoder(contract, self._options, self._registry)
        return FORMATS[self._format](contract, self._options)
