"""INSERT, UPDATE and DELETE as changes: what a statement asks Spark, and what it makes of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from headrace.catalog.catalog import Table
from headrace.epoch.batch import Changes
from headrace.epoch.bulk import Bulk, refuse_broken_text
from headrace.epoch.calls import Basis, Call
from headrace.epoch.core import Core
from headrace.errors import HeadraceError, QueryError, QueryStopped, StatementError
from headrace.plans.catalyst import Catalyst
from headrace.plans.failures import FAILURES, is_of_query
from headrace.reading.queries import Queries, Readable, Relations
from headrace.sql.made_query import Piece, make_query
from headrace.sql.query_errors import query_error
from headrace.sql.statements import Delete, Insert, Update
from headrace.state.arrow_types import arrow_type, conform
from headrace.state.state import State
from headrace.statements.moved_keys import refuse_taken_keys

ChangeStatement = Insert | Update | Delete


@dataclass(frozen=True)
class ChangeQuery:
    """What a statement asks before its changes are known: a query, and the types that its columns are cast to.

    The query begins at this line and column of the script, or is made of these pieces of it. One of VALUES, for the
    columns named here, may be constants, which are read without a job.
    """

    sql: str
    types: tuple[DataType, ...]
    line: int
    column: int
    pieces: tuple[Piece, ...] = ()
    values: tuple[str, ...] = ()


# How the rows of a query over these relations are had, cast as Spark casts them.
ReadRows = Callable[[ChangeQuery, Relations], pa.Table]


def work_out(core: Core, statement: ChangeStatement, read: ReadRows | None = None) -> Call:
    """What a statement changes as of the newest epoch, and what that follows from."""
    read = read or partial(_read_here, core)
    # In this order: a definition that is made meanwhile makes the outcome one to be worked out again.
    definitions = core.definitions
    epoch, relations = core.newest()
    looked_at = _LookedAt(relations)
    changes: Changes = {}
    failure: HeadraceError | None = None
    try:
        changes = _changes(core, statement, core.catalog.open_table(statement.table), looked_at, read)
    except QueryStopped:
        raise
    except HeadraceError as error:
        if error.transient or not looked_at.names:
            raise
        failure = error
    return Call(changes, basis=Basis(epoch, definitions, frozenset(looked_at.names)), failure=failure)


def _changes(core: Core, statement: ChangeStatement, table: Table, relations: Relations, read: ReadRows) -> Changes:
    if isinstance(statement, Insert):
        names = _target_columns(table, statement)
        rows = read(_inserted(table, statement, names), relations)
        return {table.name: _insertions(table, _whole_rows(table, rows, names))}
    if isinstance(statement, Delete):
        return {table.name: _removals(table, read(_deleted(table, statement), relations))}
    rows = read(_updated(core.sessions.catalyst, table, statement), relations)
    before, after = _halves(table, rows)
    if any(name.lower() in dict(statement.assignments) for name in table.contract.key):
        refuse_taken_keys(table, relations[table.name][0], before, after)
    return {table.name: _replacements(table, before, after)}


class _LookedAt(Mapping[str, tuple[State, StructType]]):
    """Relations that remember which of them were looked at."""

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> tuple[State, StructType]:
        found = self._relations[name]
        self.names.add(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._relations)

    def __len__(self) -> int:
        return len(self._relations)


def _read_here(core: Core, query: ChangeQuery, relations: Relations) -> pa.Table:
    """The rows of a query, by the Spark of the home itself."""
    with core.spark.working(needed=False):
        return read_rows(core.sessions.queries, query, relations)


def read_rows(queries: Queries, query: ChangeQuery, relations: Readable, large: bool = True) -> pa.Table:
    """The rows of a query over these relations, by the Spark of these queries; by way of files where there are many."""
    constants = queries.literals.rows(query.sql, query.types) if query.values else None
    if constants is not None:
        return constants
    _refuse_unreadable(queries.frames.catalyst, query.pieces)
    frame = queries.frame(query.sql, relations, query.line, query.column, pieces=query.pieces)
    if len(frame.columns) != len(query.types):
        raise StatementError(
            f"INSERT gives {len(frame.columns)} columns for {len(query.types)}",
            hint="give each column of the table a value, or name the columns: INSERT INTO t (a, b) ...",
            line=query.line,
            column=query.column,
        )
    names = [f"c{i}" for i in range(len(query.types))]
    schema = StructType([StructField(name, kind) for name, kind in zip(names, query.types, strict=True)])
    try:
        return _cast(queries, frame.toDF(*names), schema, large)
    except FAILURES as error:
        told = query_error(error, query.line, query.column, query.pieces)
        if query.values and isinstance(told, QueryError):
            _name_column(told, queries, frame.toDF(*names), schema, query.values)
        raise told from None


def _cast(queries: Queries, frame: Any, schema: StructType, large: bool) -> pa.Table:
    """Columns of a frame, cast to what a schema says of them."""
    cast = frame.select(*(F.col(field.name).cast(field.dataType) for field in schema.fields))
    # Planned here: in the thread that Spark collects in, an error of the planner would never reach us.
    cast._jdf.queryExecution().executedPlan()
    return queries.frames.collect(cast, schema, large)


def _name_column(told: QueryError, queries: Queries, frame: Any, schema: StructType, names: Sequence[str]) -> None:
    """Have an error name the column whose values are none of its type, by trying each: of VALUES that costs little."""
    for name, field in zip(names, schema.fields, strict=True):
        try:
            _cast(queries, frame, StructType([field]), large=False)
        except FAILURES as error:
            if is_of_query(error):
                told.detail = f"Column {name} is {field.dataType.simpleString().upper()}. {told.detail}"
                return


def _inserted(table: Table, statement: Insert, names: Sequence[str]) -> ChangeQuery:
    """The rows that INSERT brings, in the types of the columns that it names."""
    sql = f"VALUES {statement.values}" if statement.values is not None else statement.query or ""
    types = tuple(table.schema[name].dataType for name in names)
    values = () if statement.values is None else tuple(names)
    return ChangeQuery(sql, types, statement.query_line, statement.query_column, values=values)


def _updated(catalyst: Catalyst, table: Table, statement: Update) -> ChangeQuery:
    """The rows that UPDATE names, as they are and then as they shall be."""
    assigned = dict(statement.assignments)
    known = [name.lower() for name in table.schema.names]
    for name in assigned:
        if name not in known:
            raise _unknown_column(table, name, statement)
    types = tuple(field.dataType for field in table.schema.fields)
    values = [
        (assigned.get(name.lower(), name), str(catalyst.java_type(kind).sql()))
        for name, kind in zip(table.schema.names, types, strict=True)
    ]
    made = make_query(table.schema.names, values, table.name, statement.alias, statement.where)
    return ChangeQuery(made.sql, (*types, *types), statement.line, statement.column, made.pieces)


def _deleted(table: Table, statement: Delete) -> ChangeQuery:
    """The rows that DELETE names."""
    made = make_query(table.schema.names, (), table.name, statement.alias, statement.where)
    types = tuple(field.dataType for field in table.schema.fields)
    return ChangeQuery(made.sql, types, statement.line, statement.column, made.pieces)


def _refuse_unreadable(catalyst: Catalyst, pieces: Sequence[Piece]) -> None:
    """Refuse what is no single expression, whatever it is in the query that was made of it."""
    for piece in pieces:
        one = piece.expression
        try:
            catalyst.parse_expression(one.text)
        except FAILURES as error:
            raise query_error(error, one.line, one.column) from None


def _target_columns(table: Table, statement: Insert) -> list[str]:
    if not statement.columns:
        return list(table.schema.names)
    known = {name.lower(): name for name in table.schema.names}
    for name in statement.columns:
        if name.lower() not in known:
            raise _unknown_column(table, name, statement)
    return [known[name.lower()] for name in statement.columns]


def _unknown_column(table: Table, name: str, statement: ChangeStatement) -> StatementError:
    return StatementError(
        f"table {table.name} has no column {name}",
        hint=f"its columns are {', '.join(table.schema.names)}",
        line=statement.line,
        column=statement.column,
    )


def _whole_rows(table: Table, rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows of some columns as rows of all, in the table's order; the others are NULL."""
    given = dict(zip(names, rows.columns, strict=True))
    columns: list[Any] = [
        given[field.name] if field.name in given else pa.nulls(rows.num_rows, arrow_type(field.dataType))
        for field in table.schema.fields
    ]
    return pa.table(columns, names=[f"c{i}" for i in range(len(columns))])


