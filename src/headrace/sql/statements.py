"""SQL text as statements: the heads are read here, the queries inside them are left to Spark."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import StatementError
from headrace.sql.change_statements import DELETE_FORM, read_delete, read_insert, read_update
from headrace.sql.event_statements import (
    STORE_FORM,
    read_create_event,
    read_create_projection,
    read_drop_event_store,
)
from headrace.sql.feed_statements import (
    FEED_FORM,
    read_alter_feed,
    read_create_feed,
    read_feed_action,
    read_parked_action,
)
from headrace.sql.flow_statements import FLOW_FORM, read_create_flow, read_drop_flow
from headrace.sql.query_statements import read_query
from headrace.sql.reader import Reader, near_miss
from headrace.sql.script import ScriptStatement, check_brackets, split
from headrace.sql.source_statements import (
    SOURCE_FORM,
    read_alter_source,
    read_create_source,
    read_dead_letter_action,
    read_replay_source,
    read_source_action,
)
from headrace.sql.syntax import (
    AddColumn,
    AlterColumnType,
    AlterFeed,
    AlterSource,
    AlterTable,
    ColumnDefinition,
    CreateEventStore,
    CreateEventType,
    CreateFeed,
    CreateProjection,
    CreateSource,
    CreateTable,
    CreateView,
    DeadLetterAction,
    Delete,
    Describe,
    Drop,
    DropColumn,
    DropEventStore,
    DropFlow,
    DropKind,
    DropNotNull,
    Explain,
    ExplainQuery,
    FeedAction,
    FeedVerb,
    Insert,
    ParkedAction,
    Policy,
    Query,
    RenameColumn,
    ReplaySource,
    Show,
    ShowKind,
    SourceAction,
    SourceVerb,
    Statement,
    TimeTravel,
    Update,
)
from headrace.sql.table_statements import read_alter_table, read_create_table
from headrace.sql.tokens import keywords
from headrace.sql.view_statements import VIEW_FORM, read_create_view

__all__ = [
    "AddColumn",
    "AlterColumnType",
    "AlterFeed",
    "AlterSource",
    "AlterTable",
    "ColumnDefinition",
    "CreateFeed",
    "CreateEventStore",
    "CreateEventType",
    "CreateProjection",
    "CreateSource",
    "CreateTable",
    "CreateView",
    "DeadLetterAction",
    "Delete",
    "Describe",
    "Drop",
    "DropColumn",
    "DropEventStore",
    "DropFlow",
    "DropNotNull",
    "DropKind",
    "Explain",
    "ExplainQuery",
    "FeedAction",
    "Insert",
    "ParkedAction",
    "Policy",
    "Query",
    "RenameColumn",
    "ReplaySource",
    "Show",
    "ShowKind",
    "SourceAction",
    "Statement",
    "TimeTravel",
    "Update",
    "parse",
    "read_statement",
]

_CREATE_FORM = (
    "CREATE TABLE t (...) | CREATE [OR REPLACE] [MATERIALIZED] VIEW v AS SELECT ... | CREATE SOURCE s ... | "
    "CREATE FLOW f AS AUTO CDC INTO t ... | CREATE CHANGEFEED f FOR TABLE x INTO ... | CREATE EVENT STORE s | "
    "CREATE PROJECTION p ..."
)
_EXPLAIN_FORM = "EXPLAIN v | EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT ... | EXPLAIN SELECT ..."
_DROP_FORM = (
    "DROP TABLE | VIEW | MATERIALIZED VIEW | FLOW | EVENT STORE | PROJECTION [IF EXISTS] x [RESTRICT | CASCADE] | "
    "DROP SOURCE | CHANGEFEED [IF EXISTS] x"
)
_SHOW_FORM = "SHOW TABLES | VIEWS | SOURCES | FLOWS | CHANGEFEEDS"
_DESCRIBE_FORM = "DESCRIBE x"
_KINDS = ("TABLE", "VIEW", "MATERIALIZED VIEW", "SOURCE", "FLOW")
_CREATED = (*_KINDS, "CHANGEFEED", "EVENT STORE", "PROJECTION")

VERBS = (
    "CREATE",
    "DROP",
    "ALTER",
    "INSERT",
    "UPDATE",
    "DELETE",
    "SELECT",
    "WITH",
    "VALUES",
    "TABLE",
    "FROM",
    "EXPLAIN",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "PAUSE",
    "RESUME",
)
_UNSUPPORTED_VERBS = {
    "APPLY": "write CREATE FLOW f AS APPLY CHANGES INTO t ..., or AUTO CDC INTO, which is the same",
    "MERGE": "an INSERT INTO a table with a PRIMARY KEY replaces the row of that key",
    "TRUNCATE": f"write {DELETE_FORM}",
    "REPLACE": f"write {VIEW_FORM}",
    "REFRESH": "views are always current; a source is read anew by DROP SOURCE and CREATE SOURCE",
    "USE": "there is one schema",
    "SET": "settings are given when the home is opened",
    "RESET": "settings are given when the home is opened",
    "BEGIN": "each statement is one epoch; apply() takes changes of many tables into one",
    "START": "each statement is one epoch; apply() takes changes of many tables into one",
    "COMMIT": "each statement is one epoch; apply() takes changes of many tables into one",
    "ROLLBACK": "each statement is one epoch; apply() takes changes of many tables into one",
} | dict.fromkeys(
    keywords(
        """ADD ANALYZE CACHE CALL CLEAR COMMENT COPY DECLARE DFS EXECUTE EXPORT GRANT IMPORT LIST LOAD LOCK
        MAP MSCK OPTIMIZE REDUCE REORG RESTORE REVOKE UNCACHE UNLOCK VACUUM"""
    ),
    "",
)
_UNSUPPORTED_CREATES = keywords(
    """CATALOG DATABASE DIRECTORY EXTERNAL FUNCTION GLOBAL INDEX LIVE NAMESPACE ROLE SCHEMA STREAMING TEMP
    TEMPORARY USER VARIABLE"""
)


def parse(sql: str) -> list[Statement]:
    """The statements of a script, none if it is empty; an error anywhere means that none is returned."""
    return [read_statement(sql, piece) for piece in split(sql)]


def read_statement(source: str, piece: ScriptStatement) -> Statement:
    """One statement of a script."""
    check_brackets(piece.tokens)
    try:
        return _read_statement(Reader(source, piece.tokens), piece)
    except RecursionError:
        raise StatementError(
            "a type is nested too deeply",
            hint="give columns types of fewer levels",
            line=piece.line,
            column=piece.column,
        ) from None


_SOURCE_VERBS: Mapping[str, SourceVerb] = {"PAUSE": "pause", "RESUME": "resume", "SNAPSHOT": "snapshot"}
_FEED_VERBS: Mapping[str, FeedVerb] = {"PAUSE": "pause", "RESUME": "resume", "RESYNC": "resync"}


def _read_statement(reader: Reader, piece: ScriptStatement) -> Statement:
    if reader.at_query():
        return read_query(reader)
    verb = reader.keyword()
    origin = (piece.text, piece.line, piece.column)
    if verb in _FEED_VERBS and reader.keyword(1) == "CHANGEFEED":
        reader.index += 2
        return read_feed_action(reader, _FEED_VERBS[verb], *origin)
    if verb in _SOURCE_VERBS or verb in _FEED_VERBS:
        reader.index += 1
        if verb not in _SOURCE_VERBS or not reader.at("SOURCE"):
            raise _not_of(reader, verb)
        reader.index += 1
        return read_source_action(reader, _SOURCE_VERBS[verb], *origin)
    if verb in ("REPLAY", "DISCARD"):
        reader.index += 1
        if verb == "REPLAY" and reader.accept("SOURCE"):
            return read_replay_source(reader, *origin)
        if reader.accept("PARKED"):
            return read_parked_action(reader, "replay" if verb == "REPLAY" else "discard", *origin)
        return read_dead_letter_action(reader, "replay" if verb == "REPLAY" else "discard", *origin)
    if verb not in VERBS:
        raise _unknown_verb(reader)
    reader.index += 1
    match verb:
        case "CREATE":
            return _read_create(reader, *origin)
        case "DROP":
            return _read_drop(reader, *origin)
        case "ALTER":
            return _read_alter(reader, *origin)
        case "INSERT":
            return read_insert(reader, *origin)
        case "UPDATE":
            return read_update(reader, *origin)
        case "DELETE":
            return read_delete(reader, *origin)
        case "EXPLAIN":
            return _read_explain(reader, *origin)
        case "SHOW":
            return _read_show(reader, *origin)
        case _:
            return _read_describe(reader, *origin)


def _read_create(
    reader: Reader, sql: str, line: int, column: int
) -> CreateTable | CreateView | CreateSource | CreateFeed | CreateEventStore | CreateEventType | CreateProjection:
    reader.form = _CREATE_FORM
    or_replace = reader.accept("OR", "REPLACE")
    if reader.at("SOURCE"):
        if or_replace:
            raise reader.unsupported("CREATE OR REPLACE is for views", hint=f"write DROP SOURCE s, then {SOURCE_FORM}")
        reader.index += 1
        return read_create_source(reader, sql, line, column)
    if reader.at("FLOW"):
        if or_replace:
            raise reader.unsupported("CREATE OR REPLACE is for views", hint=f"write DROP FLOW f, then {FLOW_FORM}")
        reader.index += 1
        return read_create_flow(reader, sql, line, column)
    if reader.at("CHANGEFEED"):
        if or_replace:
            raise reader.unsupported(
                "CREATE OR REPLACE is for views", hint=f"write DROP CHANGEFEED f, then {FEED_FORM}"
            )
        reader.index += 1
        return read_create_feed(reader, sql, line, column)
    if reader.accept("PROJECTION"):
        return read_create_projection(reader, sql, line, column, or_replace=or_replace)
    if reader.at("EVENT"):
        if or_replace:
            raise reader.unsupported("CREATE OR REPLACE is for views", hint=f"write {STORE_FORM}")
        reader.index += 1
        return read_create_event(reader, sql, line, column)
    if reader.at("STREAMING") or reader.at("OR", "REFRESH", "STREAMING"):
        raise reader.unsupported(
            "CREATE STREAMING TABLE is not offered", hint=f"a flow makes its target: write {FLOW_FORM}"
        )
    if reader.keyword() in _UNSUPPORTED_CREATES:
        raise reader.unsupported(f"CREATE {reader.keyword()} is not offered")
    if reader.at("TABLE"):
        if or_replace:
            raise reader.unsupported(
                "CREATE OR REPLACE is for views",
                hint="write DROP TABLE IF EXISTS t, then CREATE TABLE t (...)",
            )
        reader.index += 1
        return read_create_table(reader, sql, line, column)
    materialized = reader.accept("MATERIALIZED")
    if not reader.accept("VIEW"):
        raise reader.expected(*(("VIEW",) if materialized or or_replace else _CREATED))
    return read_create_view(reader, sql, line, column, materialized=materialized, or_replace=or_replace)


def _read_drop(
    reader: Reader, sql: str, line: int, column: int
) -> Drop | DropEventStore | DropFlow | SourceAction | FeedAction:
    reader.form = _DROP_FORM
    if reader.accept("SOURCE"):
        return read_source_action(reader, "drop", sql, line, column)
    if reader.accept("FLOW"):
        return read_drop_flow(reader, sql, line, column)
    if reader.accept("CHANGEFEED"):
        return read_feed_action(reader, "drop", sql, line, column)
    if reader.accept("EVENT"):
        return read_drop_event_store(reader, sql, line, column)
    if reader.keyword() in _UNSUPPORTED_CREATES:
        raise reader.unsupported(f"DROP {reader.keyword()} is not offered")
    kind = _accept_kind(reader)
    if kind is None:
        raise reader.expected(*_CREATED)
    if_exists = reader.accept("IF", "EXISTS")
    name = reader.relation(kind).name
    if reader.at_symbol(","):
        raise reader.unsupported("relations are dropped one at a time")
    cascade = reader.accept_cascade()
    if reader.at("PURGE"):
        raise reader.unsupported("DROP with PURGE is not offered", hint="leave out PURGE; there is no bin to empty")
    reader.expect_end()
    return Drop(sql=sql, line=line, column=column, kind=kind, name=name, if_exists=if_exists, cascade=cascade)


def _accept_kind(reader: Reader) -> DropKind | None:
    if reader.accept("TABLE"):
        return "table"
    if reader.accept("VIEW") or reader.accept("PROJECTION"):
        return "view"
    if reader.accept("MATERIALIZED"):
        reader.expect("VIEW")
        return "materialized view"
    return None


def _read_alter(reader: Reader, sql: str, line: int, column: int) -> AlterTable | AlterSource | AlterFeed:
    if reader.accept("SOURCE"):
        return read_alter_source(reader, sql, line, column)
    if reader.accept("CHANGEFEED"):
        return read_alter_feed(reader, sql, line, column)
    if reader.at("VIEW") or reader.at("MATERIALIZED"):
        raise reader.unsupported("views are replaced, not altered", hint=f"write {VIEW_FORM}")
    reader.form = "ALTER TABLE t ..."
    reader.expect("TABLE")
    return read_alter_table(reader, sql, line, column)


def _read_explain(reader: Reader, sql: str, line: int, column: int) -> Explain | ExplainQuery:
    reader.form = _EXPLAIN_FORM
    alone = reader.peek(1) is None
    if reader.at("CREATE") and not alone:
        begin = reader.index
        target_line, target_column = reader.position()
        reader.index += 1
        created = _read_create(
            reader,
            reader.source[reader.tokens[begin].start : reader.tokens[-1].end],
            target_line,
            target_column,
        )
        if not isinstance(created, CreateView):
            raise StatementError(
                "only views and queries can be explained",
                hint=f"write {_EXPLAIN_FORM}",
                line=line,
                column=column,
            )
        return Explain(sql=sql, line=line, column=column, target=created)
    if reader.at_query() and not alone:
        return ExplainQuery(sql=sql, line=line, column=column, query=read_query(reader))
    if not alone:
        if reader.keyword() in ("EXTENDED", "CODEGEN", "COST", "FORMATTED", "ANALYZE"):
            raise reader.unsupported(f"EXPLAIN {reader.keyword()} is not offered")
        if reader.keyword() in ("INSERT", "UPDATE", "DELETE", "MERGE", "DROP", "ALTER"):
            raise reader.unsupported("only views and queries can be explained")
        if not reader.accept("VIEW"):
            reader.accept("MATERIALIZED", "VIEW")
    name = reader.relation("view").name
    reader.expect_end()
    return Explain(sql=sql, line=line, column=column, target=name)


def _read_show(reader: Reader, sql: str, line: int, column: int) -> Show:
    reader.form = _SHOW_FORM
    if reader.at("MATERIALIZED", "VIEWS"):
        raise reader.unsupported("SHOW MATERIALIZED VIEWS is not offered", hint="write SHOW VIEWS; it lists them all")
    if reader.keyword() in ("CREATE", "COLUMNS"):
        hint = {
            "CHANGEFEED": "SHOW CHANGEFEEDS has its sink, location and options",
            "SOURCE": "SHOW SOURCES has its connector, location and options",
        }.get(reader.keyword(1), "write DESCRIBE x")
        raise reader.unsupported(f"SHOW {reader.keyword()} is not offered", hint=hint)
    if reader.keyword() == "PROJECTIONS" or reader.at("EVENT", "STORES"):
        what, list_of = ("EVENT STORES", "TABLES") if reader.keyword() == "EVENT" else ("PROJECTIONS", "VIEWS")
        raise reader.unsupported(f"SHOW {what} is not offered", hint=f"write SHOW {list_of}; they are among them")
    what = reader.keyword().lower()
    if what not in ("tables", "views", "sources", "flows", "changefeeds"):
        raise reader.expected("TABLES", "VIEWS", "SOURCES", "FLOWS", "CHANGEFEEDS")
    reader.index += 1
    if reader.keyword() in ("IN", "FROM", "LIKE", "WHERE") or (reader.peek() and not reader.keyword()):
        raise reader.unsupported(f"SHOW {what.upper()} takes nothing after it")
    reader.expect_end()
    return Show(sql=sql, line=line, column=column, what=what)


def _read_describe(reader: Reader, sql: str, line: int, column: int) -> Describe:
    reader.form = _DESCRIBE_FORM
    if reader.peek(1) and reader.keyword() in ("CHANGEFEED", "SOURCE") and not reader.at_symbol(".", 1):
        noun = reader.keyword()
        raise reader.unsupported(f"DESCRIBE {noun} is not offered", hint=f"write SHOW {noun}S, which has all of each")
    if reader.peek(2) and reader.keyword() == "EVENT" and reader.keyword(1) == "STORE":
        reader.index += 2
    # Each of these words may also be the relation's own name, which it is when nothing follows.
    elif reader.peek(1) and not reader.at_symbol(".", 1):
        _accept_kind(reader)
    extended = False
    if reader.peek(1) and reader.keyword() in ("EXTENDED", "FORMATTED"):
        reader.index += 1
        extended = True
    name = reader.relation("table or view").name
    reader.expect_end()
    return Describe(sql=sql, line=line, column=column, name=name, extended=extended)


def _not_of(reader: Reader, verb: str) -> StatementError:
    """What is paused, resumed, read anew or sent anew is a source or a feed."""
    nouns = [noun for noun, verbs in (("SOURCE", _SOURCE_VERBS), ("CHANGEFEED", _FEED_VERBS)) if verb in verbs]
    reader.form = " | ".join(f"{verb} {noun} {'s' if noun == 'SOURCE' else 'f'}" for noun in nouns)
    return reader.expected(*nouns)


def _unknown_verb(reader: Reader) -> StatementError:
    verb = reader.keyword()
    if verb in _UNSUPPORTED_VERBS:
        return reader.unsupported(f"{verb} is not offered", hint=_UNSUPPORTED_VERBS[verb] or _known_verbs())
    token = reader.peek()
    meant = near_miss(verb, VERBS)
    found = token.text if token else ""
    hint = f"did you mean {meant}?" if meant else _known_verbs()
    return reader.fail(f"'{found[:40]}' begins no statement", hint=hint)


def _known_verbs() -> str:
    return "a statement begins with " + ", ".join(verb for verb in VERBS if verb not in ("DESC", "PAUSE", "RESUME"))
