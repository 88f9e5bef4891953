"""What plain Spark says a view must be, and how two answers are compared.

Rows are compared as multisets, column names and Spark types included. DOUBLE and FLOAT count to nine
significant digits (and below 1e-12 as zero: sums of statistics that cancel leave such dust, in Spark's
own result too, depending on the order of rows); NaN equals NaN, 0.0 equals -0.0, a map is its entries;
everything else must be exactly equal.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tests.judge.model import Model
from tests.judge.schemas import TABLES

Values: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = "Counter[Values]"

# PySpark logs every refused query with its Java stack, and being refused is ordinary here.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

# What Spark raises: its own tree, or, for a defect inside it, the bare Java error.
SPARK_ERRORS = (PySparkException, Py4JError)

DUST = 1e-12
SHOWN = 8

# Tiny data: one partition and no generated code make a query several times faster.
SMALL = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    # Rows that Spark's optimizer can look at make other answers of it than a table does.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}


@dataclass(frozen=True)
class Answer:
    """A result: its columns as (name, Spark type) and its rows as a multiset of canonical values."""

    columns: tuple[tuple[str, str], ...]
    rows: Rows


class Oracle:
    """A Spark session of its own in which the model's rows are temporary views."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = small_session(spark)

    def load(self, model: Model, names: Iterable[str] | None = None, *, backwards: bool = False) -> None:
        """Make the temporary views of these tables (all when not named) equal to the model."""
        for name in model if names is None else names:
            table = model[name]
            rows = table.arrow()
            if backwards:
                rows = rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64()))
            # Of no rows, too, Spark is to know nothing beforehand.
            frame = self.spark.createDataFrame(rows if rows.num_rows else [], schema=table.table.struct)
            frame.createOrReplaceTempView(name)

    def define(self, view: str, sql: str) -> None:
        """Name a query, so that later ones may read it."""
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {sql}")

    def run(self, sql: str) -> Answer:
        frame = self.spark.sql(sql)
        table = _arrow(frame)
        columns = tuple((field.name, field.dataType.simpleString()) for field in frame.schema.fields)
        return Answer(columns, canonical_rows(table))

    def schema(self, sql: str) -> StructType:
        """The columns of the query; raises what Spark raises when it refuses it."""
        return self.spark.sql(sql).schema


def small_session(spark: SparkSession) -> SparkSession:
    """A session beside the given one, tuned for tiny data; the given one keeps its settings."""
    session = spark.newSession()
    for name, value in SMALL.items():
        session.conf.set(name, value)
    return session


def expected(spark: SparkSession, sql: str, model: Model) -> Answer:
    """What Spark gives for the SQL over the model's rows."""
    oracle = Oracle(spark)
    oracle.load(model)
    return oracle.run(sql)


def read_columns(spark: SparkSession, sql: str, tables: Iterable[str]) -> dict[str, frozenset[str]]:
    """The columns of each table on which the query depends: it cannot be analysed without them."""
    session = small_session(spark)
    for name in tables:
        session.createDataFrame([], schema=TABLES[name].struct).createOrReplaceTempView(name)
    whole = session.sql(sql).schema
    reads: dict[str, frozenset[str]] = {}
    for name in tables:
        empty = session.createDataFrame([], schema=TABLES[name].struct)
        needed: set[str] = set()
        for column in TABLES[name].names:
            empty.drop(column).createOrReplaceTempView(name)
            try:
                if session.sql(sql).schema != whole:
                    needed.add(column)
            except SPARK_ERRORS:
                needed.add(column)
        empty.createOrReplaceTempView(name)
        reads[name] = frozenset(needed)
    return reads


def answer_of(table: pa.Table) -> Answer:
    """An Arrow table, as Headrace returns it, as an answer."""
    columns = tuple((field.name, _spark_type(field.type)) for field in table.schema)
    return Answer(columns, canonical_rows(table))


def same(expected: Answer, actual: Answer) -> str | None:
    """None when both are equal, else the difference in words."""
    if expected.columns != actual.columns:
        return f"columns differ\n  Spark:    {_columns(expected)}\n  Headrace: {_columns(actual)}"
    if expected.rows == actual.rows:
        return None
    missing, extra = _rounded(expected.rows), _rounded(actual.rows)
    missing, extra = missing - extra, extra - missing
    _match_close(missing, extra)
    if not missing and not extra:
        return None
    names = ", ".join(name for name, _ in expected.columns)
    return "\n".join(
        [
            f"rows differ ({names}); Spark has {expected.rows.total()}, Headrace {actual.rows.total()}",
            *_listed("missing", missing),
            *_listed("too many", extra),
        ]
    )