def _insertions(table: Table, rows: pa.Table) -> Bulk | Sequence[object]:
    if table.contract.sequence is None:
        return Bulk(rows.slice(0, 0), rows)
    return [{"insert": row} for row in _dicts(table, rows)]


def _removals(table: Table, rows: pa.Table) -> Bulk | Sequence[object]:
    if table.contract.sequence is None:
        return Bulk(rows, rows.slice(0, 0))
    return _deletes(table, rows, None)


def _halves(table: Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows that are given twice: as they are, and as they shall be."""
    types = [field.dataType for field in table.schema.fields]
    before, after = rows.select(list(range(len(types)))), rows.select(list(range(len(types), 2 * len(types))))
    return conform(before, types), conform(after, types)


def _replacements(table: Table, before: pa.Table, after: pa.Table) -> Bulk | Sequence[object]:
    if table.contract.sequence is None:
        return Bulk(before, after)
    return [*_deletes(table, before, after), *({"insert": row} for row in _dicts(table, after))]


def _deletes(table: Table, before: pa.Table, after: pa.Table | None) -> list[object]:
    """Deletes of rows by key; where rows stay under their key, the insert that follows replaces them."""
    kept = set[Any]()
    key = table.contract.key
    if after is not None:
        kept = {table.contract.key_identity(tuple(row[k] for k in key)) for row in _dicts(table, after)}
    return [
        {"delete": row}
        for row in _dicts(table, before)
        if table.contract.key_identity(tuple(row[k] for k in key)) not in kept
    ]


def _dicts(table: Table, rows: pa.Table) -> list[dict[str, Any]]:
    refuse_broken_text(table, rows)
    return rows.rename_columns(table.schema.names).to_pylist()
