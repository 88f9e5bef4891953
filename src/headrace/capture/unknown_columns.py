"""Columns that records have and their table has not."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import BooleanType, DataType, DecimalType, DoubleType, LongType, StringType

from headrace.capture.values.encoding import LARGEST_PRECISION

_LONGS = range(-(1 << 63), 1 << 63)
# Records that name ever new columns must not fill the memory.
_MOST_NAMES = 10_000


class UnknownColumns:
    """What was left out of records: how many values, and of columns that nothing describes, the type they seem to have.

    One that has only been NULL so far is not named: nothing of it is lost.
    """

    def __init__(self) -> None:
        self.types: dict[str, DataType] = {}
        self.left_out = 0

    def note(self, name: str, value: Any, *, described: bool) -> None:
        """Note a value that is not NULL, of a column that the table has not."""
        self.left_out += 1
        if not described and name not in self.types and len(self.types) < _MOST_NAMES:
            self.types[name] = type_of(value)


def type_of(value: Any) -> DataType:
    """A type that takes a value of JSON, and most that may follow it; STRING where that cannot be told."""
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        return LongType() if value in _LONGS else DecimalType(LARGEST_PRECISION, 0)
    # Debezium writes decimals as text or bytes: a number with a point is one of a column of floats.
    return StringType() if isinstance(value, (str, bytes, list, dict)) else DoubleType()
