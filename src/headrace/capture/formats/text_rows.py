"""Rows whose values are all text, as those of CSV: each is read as what its column in the table is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from pyspark.sql.types import BooleanType, DataType, DoubleType, FloatType, IntegralType

from headrace.capture.formats.insert_delete import InsertDelete
from headrace.capture.messages import Message, RowChange
from headrace.capture.record import Record
from headrace.intake.numeric import NUMBER_TEXT
from headrace.intake.table import TableContract

_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_TRUTH = {"true": True, "false": False}


class TextRows:
    """Reads `{"insert": row}` of one table; what a text does not spell stays text, which the table then refuses."""

    def __init__(self, table: TableContract | None) -> None:
        self._plain = InsertDelete(table)
        self._types = {} if table is None else {one.name.lower(): one.dataType for one in table.schema}

    def decode(self, record: Record) -> Message:
        """What a record says."""
        message = self._plain.decode(record)
        if not isinstance(message, RowChange):
            return message
        changes = tuple({kind: self._read(row) for kind, row in change.items()} for change in message.changes)
        before, after = (None if row is None else self._read(row) for row in (message.before, message.after))
        return replace(message, changes=changes, before=before, after=after)

    def _read(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: spelled(value, self._types.get(name.lower())) for name, value in row.items()}


def spelled(value: Any, data_type: DataType | None) -> Any:
    """The number or truth value that a text spells, where its column has such; everything else as it is."""
    if not isinstance(value, str):
        return value
    match data_type:
        case IntegralType():
            return int(value) if _INTEGER.fullmatch(value) else value
        case DoubleType() | FloatType():
            return Decimal(value) if NUMBER_TEXT.fullmatch(value) else value
        case BooleanType():
            return _TRUTH.get(value.lower(), value)
        case _:
            return value
