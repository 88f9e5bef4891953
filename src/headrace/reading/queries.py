"""Ad-hoc queries: plain Spark over one consistent epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.plans.catalyst import nullable_frame
from headrace.plans.failures import FAILURES
from headrace.plans.literals import Literals
from headrace.reading.frames import Content, Frames, hold
from headrace.sql.allowed import frame_of, parse_query
from headrace.sql.made_query import Piece
from headrace.sql.names import quoted
from headrace.sql.query_errors import query_error
from headrace.sql.resolve import KnownColumns
from headrace.state.arrow_types import arrow_type
from headrace.state.state import State

Relations = Mapping[str, tuple[State, StructType]]
# What a query reads: relations of this process, or their contents as the owner of a home gave them.
Readable = Mapping[str, tuple[State | Content, StructType]]


class Queries:
    """Answers queries; analysis is done by one caller at a time, because it goes by registered names."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self._query_names_lock = frames.query_names_lock
        self._registered: set[str] = set()

    @cached_property
    def literals(self) -> Literals:
        """Reads rows of constants without a job."""
        return Literals(self.frames.catalyst)

    def frame(
        self,
        sql: str,
        relations: Readable,
        line: int = 1,
        column: int = 1,
        known_columns: Mapping[str, KnownColumns] = MappingProxyType({}),
        pieces: Sequence[Piece] = (),
        *,
        as_tables: bool = False,
    ) -> Any:
        """A DataFrame of a query over the given relations, some of them by the columns that it knows only.

        It begins at this line and column of a script, or is made of these pieces of it. Relations read as tables are
        those whose rows Spark's optimizer does not know.
        """
        catalyst = self.frames.catalyst
        read = self.frames.table if as_tables else self.frames.frame
        parsed = parse_query(catalyst, sql, line, column, pieces)
        named = {name: relations[name] for name in parsed.names.intersection(relations)}
        with self._query_names_lock:
            for name in self._registered - set(relations):
                catalyst.session.catalog.dropTempView(name)
            self._registered = set()
            parts: list[Any] = []
            try:
                for name, relation in named.items():
                    frame = read(*relation)
                    parts.append(frame)
                    if name in known_columns:
                        plain = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))
                        frame = plain.select(*(F.col(f"c{index}").alias(label) for index, label in known_columns[name]))
                    frame.createOrReplaceTempView(quoted(name))
                    self._registered.add(name)
                return hold(frame_of(catalyst, parsed), parts)
            except FAILURES as error:
                raise query_error(error, line, column, pieces) from None
            finally:
                for name in self._registered:
                    catalyst.session.catalog.dropTempView(name)

    def run(self, sql: str, relations: Readable, line: int = 1, column: int = 1, rows: int | None = None) -> pa.Table:
        """The rows of a query; at most so many, if a number is given."""
        frame = self.frame(sql, relations, line, column)
        try:
            answer = nullable_frame(frame if rows is None else frame.limit(rows))
            # Planned here: in the thread that Spark collects in, an error of the planner would never reach us.
            answer._jdf.queryExecution().executedPlan()
            table = answer.toArrow()
        except FAILURES as error:
            raise query_error(error, line, column) from None
        columns = [
            c if c.type.equals(arrow_type(f.dataType)) else c.cast(arrow_type(f.dataType))
            for c, f in zip(table.columns, frame.schema.fields, strict=True)
        ]
        return pa.table(columns, names=frame.columns)
