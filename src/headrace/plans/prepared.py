"""A prepared query: planned once, executed for every delta by rewriting the small files at its leaves.

An executed plan remembers the results of exchanges, broadcasts and subqueries, and would silently give stale rows.
So only plans made of nodes that are known to read anew each time are kept; any other is planned for every run. A kept
plan is run in the driver (see direct.py). One that is not needs executors, and those read the leaves' files only where
they live in the driver too: elsewhere its leaves are sent along (see fresh.py).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from headrace.plans.catalyst import Catalyst, analyzed_plan, nullable_frame
from headrace.plans.direct import DirectRun, directly
from headrace.plans.fresh import FreshQuery
from headrace.plans.query import Build, Leaf, LeafShape, make_leaf, numbered
from headrace.plans.trees import Java, items, kind_of
from headrace.storage.scratch import make_again, spark_path

_FRESH_EACH_RUN = frozenset(
    {
        "CartesianProductExec",
        "CoalesceExec",
        "ColumnarToRowExec",
        "ExpandExec",
        "FileSourceScanExec",
        "FilterExec",
        "GenerateExec",
        "HashAggregateExec",
        "InputAdapter",
        "LocalTableScanExec",
        "ObjectHashAggregateExec",
        "ProjectExec",
        "ShuffledHashJoinExec",
        "SortAggregateExec",
        "SortExec",
        "SortMergeJoinExec",
        "UnionExec",
        "WholeStageCodegenExec",
        "WindowExec",
        "WindowGroupLimitExec",
    }
)
_SMALLEST_FILE = 1 << 16
# Words of a plan in which an expression may keep something from row to row (builders of maps, parsers, patterns, what
# is not of Spark itself), and of one that is not told whole.
_STATEFUL = re.compile(
    r"map|json|csv|xml|variant|lambda|udf|sketch|invoke|regexp|like|url|rand|uuid|shuffle\(|str_to|more fields",
    re.IGNORECASE,
)


class PreparedQuery:
    """A query over small tables that are handed in at every run."""

    def __init__(self, catalyst: Catalyst, folder: Path, name: str, shapes: Sequence[LeafShape], build: Build) -> None:
        self._catalyst = catalyst
        # Spark reads no file whose name begins with _, as a view's may.
        self._paths = [folder / f"leaf-{name}.{i}.parquet" for i in range(len(shapes))]
        self._shapes = list(shapes)
        self._build = build
        self._sizes = [0] * len(shapes)
        self._frame: Any = None
        self._reusable = False
        self._direct: DirectRun | None = None
        self._holds_state = True
        self._result = folder / f"{name}.arrow"
        # What runs instead of a plan that cannot be kept, where executors do not read this process's files.
        self._fresh = None if catalyst.is_local else FreshQuery(catalyst, shapes, build)
        self._is_kept = True
        self._lock = threading.Lock()
        self.plans = 0

    def run(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The query's rows, as c0, c1, ...; each table has its leaf's columns in order, the extra ones last."""
        if self._fresh is not None and not self._is_kept:
            return self._fresh.run(tables)
        with self._lock:
            grown = False
            for i, table in enumerate(tables):
                grown = self._write(i, table) or grown
            if self._frame is None or grown:
                self._plan()
                if self._fresh is not None and self._direct is None:
                    self._frame, self._is_kept = None, False
                    return self._fresh.run(tables)
            elif not self._reusable:
                self._frame = self._catalyst.frame(analyzed_plan(self._frame))
            frame: Any = self._frame
            try:
                result: pa.Table = frame.toArrow() if self._direct is None else self._direct.rows()
            except Exception:
                # Some expressions that fail half-way keep what they had begun (a map its keys): planned anew.
                if self._holds_state:
                    self._frame = self._direct = None
                raise
            except BaseException:
                self._frame = self._direct = None
                raise
        return numbered(result)

    def _plan(self) -> None:
        leaves = [self._leaf(i) for i in range(len(self._shapes))]
        self._frame = nullable_frame(self._catalyst.frame(self._build(leaves)))
        executed = self._frame._jdf.queryExecution().executedPlan()
        self._reusable = _reads_anew(executed)
        self._direct = directly(self._catalyst, executed, self._result) if self._reusable else None
        self._holds_state = self._direct is None or _STATEFUL.search(executed.toString()) is not None
        self.plans += 1

    def _leaf(self, i: int) -> Leaf:
        schema = StructType([StructField(f"c{index}", kind, True) for index, kind in self._shapes[i].fields()])
        read = self._catalyst.session.read.schema(schema).parquet(spark_path(self._paths[i]))
        return make_leaf(self._catalyst, self._shapes[i], analyzed_plan(read))

    def _write(self, i: int, table: pa.Table) -> bool:
        """Write one leaf's file at its planned length; True when it had to grow."""
        kept = [index for index, _ in self._shapes[i].fields()]
        columns = [_file_form(table.column(index)) for index in kept]
        written = pa.table(columns, names=[f"c{index}" for index in kept])
        sink = pa.BufferOutputStream()
        pq.write_table(
            written,
            sink,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            store_schema=False,
            coerce_timestamps="us",
        )
        content = memoryview(sink.getvalue())
        size = self._sizes[i]
        grown = len(content) > size
        if grown:
            size = max(_SMALLEST_FILE, 1 << (2 * len(content) - 1).bit_length())
            self._sizes[i] = size
        # A plan remembers each file's length. The footer is found from the end, so the gap goes before it.
        footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        with self._opened(self._paths[i]) as file:
            file.write(content[:footer])
            file.seek(size - len(content), os.SEEK_CUR)
            file.write(content[footer:])
        return grown

    def _opened(self, path: Path) -> IO[bytes]:
        try:
            return open(path, "wb", buffering=0)
        except FileNotFoundError:
            make_again(path.parent)
            return open(path, "wb", buffering=0)


def _file_form(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    return column


def _reads_anew(plan: Java) -> bool:
    if kind_of(plan) not in _FRESH_EACH_RUN or not plan.subqueries().isEmpty():
        return False
    return all(_reads_anew(child) for child in items(plan.children()))
