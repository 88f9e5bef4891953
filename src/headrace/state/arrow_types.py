"""How Spark's types travel in Arrow: one form of each, so that equal types are equal everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def arrow_type(data_type_: DataType) -> pa.DataType:
    """How a Spark type travels in Arrow: everything may be NULL, so that equal types are equal everywhere."""
    return to_arrow_type(nullable_type(data_type_), timezone="UTC")


def sql_name(kind: pa.DataType) -> str:
    """What Spark SQL calls the type that travels so, as DESCRIBE tells it."""
    return from_arrow_type(kind).simpleString()


def nullable_type(kind: DataType) -> DataType:
    """The same type with every part of it allowed to be NULL."""
    if isinstance(kind, ArrayType):
        return ArrayType(nullable_type(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(nullable_type(kind.keyType), nullable_type(kind.valueType), True)
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, nullable_type(f.dataType), True) for f in kind.fields])
    return kind


def arrow_schema(types: Iterable[DataType]) -> pa.Schema:
    """An Arrow schema of positional columns c0, c1, ..."""
    return pa.schema([pa.field(f"c{i}", arrow_type(kind)) for i, kind in enumerate(types)])


def spark_schema(types: Iterable[DataType]) -> StructType:
    """A Spark schema of positional columns c0, c1, ..."""
    return StructType([StructField(f"c{i}", kind, True) for i, kind in enumerate(types)])


def conform(table: pa.Table, types: Sequence[DataType]) -> pa.Table:
    """A table with exactly the Arrow types that these Spark types travel as, columns named c0, c1, ..."""
    columns: list[pa.ChunkedArray] = []
    for column, kind in zip(table.columns, types, strict=True):
        wanted = arrow_type(kind)
        columns.append(column if column.type.equals(wanted) else column.cast(wanted))
    return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
