"""Signed rows as the leaves and results of queries: weights, and the sides before and after, as further columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import Java
from headrace.state.arrow_types import conform
from headrace.state.delta import Delta, combine, consolidate, empty, end_to_end, weights_of


def named(catalyst: Catalyst, plan: Java, columns: Sequence[Java]) -> Java:
    """The wanted columns of a plan under plain, distinct names."""
    return catalyst.project([catalyst.alias(c, f"c{i}") for i, c in enumerate(columns)], plan)


def with_weights(delta: Delta) -> pa.Table:
    """A delta's rows with their weights as the last column."""
    return leaf_table([*delta.rows.columns, pa.array(delta.weights)])


def signed(table: pa.Table, types: tuple[DataType, ...]) -> Delta:
    """A query's result whose last column is the weight, as a delta."""
    weights = weights_of(table.column(table.num_columns - 1).to_numpy())
    return consolidate(conform(table.select(list(range(table.num_columns - 1))), types), weights)


def by_side(table: pa.Table, types: tuple[DataType, ...]) -> Delta:
    """A query's result whose last column is the side, odd after and even before, as new rows minus old."""
    sides = np.asarray(table.column(table.num_columns - 1)).astype(np.int64)
    rows = conform(table.select(list(range(len(types)))), types)
    return consolidate(rows, np.where(sides % 2 == 1, np.int64(1), np.int64(-1)))


def sided(before: Delta, change: Delta | None) -> tuple[Delta, Delta]:
    """The rows before and after a change, each with its multiplicity."""
    if change is None or len(change) == 0:
        return before, before
    return before, combine(*end_to_end([before, change]))


def repeated(rows: Delta) -> pa.Table:
    """Rows, each as often as its weight says, with their side, which alone tells how many there are without columns."""
    return side_table(empty(rows.rows.schema), rows, repeat=True, weigh=False)


def side_table(before: Delta, after: Delta, *, repeat: bool, weigh: bool) -> pa.Table:
    """Rows before (side 0) and after (side 1), with weights as a column or as repeated rows."""
    rows = pa.concat_tables([before.rows, after.rows])
    sides = np.concatenate([np.zeros(len(before), dtype=np.int32), np.ones(len(after), dtype=np.int32)])
    weights = np.concatenate([before.weights, after.weights])
    if repeat and bool(np.any(weights != 1)):
        copies = np.repeat(np.arange(len(weights)), weights)
        rows, sides, weights = rows.take(pa.array(copies)), sides[copies], np.ones(len(copies), dtype=np.int64)
    weighed = [pa.array(weights)] if weigh else []
    return leaf_table([*rows.columns, *weighed, pa.array(sides)])


def leaf_table(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Columns as a query's leaf takes them, by their order alone."""
    return pa.table(list(columns), names=[f"x{i}" for i in range(len(columns))])
