"""Relations as Spark DataFrames: what queries, fills and the judge read."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, NullType, StructField, StructType

from headrace.plans.catalyst import (
    COLUMN_MARK,
    Catalyst,
    Java,
    analyzed_plan,
    children,
    items,
    nullable_frame,
    nullable_type,
)
from headrace.plans.prepared import conform
from headrace.rules.inputs import repeated
from headrace.sql.resolve import relation_of
from headrace.state.delta import Delta, concat
from headrace.state.store import Run, Snapshot

_IN_MEMORY = 50_000
_GRACE_SECONDS = 600.0
_IDENTITY = ("_headrace_low", "_headrace_high")


class Frames:
    """Makes DataFrames of snapshots; a large run is written once as Parquet and read from there."""

    def __init__(self, catalyst: Catalyst, folder: Path) -> None:
        self.catalyst = catalyst
        self._folder = folder
        self._paths: weakref.WeakKeyDictionary[Run, Path] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self.analysis = threading.RLock()
        self._count = 0
        self._discarded: deque[tuple[float, Path]] = deque()

    def frame(self, snapshot: Snapshot, schema: StructType) -> Any:
        """All rows of a relation."""
        nullable = StructType([StructField(f.name, nullable_type(f.dataType), True) for f in schema.fields])
        if snapshot.size <= _IN_MEMORY:
            return self._in_memory(repeated(snapshot.all()), nullable)
        large = max(snapshot.runs, key=lambda run: len(run.delta))
        rest = concat(snapshot.schema, [run.delta for run in snapshot.runs if run is not large])
        if len(rest) > _IN_MEMORY * 4:
            return self._from_files(Run(snapshot.all()), nullable)
        frame = self._from_files(large, nullable, keep_identity=True)
        if len(rest) == 0:
            return frame.drop(*_IDENTITY)
        present = Snapshot(snapshot.schema, (large,)).contains(rest.low, rest.high)
        touched = pa.table(
            [pa.array(rest.low.view(np.int64)), pa.array(rest.high.view(np.int64))], names=list(_IDENTITY)
        )
        gone = self.catalyst.session.createDataFrame(touched)
        kept = frame.join(F.broadcast(gone), on=list(_IDENTITY), how="left_anti").drop(*_IDENTITY)
        now = rest.weights + present
        alive = np.flatnonzero(now > 0)
        rows = rest.rows.take(pa.array(np.repeat(alive, now[alive])))
        return kept.unionAll(self._in_memory(rows, nullable))

    def _in_memory(self, rows: pa.Table, schema: StructType) -> Any:
        named = pa.table(list(rows.columns), names=[f"c{i}" for i in range(rows.num_columns)])
        positional = StructType([StructField(f"c{i}", f.dataType, True) for i, f in enumerate(schema.fields)])
        return self.catalyst.session.createDataFrame(named, schema=positional).toDF(*schema.names)

    def _from_files(self, run: Run, schema: StructType, keep_identity: bool = False) -> Any:
        with self._lock:
            path = self._paths.get(run)
            if path is None:
                self._count += 1
                path = self._folder / f"run-{self._count}.parquet"
                _write_run(run.delta, path)
                self._paths[run] = path
                weakref.finalize(run, self._discard, path)
        positional = StructType([StructField(f"c{i}", f.dataType, True) for i, f in enumerate(schema.fields)])
        full = StructType([*positional.fields, *(StructField(name, LongType(), False) for name in _IDENTITY)])
        frame = self.catalyst.session.read.schema(full if keep_identity else positional).parquet(str(path))
        return frame.toDF(*schema.names, *(_IDENTITY if keep_identity else ()))

    def _discard(self, path: Path) -> None:
        """Let go of a file whose run is gone, once no query that was made of it can still be running."""
        now = time.monotonic()
        self._discarded.append((now, path))
        while self._discarded and now - self._discarded[0][0] > _GRACE_SECONDS:
            self._discarded.popleft()[1].unlink(missing_ok=True)

    def bind(
        self,
        plan: Java,
        relations: Callable[[str], tuple[Snapshot, StructType]],
        known: Sequence[tuple[Java, Any]] = (),
    ) -> Any:
        """A DataFrame of a marked plan, its leaves replaced by what the relations hold, known parts by their frames."""
        made: dict[str, Any] = {}

        def relation(name: str) -> Any:
            if name not in made:
                snapshot, schema = relations(name)
                made[name] = self.frame(snapshot, schema)
            return made[name]

        return self.catalyst.frame(self._bound(plan, relation, known))

    def _bound(self, plan: Java, relation: Callable[[str], Any], known: Sequence[tuple[Java, Any]]) -> Java:
        for part, frame in known:
            if part.fastEquals(plan):
                real = analyzed_plan(frame)
                pairs = zip(items(real.output()), items(plan.output()), strict=False)
                return self.catalyst.project([self.catalyst.alias(r, c.name(), c.exprId()) for r, c in pairs], real)
        below = children(plan)
        if below:
            return plan.withNewChildren(self.catalyst.seq([self._bound(child, relation, known) for child in below]))
        name = relation_of(plan)
        if name is None:
            return plan
        real = analyzed_plan(relation(name))
        columns = items(real.output())
        return self.catalyst.project(
            [
                self.catalyst.alias(columns[int(c.metadata().getLong(COLUMN_MARK))], c.name(), c.exprId())
                for c in items(plan.output())
            ],
            real,
        )

    def collect(self, frame: Any, schema: StructType, large: bool) -> pa.Table:
        """All rows of a DataFrame as c0, c1, ...; a large one is written by Spark and read from its files."""
        types = [field.dataType for field in schema.fields]
        renamed = nullable_frame(frame.toDF(*(f"c{i}" for i in range(len(types)))))
        if not large or not types or any(isinstance(kind, NullType) for kind in types):
            return conform(renamed.toArrow(), types)
        with self._lock:
            self._count += 1
            path = self._folder / f"fill-{self._count}.parquet"
        renamed.write.parquet(str(path))
        table = pq.read_table(path)
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
        return conform(_instants(table), types)


def _instants(table: pa.Table) -> pa.Table:
    """Timestamps in microseconds: Spark's files may hold nanoseconds."""
    columns = [
        c.cast(pa.timestamp("us", "UTC" if c.type.tz else None)) if pa.types.is_timestamp(c.type) else c
        for c in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _write_run(delta: Delta, path: Path) -> None:
    places = np.repeat(np.arange(len(delta)), np.maximum(delta.weights, 0))
    rows = delta.rows if len(places) == len(delta) else delta.rows.take(pa.array(places))
    low, high = delta.low[places].view(np.int64), delta.high[places].view(np.int64)
    columns = [*rows.columns, pa.array(low), pa.array(high)]
    names = [*(f"c{i}" for i in range(rows.num_columns)), *_IDENTITY]
    pq.write_table(pa.table(columns, names=names), path, row_group_size=250_000, coerce_timestamps="us")
