"""The table that a feed is delivered to, made or checked in PostgreSQL, and the tables of ours beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, cast

from psycopg import Cursor, sql
from pyspark.sql.types import StructType

from headrace.feeds.postgres_names import Described, IndexColumn, index_name
from headrace.feeds.postgres_session import limit_long
from headrace.feeds.postgres_types import postgres_type, takes
from headrace.feeds.sink import SinkEnded, SinkUnavailable

FEEDS, RUNS, PARKED = "headrace_feeds", "headrace_feed_runs", "headrace_feed_parked"
# Two that make the same tables at once would fail; the number is ours alone.
_DDL_LOCK = 0x6865_6164_7261_6365
# The first PostgreSQL in which a NULL of a unique index equals a NULL.
_NULLS_EQUAL = 150_000

_BESIDE = """
CREATE TABLE IF NOT EXISTS {feeds} (
    feed_id text PRIMARY KEY,
    feed text NOT NULL,
    relation text NOT NULL,
    target text NOT NULL,
    made boolean NOT NULL,
    epoch bigint,
    event bigint,
    sequence bigint,
    told text,
    scan text,
    fence bigint NOT NULL,
    backend integer,
    backend_started_at timestamptz,
    committed_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS {runs} (
    run_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    feed_id text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL DEFAULT 'running',
    batches bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    written bigint NOT NULL DEFAULT 0,
    deleted bigint NOT NULL DEFAULT 0,
    refused bigint NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz
);
CREATE TABLE IF NOT EXISTS {parked} (
    feed_id text NOT NULL,
    sequence bigint NOT NULL,
    target_key uuid,
    PRIMARY KEY (feed_id, sequence)
);
CREATE INDEX IF NOT EXISTS headrace_feed_parked_target_idx ON {parked} (feed_id, target_key);
"""


@dataclass(frozen=True)
class Names:
    """The tables of a feed, each with its schema."""

    schema: str
    target: sql.Identifier
    scan: sql.Identifier
    feeds: sql.Identifier
    runs: sql.Identifier
    parked: sql.Identifier


@dataclass(frozen=True)
class Column:
    """A column of a table that is there."""

    type: str
    is_enum: bool
    required: bool
    generated: bool


@dataclass(frozen=True)
class Unique:
    """An index by which rows are told apart."""

    columns: frozenset[str]
    primary: str | None
    nulls_equal: bool


@dataclass(frozen=True)
class Layout:
    """The target as it is: which of our columns it has, and whether its key may be NULL."""

    columns: StructType
    types: Mapping[str, str]
    unique: Unique | None


def find_names(cursor: Cursor[Any], described: Described) -> Names:
    """The tables of a feed; the schema is the usual one of the user where the statement names none."""
    schema = described.schema or _one(cursor, "SELECT current_schema()")[0]
    if schema is None or _one(cursor, "SELECT to_regnamespace(quote_ident(%s))", schema)[0] is None:
        raise SinkUnavailable(
            f"there is no schema {schema} in the database"
            if schema
            else "the user's search_path names no schema that is there"
        )
    tables = (described.table, described.scan_table, FEEDS, RUNS, PARKED)
    return Names(schema, *(sql.Identifier(schema, table) for table in tables))


def is_there(cursor: Cursor[Any], schema: str, table: str) -> bool:
    """Whether a table is there; anything else of that name is an error."""
    row = cursor.execute(
        "SELECT relkind::text FROM pg_class WHERE relname = %s AND relnamespace = to_regnamespace(quote_ident(%s))",
        (table, schema),
    ).fetchone()
    if row is not None and row[0] not in "rp":
        raise SinkEnded(f"{schema}.{table} is no table")
    return row is not None


def has_rows(cursor: Cursor[Any], names: Names) -> bool:
    """Whether the target, which is there, has any row."""
    row = cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(names.target)).fetchone()
    return row == (True,)


def make_beside(cursor: Cursor[Any], names: Names) -> None:
    """Make the tables in which feeds keep how far they are."""
    if not all(is_there(cursor, names.schema, table) for table in (FEEDS, RUNS, PARKED)):
        lock_definitions(cursor)
        cursor.execute(sql.SQL(_BESIDE).format(feeds=names.feeds, runs=names.runs, parked=names.parked))


def lock_definitions(cursor: Cursor[Any]) -> None:
    """Until the transaction ends, nobody else of ours makes or alters tables of this database."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_DDL_LOCK,))


def make_table(cursor: Cursor[Any], names: Names, described: Described, columns: StructType) -> None:
    """Make the target, with its primary key and the indexes that the statement names."""
    parts = [_definition(columns, name) for name in columns.names]
    if described.keys:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(listed(described.keys)))
    cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(names.target, sql.SQL(", ").join(parts)))


