"""A query that is planned for every run, its leaves sent along as data: any Spark can run it, wherever it works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.plans.catalyst import Catalyst, analyzed_plan, nullable_frame
from headrace.plans.query import Build, Leaf, LeafShape, make_leaf, numbered


class FreshQuery:
    """A query over small tables, of which nothing is kept from one run to the next."""

    def __init__(self, catalyst: Catalyst, shapes: Sequence[LeafShape], build: Build) -> None:
        self._catalyst = catalyst
        self._shapes = list(shapes)
        self._build = build

    def run(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The query's rows, as c0, c1, ...; each table has its leaf's columns in order, the extra ones last."""
        leaves = [self._leaf(shape, table) for shape, table in zip(self._shapes, tables, strict=True)]
        frame: Any = nullable_frame(self._catalyst.frame(self._build(leaves)))
        return numbered(frame.toArrow())

    def _leaf(self, shape: LeafShape, table: pa.Table) -> Leaf:
        fields = shape.fields()
        schema = StructType([StructField(f"c{index}", kind, True) for index, kind in fields])
        data = pa.table([table.column(index) for index, _ in fields], names=schema.names)
        frame = self._catalyst.data(data, schema)
        return make_leaf(self._catalyst, shape, analyzed_plan(self._catalyst.opaque(frame)))