def canonical_rows(table: pa.Table) -> Rows:
    """The rows as a multiset of canonical values."""
    return Counter(canonical_list(table))


def canonical_list(table: pa.Table) -> list[Values]:
    """The rows in their order, as hashable values that are equal where Spark's grouping says equal."""
    if table.num_columns == 0:
        return [()] * table.num_rows
    columns: list[list[Any]] = []
    for index, field in enumerate(table.schema):
        fix = _canonical(field.type)
        values = table.column(index).to_pylist()
        columns.append(values if fix is None else [None if v is None else fix(v) for v in values])
    return list(zip(*columns, strict=True))


def _canonical(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How a value of this type becomes hashable and canonical; None: it already is."""
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_map(kind):
        key, item = _inner(kind.key_type), _inner(kind.item_type)
        return lambda entries: tuple(sorted(((key(k), item(v)) for k, v in entries), key=repr))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _inner(kind.value_type)
        return lambda values: tuple(inner(value) for value in values)
    if pa.types.is_struct(kind):
        inners = [(kind.field(i).name, _inner(kind.field(i).type)) for i in range(kind.num_fields)]
        return lambda value: tuple(inner(value[name]) for name, inner in inners)
    return None


def _inner(kind: pa.DataType) -> Callable[[Any], Any]:
    fix = _canonical(kind)
    return lambda value: None if value is None else value if fix is None else fix(value)


def _float(value: float) -> float | str:
    # NaN is not equal to itself in Python, so it travels as a word.
    return "NaN" if math.isnan(value) else value + 0.0


def _spark_type(kind: pa.DataType) -> str:
    return from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString()


def _arrow(frame: DataFrame) -> pa.Table:
    try:
        return frame.toArrow()
    except (PySparkException, pa.ArrowInvalid):
        return _arrow_by_rows(frame)


def _arrow_by_rows(frame: DataFrame) -> pa.Table:
    """The slow way round, for nullable structs with children that are not, which toArrow refuses."""
    schema = to_arrow_schema(_nullable(frame.schema), timezone="UTC")
    rows = frame.collect()
    arrays: list[pa.Array] = []
    for index, field in enumerate(frame.schema.fields):
        values = [_python(row[index], field.dataType) for row in rows]
        arrays.append(pa.array(values, type=schema.field(index).type))
    return pa.table(arrays, schema=schema)


def _python(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {f.name: _python(value[i], f.dataType) for i, f in enumerate(kind.fields)}
    if isinstance(kind, ArrayType):
        return [_python(item, kind.elementType) for item in value]
    if isinstance(kind, MapType):
        return [(_python(k, kind.keyType), _python(v, kind.valueType)) for k, v in value.items()]
    return value


def _nullable(kind: Any) -> Any:
    if isinstance(kind, StructType):
        copy = StructType()
        for field in kind.fields:
            copy.add(field.name, _nullable(field.dataType), True)
        return copy
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def _rounded(rows: Rows) -> Rows:
    rounded: Rows = Counter()
    for values, count in rows.items():
        rounded[tuple(_round(value) for value in values)] += count
    return rounded


def _round(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_round(item) for item in value)
    if isinstance(value, float) and math.isfinite(value):
        return 0.0 if abs(value) < DUST else float(f"{value:.8e}")
    return value


def _match_close(missing: Rows, extra: Rows) -> None:
    """Take out the rows that rounding put on two sides of one boundary."""
    for left in list(missing):
        for right in list(extra):
            if missing[left] > 0 and extra[right] > 0 and _close(left, right):
                common = min(missing[left], extra[right])
                missing[left] -= common
                extra[right] -= common
    for rows in (missing, extra):
        for values in [values for values, count in rows.items() if count <= 0]:
            del rows[values]


def _close(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_close, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=2e-9, abs_tol=DUST)
    return type(left) is type(right) and left == right


def _columns(answer: Answer) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in answer.columns)


def _listed(word: str, rows: Rows) -> list[str]:
    if not rows:
        return []
    lines = [f"  {word}: {rows.total()}"]
    for values, count in sorted(rows.items(), key=repr)[:SHOWN]:
        shown = ", ".join(str(value) if not isinstance(value, str) else ascii(value) for value in values)
        lines.append(f"    ({shown})" + (f" x{count}" if count > 1 else ""))
    if len(rows) > SHOWN:
        lines.append(f"    and {len(rows) - SHOWN} other rows")
    return lines
