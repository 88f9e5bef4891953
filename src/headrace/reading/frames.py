"""Relations as Spark DataFrames: what queries, fills and the judge read."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, NullType, StructField, StructType

from headrace.errors import WorkFailed
from headrace.ledger.durable import digest_of
from headrace.ledger.written import Part, Written
from headrace.plans.catalyst import Catalyst, analyzed_plan, nullable_frame
from headrace.plans.trees import Java, children, column_index, columns_of
from headrace.reading.files import IDENTITY, WEIGHT, File, Files, remove, weighed
from headrace.sql.resolve import relation_of
from headrace.state import mapped
from headrace.state.arrow_types import arrow_schema, conform, nullable_type
from headrace.state.delta import Delta, Weights, consolidate
from headrace.state.hashing import Hashes
from headrace.state.repeat import repeat
from headrace.state.state import State
from headrace.storage.scratch import spark_path

_IN_MEMORY = 50_000
_KEPT_ROWS = 2_000
_KEPT_FRAMES = 64
_STRIDE = 65_536
_IDENTITIES = StructType([StructField(name, LongType(), False) for name in IDENTITY])


@dataclass(frozen=True, eq=False)
class Content:
    """A relation's rows: those of files, without the identities that are gone, those of a rest, and some at hand.

    Of rows that are there more than once, one is at hand, with weights as a last column: only who reads them repeats
    them. `kept` is what a file is there for as long as it is, where that is not a run of the relation.
    """

    files: tuple[File, ...]
    gone: pa.Table | None
    rows: pa.Table
    rest: File | None = None
    kept: object = None

    @property
    def is_there(self) -> bool:
        """Whether nobody has removed one of its files."""
        return all(file.is_there for file in (*self.files, *(() if self.rest is None else (self.rest,))))

    @property
    def size(self) -> int:
        """The bytes that are there for it alone: its tables, and the files that go with it."""
        own = [*(self.files if self.kept is not None else ()), *(() if self.rest is None else (self.rest,))]
        tables = self.rows.nbytes + (0 if self.gone is None else self.gone.nbytes)
        return tables + sum(file.path.stat().st_size for file in own)


class Frames:
    """Makes DataFrames of snapshots; a large run is written once as Parquet and read from there."""

    def __init__(self, catalyst: Catalyst, files: Files) -> None:
        self.catalyst = catalyst
        self._files = files
        self._lock = threading.Lock()
        # Relations are registered for a while under the names that one query alone reads.
        self.query_names_lock = threading.RLock()
        self._lately: dict[tuple[object, StructType], Any] = {}

    def frame(self, held: State | Content, schema: StructType) -> Any:
        """All rows of a relation."""
        nullable = StructType([StructField(f.name, nullable_type(f.dataType), True) for f in schema.fields])
        snapshot = held
        if not isinstance(held, Content):
            if held.size <= _IN_MEMORY:
                return self._small(held.made_of, lambda: _whole(held), held.size, nullable)
            held = self.content(held)
        elif not held.files:
            return self._small(held, lambda: held.rows, held.rows.num_rows, nullable)
        return hold(self._of(held, nullable), held, snapshot)

    def table(self, held: State | Content, schema: StructType) -> Any:
        """All rows of a relation, of which Spark's optimizer knows no more than of a table."""
        frame = self.frame(held, schema)
        if held.files if isinstance(held, Content) else held.size > _IN_MEMORY:
            return frame
        return hold(self.catalyst.opaque(frame), frame)

    def content(self, snapshot: State) -> Content:
        """The rows of a relation as files and small tables, from which any Spark of this machine makes a frame."""
        nothing = snapshot.schema.empty_table()
        if snapshot.size <= _IN_MEMORY:
            return Content((), None, _whole(snapshot))
        stretches = snapshot.stretches(_IN_MEMORY)
        if stretches.made:
            return Content(tuple(map(self._files.of, stretches.long)), None, nothing, kept=stretches)
        if stretches.replaced is None:
            return Content(tuple(map(self._files.as_written, stretches.long)), None, nothing)
        files, gone = tuple(map(self._files.of, stretches.long)), _identities(*stretches.replaced)
        rows = weighed(stretches.rows, stretches.weights)
        if rows.num_rows <= _IN_MEMORY:
            return Content(files, gone, rows)
        rest = self._files.write(rows)
        content = Content(files, gone, nothing, rest)
        # Whoever reads it has the content or a frame of it, and with many queries such files come to much.
        weakref.finalize(content, remove, rest.path)
        return content

    def _of(self, content: Content, schema: StructType) -> Any:
        """The rows of files, without those that are gone, and those beside them."""
        columns = [f"c{i}" for i in range(len(schema.fields))]
        weights = [WEIGHT] if any(file.weighted for file in content.files) else []
        identity: list[str] = [] if content.gone is None else list(IDENTITY)
        parts = [self._read(file, schema, [*weights, *identity]) for file in content.files]
        frame = reduce(DataFrame.unionAll, parts)
        if content.gone is not None:
            gone = self.catalyst.data(content.gone, _IDENTITIES)
            frame = frame.join(F.broadcast(gone), on=identity, how="left_anti")
        frame = self._repeated(frame, columns) if weights else frame.select(*columns)
        if content.rest is not None:
            rest = self._read(content.rest, schema, [WEIGHT] if content.rest.weighted else [])
            frame = frame.unionAll(self._repeated(rest, columns) if content.rest.weighted else rest)
        if content.rows.num_rows:
            frame = frame.unionAll(self._in_memory(content.rows, schema))
        return frame.toDF(*schema.names)

    def rows(self, snapshot: State, schema: StructType, large: bool) -> pa.Table:
        """All rows of a relation as c0, c1, ...: large ones as Spark reads them, small ones as they are held."""
        if max(snapshot.size, snapshot.count) > _IN_MEMORY:
            return self.collect(self.frame(snapshot, schema), schema, large)
        held = snapshot.all()
        return conform(repeat(held.rows, held.weights), [field.dataType for field in schema.fields])

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
        columns = [f"c{i}" for i in range(len(schema.fields))]
        fields = [StructField(name, f.dataType, True) for name, f in zip(columns, schema.fields, strict=True)]
        weighted = rows.num_columns > len(fields)
        if weighted:
            fields.append(StructField(WEIGHT, LongType(), True))
        named = pa.table(list(rows.columns), names=[field.name for field in fields])
        frame = self.catalyst.data(named, StructType(fields))
        return (self._repeated(frame, columns) if weighted else frame).toDF(*schema.names)

    def _repeated(self, frame: Any, columns: Sequence[str]) -> Any:
        """Rows as often as their weights say, so many of one at a time."""
        stride = F.expr(f"explode(sequence(0L, ({WEIGHT} - 1) div {_STRIDE}))").alias("_headrace_stride")
        times = F.expr(f"least({_STRIDE}L, {WEIGHT} - _headrace_stride * {_STRIDE})").alias("_headrace_times")
        counted = frame.select(*columns, WEIGHT, stride).select(*columns, times)
        plan = analyzed_plan(counted)
        return self.catalyst.frame(self.catalyst.repeated(plan, columns_of(plan)[-1])).select(*columns)

    def _read(self, file: File, schema: StructType, extra: Sequence[str]) -> Any:
        """The rows of a file as c0, c1, ..., with extra columns; where each lies once, its weight is 1."""
        fields = [StructField(f"c{i}", f.dataType, True) for i, f in enumerate(schema.fields)]
        there = [name for name in extra if name != WEIGHT or file.weighted]
        full = StructType([*fields, *(StructField(name, LongType(), False) for name in there)])
        frame = self.catalyst.session.read.schema(full).parquet(*map(spark_path, file.paths))
        columns = [F.col(name) if name in full.names else F.lit(1).cast("long").alias(name) for name in extra]
        return frame.select(*(field.name for field in fields), *columns)

    def bind(
        self,
        plan: Java,
        relations: Callable[[str], tuple[State, StructType]],
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
            [self.catalyst.alias(columns[column_index(c)], c.name(), c.exprId()) for c in columns_of(plan)],
            real,
        )

    def collect(self, frame: Any, schema: StructType, large: bool) -> pa.Table:
        """All rows of a DataFrame as c0, c1, ...; a large one is written by Spark and read from its files."""
        types = [field.dataType for field in schema.fields]
        numbered = nullable_frame(frame.toDF(*(f"c{i}" for i in range(len(types)))))
        if not _is_written(types, large):
            return conform(numbered.toArrow(), types)
        path = self._files.new_path("collected")
        try:
            return self._through_files(numbered, types, path)
        finally:
            remove(path)

    def fill(self, frame: Any, schema: StructType, large: bool, weighted: bool = False) -> Delta:
        """All rows of a DataFrame as a delta; if it is weighted, a last column says how often each is there.

        Files that Spark writes on the way are kept as long as the rows: to be read by Spark again, and for the log.
        """
        types = [field.dataType for field in schema.fields]
        width, names = len(types), [f"c{i}" for i in range(len(types))]
        if not types and not weighted:
            return consolidate(arrow_schema([]).empty_table(), np.ones(frame.count(), dtype=np.int64))
        kinds = [*types, LongType()] if weighted else types
        named = frame.toDF(*names, WEIGHT) if weighted else frame.toDF(*names)
        if not _is_written(types, large):
            table = conform(nullable_frame(named).toArrow(), kinds)
            return consolidate(table.select(list(range(width))), _weights(table, width))
        path = self._files.new_path("fill")
        kept = False
        try:
            whole = named if weighted else named.withColumn(WEIGHT, F.lit(1).cast("long"))
            parts: list[Part] = []
            table = self._through_files(nullable_frame(whole).toDF(*names, WEIGHT), kinds, path, parts.append)
            weights = _weights(table, width)
            delta = consolidate(table.select(list(range(width))), weights)
            # Rows of which some are equal have become fewer.
            kept = table.num_rows > _IN_MEMORY and len(delta) == table.num_rows
        finally:
            if not kept:
                remove(path)
        if kept:
            self._files.keep(delta.rows, File(path, bool(np.any(weights != 1)), tuple(parts)))
        return delta

    def written(self, delta: Delta) -> Written | None:
        """A delta with the files that Spark wrote of it, if they are kept and are all that is needed to read it."""
        file = self._files.written(delta.rows)
        if file is None:
            return None
        written = Written(delta, file.parts)
        return written if written.is_readable else None

    def _through_files(
        self, frame: Any, types: Sequence[DataType], path: Path, note: Callable[[Part], None] | None = None
    ) -> pa.Table:
        """The first columns of a frame, of these types, by way of files: mapped, and never in the heap at once."""
        written = self._write(frame, path)
        parts = _parts(sorted(path.glob("*.parquet")), frame.columns[: len(types)], note)
        table = mapped.rows(arrow_schema(types), (conform(part, types) for part in parts))
        if written not in (None, table.num_rows):
            raise _unseen(path, written, table.num_rows)
        return table

    def _write(self, frame: Any, path: Path) -> int | None:
        """Have Spark write a frame to files; how many rows there must be, where another machine may have written them.

        An executor that does not share the folder writes into one of its own, and nobody is told.
        """
        if self.catalyst.is_local:
            frame.write.parquet(spark_path(path))
            return None
        counted = Observation()
        frame.observe(counted, F.count(F.lit(1)).alias("rows")).write.parquet(spark_path(path))
        return counted.get.get("rows", 0)


