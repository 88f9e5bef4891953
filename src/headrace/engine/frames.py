"""Relations as Spark DataFrames: what queries, fills and the judge read."""

from __future__ import annotations

import shutil
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, NullType, StructField, StructType

from headrace.plans.catalyst import Catalyst, analyzed_plan, arrow_schema, nullable_frame, nullable_type
from headrace.plans.prepared import conform
from headrace.plans.trees import Java, children, columns_of, place_of
from headrace.rules.inputs import repeated
from headrace.sql.resolve import relation_of
from headrace.state import mapped
from headrace.state.delta import Delta, group
from headrace.state.store import Run, Snapshot, take_run

_IN_MEMORY = 50_000
_KEPT_ROWS = 2_000
_KEPT_FRAMES = 64
_GRACE_SECONDS = 600.0
_IDENTITY = ("_headrace_low", "_headrace_high")


@dataclass(frozen=True, eq=False)
class Content:
    """A relation's rows: those of files, without the identities that are gone, those of a rest, and some at hand.

    `kept` is what a file is there for as long as it is, where that is not a run of the relation.
    """

    files: tuple[Path, ...]
    gone: pa.Table | None
    rows: pa.Table
    rest: Path | None = None
    kept: object = None


class Frames:
    """Makes DataFrames of snapshots; a large run is written once as Parquet and read from there."""

    def __init__(self, catalyst: Catalyst, folder: Path) -> None:
        self.catalyst = catalyst
        self._folder = folder
        self._paths: weakref.WeakKeyDictionary[Run, Path] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self.analysis = threading.RLock()
        # Folders that Spark wrote, by the id of the rows that were read from them.
        self._kept: dict[int, tuple[weakref.ref[pa.Table], Path]] = {}
        self._lately: dict[tuple[object, StructType], Any] = {}
        self._count = 0
        self._discarded: deque[tuple[float, Path]] = deque()

    def frame(self, held: Snapshot | Content, schema: StructType) -> Any:
        """All rows of a relation."""
        nullable = StructType([StructField(f.name, nullable_type(f.dataType), True) for f in schema.fields])
        snapshot = held
        if isinstance(held, Snapshot):
            if held.size <= _IN_MEMORY:
                return self._small(held.runs, lambda: repeated(held.all()), held.size, nullable)
            held = self.content(held)
        elif not held.files:
            return self._small(held, lambda: held.rows, held.rows.num_rows, nullable)
        return hold(self._of(held, nullable), held, snapshot)

    def content(self, snapshot: Snapshot) -> Content:
        """The rows of a relation as files and small tables, from which any Spark of this machine makes a frame."""
        nothing = snapshot.schema.empty_table()
        if snapshot.size <= _IN_MEMORY:
            return Content((), None, repeated(snapshot.all()))
        large = [run for run in snapshot.runs if len(run.delta) > _IN_MEMORY]
        if not large:
            whole = Run(snapshot.all())
            return Content((self._file(whole),), None, nothing, kept=whole)
        # What small runs hold, and what large ones take away, is counted over all runs and kept apart from the files.
        apart = [run.delta for run in snapshot.runs if len(run.delta) <= _IN_MEMORY]
        apart.extend(take_run(run.delta, np.flatnonzero(run.delta.weights < 0)) for run in large if run.cancelling)
        touched = pa.concat_tables([_identities(part) for part in apart]) if apart else None
        if touched is None or touched.num_rows == 0:
            return Content(tuple(self._as_written(run) for run in large), None, nothing)
        files, gone, rows = tuple(self._file(run) for run in large), touched.combine_chunks(), _alive(snapshot, apart)
        if rows.num_rows <= _IN_MEMORY:
            return Content(files, gone, rows)
        path = self._written(rows)
        content = Content(files, gone, nothing, path)
        # Whoever reads it has the content or a frame of it, and with many queries such files come to much.
        weakref.finalize(content, _remove, path)
        return content

    def _of(self, content: Content, schema: StructType) -> Any:
        """The rows of files, without those that are gone, and those beside them."""
        extra = () if content.gone is None else _IDENTITY
        frame = reduce(DataFrame.unionAll, [self._read(path, schema, extra) for path in content.files])
        if content.gone is not None:
            gone = self.catalyst.session.createDataFrame(content.gone)
            frame = frame.join(F.broadcast(gone), on=list(_IDENTITY), how="left_anti").drop(*_IDENTITY)
        if content.rest is not None:
            frame = frame.unionAll(self._read(content.rest, schema, ()))
        if content.rows.num_rows:
            frame = frame.unionAll(self._in_memory(content.rows, schema))
        return frame

    def rows(self, snapshot: Snapshot, schema: StructType, large: bool) -> pa.Table:
        """All rows of a relation as c0, c1, ...: large ones as Spark reads them, small ones as they are held."""
        if snapshot.size > _IN_MEMORY:
            return self.collect(self.frame(snapshot, schema), schema, large)
        return conform(repeated(snapshot.all()), [field.dataType for field in schema.fields])

    def _small(self, held: object, rows: Callable[[], pa.Table], size: int, schema: StructType) -> Any:
        """The rows of a small relation; a frame of few rows is kept for the next query."""
        if size > _KEPT_ROWS:
            return self._in_memory(rows(), schema)
        key = held, schema
        with self._lock:
            frame = self._lately.pop(key, None)
        if frame is None:
            frame = self._in_memory(rows(), schema)
        with self._lock:
            self._lately[key] = frame
            if len(self._lately) > _KEPT_FRAMES:
                del self._lately[next(iter(self._lately))]
        return frame

    def _in_memory(self, rows: pa.Table, schema: StructType) -> Any:
        named = pa.table(list(rows.columns), names=[f"c{i}" for i in range(rows.num_columns)])
        positional = StructType([StructField(f"c{i}", f.dataType, True) for i, f in enumerate(schema.fields)])
        return self.catalyst.session.createDataFrame(named, schema=positional).toDF(*schema.names)

    def _as_written(self, run: Run) -> Path:
        """Where the rows lie that a run brings: in Spark's own files where it was made of them."""
        made, path = self._kept.get(id(run.delta.rows), (None, None))
        if path is not None and made is not None and made() is run.delta.rows:
            return path
        return self._file(run)

    def _file(self, run: Run) -> Path:
        """The file of the rows that a run brings, with their identities."""
        with self._lock:
            path = self._paths.get(run)
            if path is None:
                path = self._new_path("run")
                _write_run(run.delta, path)
                self._paths[run] = path
                weakref.finalize(run, self._discard, path)
        return path

    def _written(self, rows: pa.Table) -> Path:
        """A file of its own for rows."""
        with self._lock:
            path = self._new_path("rows")
        pq.write_table(pa.table(list(rows.columns), names=[f"c{i}" for i in range(rows.num_columns)]), path)
        return path

    def _new_path(self, kind: str) -> Path:
        self._count += 1
        return self._folder / f"{kind}-{self._count}.parquet"

    def _read(self, path: Path, schema: StructType, extra: Sequence[str]) -> Any:
        fields = [StructField(f"c{i}", f.dataType, True) for i, f in enumerate(schema.fields)]
        full = StructType([*fields, *(StructField(name, LongType(), False) for name in extra)])
        return self.catalyst.session.read.schema(full).parquet(str(path)).toDF(*schema.names, *extra)

    def _discard(self, path: Path) -> None:
        """Let go of a file whose run is gone, once no query that was made of it can still be running."""
        now = time.monotonic()
        self._discarded.append((now, path))
        while self._discarded and now - self._discarded[0][0] > _GRACE_SECONDS:
            _remove(self._discarded.popleft()[1])

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

        return hold(self.catalyst.frame(self._bound(plan, relation, known)), made, known)

    def _bound(self, plan: Java, relation: Callable[[str], Any], known: Sequence[tuple[Java, Any]]) -> Java:
        for part, frame in known:
            if part.fastEquals(plan):
                real = analyzed_plan(frame)
                pairs = zip(columns_of(real), columns_of(plan), strict=False)
                return self.catalyst.project([self.catalyst.alias(r, c.name(), c.exprId()) for r, c in pairs], real)
        below = children(plan)
        if below:
            return plan.withNewChildren(self.catalyst.seq([self._bound(child, relation, known) for child in below]))
        name = relation_of(plan)
        if name is None:
            return plan
        real = analyzed_plan(relation(name))
        columns = columns_of(real)
        return self.catalyst.project(
            [self.catalyst.alias(columns[place_of(c)], c.name(), c.exprId()) for c in columns_of(plan)],
            real,
        )

    def collect(self, frame: Any, schema: StructType, large: bool, keep: bool = False) -> pa.Table:
        """All rows of a DataFrame as c0, c1, ...; a large one is written by Spark and read from its files.

        Those files are kept where the rows will be read by Spark again soon.
        """
        types = [field.dataType for field in schema.fields]
        renamed = nullable_frame(frame.toDF(*(f"c{i}" for i in range(len(types)))))
        if not large or not types or any(isinstance(kind, NullType) for kind in types):
            return conform(renamed.toArrow(), types)
        with self._lock:
            path = self._new_path("fill")
        renamed.write.parquet(str(path))
        files = sorted(path.glob("*.parquet"))
        table = mapped.rows(arrow_schema(types), (conform(_instants(part), types) for part in _parts(files)))
        if keep and table.num_rows > _IN_MEMORY:
            self._kept[id(table)] = weakref.ref(table), path
            weakref.finalize(table, self._let_go, id(table), path)
        else:
            shutil.rmtree(path)
        return table

    def _let_go(self, rows: int, path: Path) -> None:
        self._kept.pop(rows, None)
        self._discard(path)


