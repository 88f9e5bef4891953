"""Where the values of a column go whose type has changed to one that its column in the table cannot become."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from headrace.sql.widening import is_wider

_MOMENTS = (TimestampType, TimestampNTZType)


def takes(column: DataType, values: DataType) -> bool:
    """Whether a column of one type takes every value of another, as far as the types tell."""
    if column == values or is_wider(values, column) or isinstance(column, StringType):
        return True
    if isinstance(column, _MOMENTS):
        return isinstance(values, _MOMENTS)
    return isinstance(column, TimeType) and isinstance(values, TimeType)


def moved_name(name: str, values: DataType) -> str:
    """The name of the column that takes such values instead."""
    inside = (ArrayType, MapType, StructType)
    words = values.typeName() if isinstance(values, inside) else values.simpleString()
    return f"{name}_{re.sub('[^0-9a-z]+', '_', words.lower()).strip('_')}"


def column_for(name: str, values: DataType, columns: Mapping[str, tuple[str, DataType]]) -> str:
    """The column of a table that takes the values of one of its columns: that itself, or the one they have moved to.

    Columns are given by their names in lower case.
    """
    held = columns[name.lower()][1]
    moved = columns.get(moved_name(name, values).lower())
    return moved[0] if moved is not None and not takes(held, values) and takes(moved[1], values) else name
