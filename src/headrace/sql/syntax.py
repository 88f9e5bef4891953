"""The statements as data: frozen, without behaviour.

Names are in lower case; where the spelling shows to the user it is kept in a field of its own, `spelled`.
Lines and columns count from 1 and are positions in the whole script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.flows import AutoCdc

Policy = Literal["auto", "incremental", "full"]
DropKind = Literal["table", "view", "materialized view"]
ShowKind = Literal["tables", "views", "sources", "flows", "changefeeds"]
SourceVerb = Literal["drop", "pause", "resume", "snapshot"]
OptionValue = str | int | bool
DeadLetterVerb = Literal["replay", "discard"]
FeedVerb = Literal["drop", "pause", "resume", "resync"]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement: its exact text and where it begins."""

    sql: str
    line: int
    column: int


@dataclass(frozen=True, kw_only=True)
class ColumnDefinition:
    """A column of a table; `type_text` is the Spark type as it was written."""

    name: str
    spelled: str
    type_text: str
    not_null: bool
    comment: str | None
    line: int
    column: int


@dataclass(frozen=True, kw_only=True)
class CreateTable(Statement):
    """CREATE TABLE; the columns of the primary key are NOT NULL."""

    name: str
    spelled: str
    columns_ddl: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    sequence_by: str | None
    if_not_exists: bool


@dataclass(frozen=True, kw_only=True)
class CreateView(Statement):
    """CREATE [MATERIALIZED] VIEW; `query` is the exact text after AS."""

    name: str
    spelled: str
    query: str
    query_line: int
    query_column: int
    materialized: bool
    or_replace: bool
    if_not_exists: bool
    policy: Policy
    columns: tuple[str, ...]
    columns_spelled: tuple[str, ...]
    comment: str | None
    # The flow whose target it is, which made the query.
    flow: AutoCdc | None = None


@dataclass(frozen=True)
class TimeTravel:
    """One AS OF clause; `relation` is None where it stands at the end and holds for the whole statement.

    `start` and `end` are offsets into the query's own text.
    """

    relation: str | None
    kind: Literal["version", "timestamp"]
    expression: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Query(Statement):
    """A query; `plain_sql` is its text with the AS OF clauses blanked, so that positions stay the same.

    Where some of its relations have an AS OF of their own, `undated` may be names of others that have none.
    """

    time_travel: tuple[TimeTravel, ...]
    plain_sql: str
    undated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Explain(Statement):
    """EXPLAIN of a view to be made, or of a relation by name."""

    target: CreateView | str


@dataclass(frozen=True, kw_only=True)
class ExplainQuery(Statement):
    """EXPLAIN SELECT."""

    query: Query


@dataclass(frozen=True, kw_only=True)
class Drop(Statement):
    """DROP TABLE, VIEW or MATERIALIZED VIEW; with CASCADE, the changefeeds that deliver it are dropped too."""

    kind: DropKind
    name: str
    if_exists: bool
    cascade: bool = False


@dataclass(frozen=True, kw_only=True)
class DropFlow(Statement):
    """DROP FLOW, with its target; with CASCADE, the changefeeds that deliver the target are dropped too."""

    name: str
    if_exists: bool
    cascade: bool = False


@dataclass(frozen=True, kw_only=True)
class AlterTable(Statement):
    """One change of a table's definition; `column` stays the position of the statement, as everywhere."""

    table: str


@dataclass(frozen=True, kw_only=True)
class AddColumn(AlterTable):
    """ALTER TABLE t ADD COLUMN."""

    definition: ColumnDefinition


@dataclass(frozen=True, kw_only=True)
class RenameColumn(AlterTable):
    """ALTER TABLE t RENAME COLUMN old TO new."""

    old: str
    new: str
    new_spelled: str


@dataclass(frozen=True, kw_only=True)
class DropColumn(AlterTable):
    """ALTER TABLE t DROP COLUMN."""

    column_name: str
    if_exists: bool


@dataclass(frozen=True, kw_only=True)
class AlterColumnType(AlterTable):
    """ALTER TABLE t ALTER COLUMN c TYPE wider."""

    column_name: str
    type_text: str


@dataclass(frozen=True, kw_only=True)
class DropNotNull(AlterTable):
    """ALTER TABLE t ALTER COLUMN c DROP NOT NULL."""

    column_name: str


@dataclass(frozen=True, kw_only=True)
class Insert(Statement):
    """INSERT INTO; either `query` or `values` (the text after VALUES) is set.

    `query_line` and `query_column` tell where the query, or the word VALUES, begins.
    """

    table: str
    columns: tuple[str, ...]
    query: str | None
    values: str | None
    query_line: int
    query_column: int


