"""Exact rows as Arrow columns, typed as Spark types them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.intake.identity import Row


def table_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a table; timestamps are instants in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


def to_arrow(rows: Sequence[Row], schema: StructType) -> pa.Table:
    """Rows of canonical values by position as one Arrow table."""
    arrow = table_schema(schema)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(arrow)
    arrays = [pa.array(column, type=kind) for column, kind in zip(columns, arrow.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow)
