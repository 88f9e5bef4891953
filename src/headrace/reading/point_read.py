"""Rows of a relation by the values of some columns, without Spark: looked up, never scanned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.state.arrow_types import arrow_type
from headrace.state.delta import consolidate
from headrace.state.hashing import hash_columns
from headrace.state.repeat import repeat
from headrace.state.state import State


def rows_where(state: State, schema: StructType, equal: Mapping[str, Any]) -> pa.Table:
    """All rows in which these columns have these values, none of them NULL."""
    indexes = tuple(schema.names.index(name) for name in equal)
    values = [pa.chunked_array([pa.array([value], arrow_type(schema[name].dataType))]) for name, value in equal.items()]
    found = state.lookup(indexes, hash_columns(values, 1))
    summed = consolidate(found.rows, found.weights)
    rows = repeat(summed.rows, summed.weights).rename_columns(schema.names)
    # A hash may be that of another value too.
    same = [row for row in range(rows.num_rows) if all(rows.column(n)[row].as_py() == v for n, v in equal.items())]
    return rows.take(pa.array(same, pa.int64()))