def _unseen(path: Path, written: int, seen: int) -> WorkFailed:
    return WorkFailed(
        "rows that executors of Spark have written are not seen here",
        detail=f"Of {written} rows, {seen} are in {path.parent}. Nothing of this was committed.",
        hint="see that each machine on which executors run has that folder, and that it is the same everywhere",
    )


def hold(frame: Any, *parts: object) -> Any:
    """A frame, and with it the parts that it was made of: their files are there for as long as it may read them."""
    weakref.finalize(frame, id, parts)
    return frame


def _whole(snapshot: State) -> pa.Table:
    held = snapshot.all()
    return weighed(held.rows, held.weights)


def _is_written(types: Sequence[DataType], large: bool) -> bool:
    """Whether rows go by way of files: many do, if each of their columns has a type there."""
    return large and bool(types) and not any(isinstance(kind, NullType) for kind in types)


def _weights(table: pa.Table, index: int) -> Weights:
    """The weights in a column; where there is none, each row is there once."""
    if table.num_columns == index:
        return np.ones(table.num_rows, dtype=np.int64)
    return table.column(index).to_numpy().astype(np.int64)


def _parts(
    files: Sequence[Path], columns: Sequence[str], note: Callable[[Part], None] | None = None
) -> Iterator[pa.Table]:
    """The rows of Parquet files, a bounded number at a time; whoever wants it is told what each file was."""
    for path in files:
        # Before it is read: what changes while it is read, or later, is found by this.
        digest = "" if note is None else digest_of(path)
        rows, size = 0, path.stat().st_size
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=mapped.LARGE, columns=list(columns)):
                    rows += batch.num_rows
                    yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as error:
            # Spark wrote it whole: whatever has torn it since is of the machine, and may not happen again.
            raise OSError(f"{path} cannot be read: {error}") from error
        if note is not None:
            note(Part(path, rows, digest, size))


def _identities(low: Hashes, high: Hashes) -> pa.Table:
    return pa.table([pa.array(low.view(np.int64)), pa.array(high.view(np.int64))], names=list(IDENTITY))