def hold(frame: Any, *parts: object) -> Any:
    """A frame, and with it the parts that it was made of: their files are there for as long as it may read them."""
    weakref.finalize(frame, id, parts)
    return frame


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _parts(files: Sequence[Path]) -> Iterator[pa.Table]:
    """The rows of Parquet files, a bounded number at a time."""
    for path in files:
        # Spark writes timestamps in a form that is read as nanoseconds, which end in 1677, unless it is told otherwise.
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            for batch in file.iter_batches(batch_size=mapped.LARGE):
                yield pa.Table.from_batches([batch])


def _identities(delta: Delta) -> pa.Table:
    columns = [pa.array(delta.low.view(np.int64)), pa.array(delta.high.view(np.int64))]
    return pa.table(columns, names=list(_IDENTITY))


def _alive(snapshot: Snapshot, apart: Sequence[Delta]) -> pa.Table:
    """The rows of these deltas, each as often as the whole snapshot holds it."""
    rows = pa.concat_tables([part.rows for part in apart])
    low, high = np.concatenate([part.low for part in apart]), np.concatenate([part.high for part in apart])
    firsts, _ = group(low, high)
    present = snapshot.contains(low[firsts], high[firsts])
    return rows.take(pa.array(np.repeat(firsts, np.maximum(present, 0))))


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
    # Numbers of other columns seldom repeat, and to find that out costs more than it saves.
    strings = [name for name, column in zip(names, columns, strict=True) if pa.types.is_string(column.type)]
    pq.write_table(
        pa.table(columns, names=names),
        path,
        row_group_size=250_000,
        use_dictionary=strings,  # pyright: ignore[reportArgumentType]
        coerce_timestamps="us",
    )