@dataclass(frozen=True)
class Expression:
    """The exact text of an expression, and where in the script it begins."""

    text: str
    line: int
    column: int


@dataclass(frozen=True, kw_only=True)
class Update(Statement):
    """UPDATE; an assignment is a column and its expression."""

    table: str
    alias: str | None
    assignments: tuple[tuple[str, Expression], ...]
    where: Expression | None


@dataclass(frozen=True, kw_only=True)
class Delete(Statement):
    """DELETE FROM."""

    table: str
    alias: str | None
    where: Expression | None


@dataclass(frozen=True, kw_only=True)
class Show(Statement):
    """SHOW TABLES, VIEWS, SOURCES, FLOWS or CHANGEFEEDS."""

    what: ShowKind


@dataclass(frozen=True, kw_only=True)
class Describe(Statement):
    """DESCRIBE of a relation."""

    name: str
    extended: bool


@dataclass(frozen=True, kw_only=True)
class CreateSource(Statement):
    """CREATE SOURCE; `location` is as it was written, the options are in the order of their names.

    Without a table, each record says which it is of.
    """

    name: str
    table: str
    connector: str
    location: str
    options: tuple[tuple[str, OptionValue], ...]
    if_not_exists: bool


@dataclass(frozen=True, kw_only=True)
class SourceAction(Statement):
    """DROP, PAUSE, RESUME or SNAPSHOT SOURCE."""

    verb: SourceVerb
    name: str
    if_exists: bool
    # Of RESUME: its tables are read anew. Of SNAPSHOT: those that are, all if none is named.
    with_snapshot: bool = False
    tables: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AlterSource(Statement):
    """ALTER SOURCE: options that are to be others."""

    name: str
    options: tuple[tuple[str, OptionValue], ...]


@dataclass(frozen=True, kw_only=True)
class ReplaySource(Statement):
    """REPLAY SOURCE: from an event or a time, until another, into another table; each is empty where it is not said."""

    name: str
    since: str
    until: str
    into: str


@dataclass(frozen=True, kw_only=True)
class DeadLetterAction(Statement):
    """REPLAY or DISCARD DEAD LETTERS; `where` is a condition over their columns, empty for all of them."""

    verb: DeadLetterVerb
    where: str


@dataclass(frozen=True, kw_only=True)
class CreateFeed(Statement):
    """CREATE CHANGEFEED; `location` is as it was written, the options are in the order of their names."""

    name: str
    table: str
    sink: str
    location: str
    options: tuple[tuple[str, OptionValue], ...]
    if_not_exists: bool


@dataclass(frozen=True, kw_only=True)
class FeedAction(Statement):
    """DROP, PAUSE, RESUME or RESYNC CHANGEFEED."""

    verb: FeedVerb
    name: str
    if_exists: bool


@dataclass(frozen=True, kw_only=True)
class AlterFeed(Statement):
    """ALTER CHANGEFEED: options that are to be others, and those that are to be as if they had never been given."""

    name: str
    options: tuple[tuple[str, OptionValue], ...]
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ParkedAction(Statement):
    """REPLAY or DISCARD PARKED EVENTS; `where` is a condition over their columns, empty for all of them."""

    verb: DeadLetterVerb
    where: str


@dataclass(frozen=True, kw_only=True)
class CreateEventStore(Statement):
    """CREATE EVENT STORE; the options are in the order of their names."""

    name: str
    options: tuple[tuple[str, OptionValue], ...]
    if_not_exists: bool


@dataclass(frozen=True, kw_only=True)
class DropEventStore(Statement):
    """DROP EVENT STORE, with all of its events; with CASCADE, the changefeeds that deliver it are dropped too."""

    name: str
    if_exists: bool
    cascade: bool = False


@dataclass(frozen=True, kw_only=True)
class CreateEventType(Statement):
    """CREATE EVENT TYPE: one version of it, with its schema and the fields that are encrypted."""

    store: str
    event_type: str
    version: int
    schema: str | None
    encrypted: tuple[str, ...]
    subject: str


@dataclass(frozen=True, kw_only=True)
class ProjectedField:
    """A column of a projection: the newest value at a path of events, of some types or of all."""

    name: str
    spelled: str
    type_text: str
    path: tuple[str, ...]
    of_types: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CreateProjection(Statement):
    """CREATE PROJECTION: a view of an aggregate's newest values."""

    name: str
    spelled: str
    store: str
    aggregate_type: str
    fields: tuple[ProjectedField, ...]
    deleted_by: tuple[str, ...]
    or_replace: bool
    if_not_exists: bool
