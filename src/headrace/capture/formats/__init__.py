"""Formats: each turns one record into changes of one table, or says what else the record is.

    decoder = FORMATS["debezium"](contract, read_options({"decimal_mode": "string"}))
    message = decoder.decode(record)            # RowChange, Truncation, Tombstone, SchemaChange, ...; or Undecodable

A format of JSON also reads values that came alone, as over HTTP: `decoder.decode_json(value)`. Avro is no JSON, and has
a registry as well: `avro.decoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from headrace.capture.formats import debezium, dms, goldengate, insert_delete, raw, weighted
from headrace.capture.messages import Message
from headrace.capture.options import FormatOptions
from headrace.capture.record import NO_RECORD, Record
from headrace.intake.table import TableContract


class JsonDecoder(Protocol):
    """What reads the records of one table; on any record it raises `Undecodable` and nothing else."""

    def decode(self, record: Record) -> Message:
        """What a record says."""
        ...

    def decode_json(self, value: Any, record: Record = NO_RECORD) -> Message:
        """What a record says whose value was read as JSON already."""
        ...


FORMATS: Mapping[str, Callable[[TableContract | None, FormatOptions], JsonDecoder]] = {
    "debezium": debezium.decoder,
    "dms": dms.decoder,
    "goldengate": goldengate.decoder,
    "insert_delete": insert_delete.decoder,
    "raw": raw.decoder,
    "weighted": weighted.decoder,
}