def fit_table(cursor: Cursor[Any], names: Names, described: Described, columns: StructType) -> Layout:
    """Check a target that is there, and add the columns and indexes that it lacks; nothing else is changed."""
    found = _columns(cursor, names.schema, described.table)
    for name, column in found.items():
        if name in columns.names and column.generated:
            raise SinkEnded(f"column {name} of {described.table} is generated, so nothing can be written into it")
        if name not in columns.names and column.required:
            raise SinkEnded(
                f"column {name} of {described.table} must not be NULL, has no default, and is none of the relation's"
            )
    for field in columns.fields:
        column = found.get(field.name)
        if column is not None and not takes(column.type, field.dataType, is_enum=column.is_enum):
            raise SinkEnded(
                f"column {field.name} of {described.table} is {column.type}, and {field.dataType.simpleString()} needs "
                f"{postgres_type(field.dataType)}: columns are added, and never changed; alter it, or drop "
                "the table and RESYNC CHANGEFEED"
            )
    missing = [name for name in columns.names if name not in found]
    if missing:
        added = [sql.SQL("ADD COLUMN {}").format(_definition(columns, name)) for name in missing]
        cursor.execute(sql.SQL("ALTER TABLE {} {}").format(names.target, sql.SQL(", ").join(added)))
        found = _columns(cursor, names.schema, described.table)
    unique = find_unique(cursor, names, described)
    for index in described.indexes:
        if all(one.name in columns.names for one in index):
            _make_index(cursor, names, described.table, index)
    return Layout(columns, {name: found[name].type for name in columns.names}, unique)


def find_unique(cursor: Cursor[Any], names: Names, described: Described) -> Unique | None:
    """The index over the key, by which a row that is there is found; an error if there is none."""
    if not described.keys:
        return None
    rows = cursor.execute(
        """
        SELECT array(SELECT attname::text FROM pg_attribute a
                     WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])),
               (SELECT conname::text FROM pg_constraint c WHERE c.conindid = i.indexrelid AND c.contype = 'p'
                AND c.conrelid = i.indrelid),
               coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::boolean, false)
        FROM pg_index i
        WHERE i.indrelid = to_regclass(quote_ident(%s) || '.' || quote_ident(%s))
          AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
        """,
        (names.schema, described.table),
    ).fetchall()
    fitting = [Unique(frozenset(row[0]), row[1], row[2]) for row in rows if set(row[0]) == set(described.keys)]
    if not fitting:
        columns = ", ".join(described.keys)
        raise SinkEnded(
            f"{described.table} has no primary key and no unique index over ({columns}), by which rows could be "
            f"changed: ALTER TABLE ... ADD PRIMARY KEY ({columns})"
        )
    return max(fitting, key=lambda one: (one.nulls_equal, one.primary is not None))


def can_hold_null_keys(cursor: Cursor[Any], layout: Layout, described: Described, *, made: bool) -> bool:
    """Whether a row whose key has a NULL can be told from others: in a table of ours, or that was made so."""
    if layout.unique is None or layout.unique.nulls_equal:
        return True
    return made and not described.keys_named and cursor.connection.info.server_version >= _NULLS_EQUAL


def allow_null_keys(cursor: Cursor[Any], names: Names, described: Described, unique: Unique) -> None:
    """Put an index that takes a NULL for equal to a NULL in place of the primary key, which has none."""
    limit_long(cursor)
    if unique.primary is not None:
        cursor.execute(
            sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(names.target, sql.Identifier(unique.primary))
        )
    for name in described.keys:
        cursor.execute(
            sql.SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(names.target, sql.Identifier(name))
        )
    add_unique(cursor, names.target, described.table, described.keys, nulls_equal=True)


def add_unique(
    cursor: Cursor[Any], table: sql.Identifier, name: str, keys: Sequence[str], *, nulls_equal: bool
) -> None:
    """Make a unique index over the key of a table."""
    cursor.execute(
        sql.SQL("CREATE UNIQUE INDEX {} ON {} ({}){}").format(
            sql.Identifier(index_name(f"{name}_key", [IndexColumn(key) for key in keys])),
            table,
            listed(keys),
            sql.SQL(" NULLS NOT DISTINCT" if nulls_equal else ""),
        )
    )


def listed(names: Sequence[str], of: str = "") -> sql.Composed:
    """Columns with commas between them."""
    return sql.SQL(", ").join(sql.Identifier(*([of] if of else []), name) for name in names)


def _definition(columns: StructType, name: str) -> sql.Composed:
    # Types are texts of our own, without a name in them.
    kind = cast(LiteralString, postgres_type(columns[name].dataType))
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))


def _make_index(cursor: Cursor[Any], names: Names, table: str, index: Sequence[IndexColumn]) -> None:
    name = index_name(table, index)
    if _one(cursor, "SELECT to_regclass(quote_ident(%s) || '.' || quote_ident(%s))", names.schema, name)[0] is not None:
        return
    limit_long(cursor)
    parts = [
        sql.SQL("{}{}{}").format(
            sql.Identifier(one.name),
            sql.SQL(" DESC" if one.descending else ""),
            sql.SQL(f" NULLS {one.nulls}" if one.nulls else ""),
        )
        for one in index
    ]
    cursor.execute(
        sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} ({})").format(
            sql.Identifier(name), names.target, sql.SQL(", ").join(parts)
        )
    )


def _columns(cursor: Cursor[Any], schema: str, table: str) -> dict[str, Column]:
    rows = cursor.execute(
        """
        SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), t.typtype = 'e',
               a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '',
               a.attgenerated <> '' OR a.attidentity = 'a'
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = to_regclass(quote_ident(%s) || '.' || quote_ident(%s))
          AND a.attnum > 0 AND NOT a.attisdropped
        """,
        (schema, table),
    ).fetchall()
    return {row[0]: Column(row[1], row[2], row[3], row[4]) for row in rows}


def _one(cursor: Cursor[Any], query: str, *values: object) -> tuple[Any, ...]:
    row = cursor.execute(query, values).fetchone()  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert row is not None
    return row
