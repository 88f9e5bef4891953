"""Running statements: definitions, changes and queries written in SQL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pyarrow as pa

from headrace.catalog.catalog import Feed
from headrace.definitions.alter import alter_table
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.receipt import Receipt
from headrace.errors import (
    HeadraceError,
    KeyReused,
    QueryError,
    RelationNameError,
    StatementError,
    UnsupportedStatement,
    ViewError,
)
from headrace.events.define import create_event_store, drop_event_store, register_type
from headrace.events.outbox import refuse_column_gone
from headrace.events.projections import projection_view
from headrace.events.tables import store_table
from headrace.feeds.define import act_on_parked, alter_feed, change_feed, create_feed, look_up
from headrace.reading.as_of import relations_of
from headrace.sources.dead_letters import act
from headrace.sources.define import alter_source, change_source, create_sources, forget_source
from headrace.sources.replay import replay_source
from headrace.sources.running import progress_of
from headrace.sources.snapshots import asked_of
from headrace.sql.statements import (
    AlterFeed,
    AlterSource,
    AlterTable,
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
    DropEventStore,
    DropFlow,
    Explain,
    ExplainQuery,
    FeedAction,
    Insert,
    ParkedAction,
    Query,
    ReplaySource,
    Show,
    SourceAction,
    Statement,
    Update,
    parse,
)
from headrace.statements.audited import noted
from headrace.statements.changes import ChangeStatement, ReadRows, work_out
from headrace.statements.create import create_table, create_view, drop, drop_empty_raw, drop_flow
from headrace.statements.engine import Engine
from headrace.statements.secrets import (
    altered_without_secrets,
    feed_without_secrets,
    forget_secrets,
    source_without_secrets,
)
from headrace.statements.show import describe, explain, explain_query, show

Result = pa.Table | Receipt | None
# What a statement comes to, and the epoch that it made, if it made one.
Ran = tuple[Result, int | None]
# So many of the statements that a script has carried out are named with their epochs when it fails.
_NAMED = 8


def run_script(engine: Engine, sql: str) -> Result:
    """Run all statements of a script in order; the result is that of the last."""
    return run_statements(engine, parse(sql))


def run_statements(engine: Engine, statements: Iterable[Statement]) -> Result:
    """Run statements in order; the result is that of the last. An error tells which of them are carried out.

    Sources wait for the definitions that follow them, so that all of a script are read into one epoch.
    """
    listed = list(statements)
    done: dict[int, int | None] = {}
    about: Sequence[int] = ()
    result: Result = None
    waiting: dict[int, CreateSource] = {}

    def create_sources() -> None:
        nonlocal about, result
        about = tuple(waiting)
        result, epoch = _create_sources(engine, list(waiting.values()))
        done.update(dict.fromkeys(waiting, epoch))
        waiting.clear()

    try:
        for number, statement in enumerate(listed, 1):
            if isinstance(statement, CreateSource):
                waiting[number] = statement
                continue
            if waiting and not isinstance(statement, (CreateTable, CreateView)):
                create_sources()
            about = (number,)
            result, done[number] = _run_whole(engine, statement)
        if waiting:
            create_sources()
    except BaseException as error:
        _tell_carried_out(error, done, about, len(listed))
        raise
    return result


def _tell_carried_out(error: BaseException, done: Mapping[int, int | None], about: Sequence[int], of: int) -> None:
    """Let the error of some statements of a script tell which others are carried out, if they changed anything."""
    if all(epoch is None for epoch in done.values()):
        return
    named = [f"{number} (epoch {epoch})" if epoch is not None else str(number) for number, epoch in done.items()]
    if len(named) > _NAMED:
        named[:-_NAMED] = [f"the first {len(named) - _NAMED}"]
    told = (
        f"Of {of} statements, {_and(named)} {'is' if len(done) == 1 else 'are'} carried out; "
        f"this is about {_and([str(number) for number in about])}, and no other was run."
    )
    if isinstance(error, HeadraceError):
        error.met_in_script(told)
    else:
        error.add_note(told)


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _create_sources(engine: Engine, statements: Sequence[CreateSource]) -> Ran:
    """Read sources into one epoch; those that are known already are left alone where that was asked."""

    def make() -> None:
        with ExitStack() as kept:
            create_sources(
                engine.core, [kept.enter_context(source_without_secrets(engine.core, one)) for one in statements]
            )

    with noted(engine.audit, *statements):
        return _define(engine, make)


def run_statement(engine: Engine, statement: Statement) -> Result:
    """Run one statement; an error that names no position of its own names the statement's."""
    return _run_whole(engine, statement)[0]


def _run_whole(engine: Engine, statement: Statement) -> Ran:
    if isinstance(statement, CreateSource):
        with told_where(statement):
            return _create_sources(engine, [statement])
    needed = isinstance(statement, Query | Explain | ExplainQuery)
    with (
        noted(engine.audit, statement),
        told_where(statement),
        engine.core.spark.working(needed=needed, busy=needed),
    ):
        return _run_statement(engine, statement)


@contextmanager
def told_where(statement: Statement) -> Generator[None, None, None]:
    """Inside, an error that names no position of its own comes to name the statement's."""
    try:
        yield
    except (RelationNameError, StatementError, ViewError, QueryError) as error:
        if error.line is None:
            error.met_at(statement.line, statement.column)
        raise


def _run_statement(engine: Engine, statement: Statement) -> Ran:
    core = engine.core
    if isinstance(statement, Insert | Update | Delete):
        receipt = engine.loop.change(lambda: work_out(core, statement))
        return receipt, receipt.epoch
    if isinstance(statement, SourceAction):
        dropped = core.catalog.sources.get(statement.name) if statement.verb == "drop" else None
        begun = dropped is not None and bool(progress_of(core, dropped.name).position)
        advance = asked_of(core, statement)

        def change() -> None:
            change_source(engine.loop, engine.sources, statement, advance)
            if dropped is not None:
                drop_empty_raw(core, dropped.name)

        changed = _define(engine, change)
        engine.sources.wait_for_stopped()
        if dropped is not None:
            forget_source(dropped, begun)
            engine.loop.between_epochs(lambda: forget_secrets(core))
        return changed
    if isinstance(statement, CreateFeed):
        look_up(core, statement)

        def make_feed() -> None:
            with feed_without_secrets(core, statement) as kept:
                create_feed(core, kept)

        return _define(engine, make_feed)
    if isinstance(statement, FeedAction):
        gone = core.catalog.feeds.get(statement.name) if statement.verb == "drop" else None
        changed = _define(engine, lambda: change_feed(engine.loop, engine.feeds, statement))
        if gone is not None:
            _forget_feeds(engine, [gone])
        elif statement.verb == "pause":
            engine.feeds.wait_for_stopped()
        return changed
    if isinstance(statement, AlterFeed):
        look_up(core, statement)

        def alter() -> None:
            with altered_without_secrets(core, statement) as kept:
                alter_feed(engine.loop, kept)
            forget_secrets(core)

        return _define(engine, alter)
    if isinstance(statement, ParkedAction):
        receipt = act_on_parked(engine.loop, engine.feeds, statement)
        return receipt, receipt.epoch
    if isinstance(statement, AlterSource):
        return _define(engine, lambda: alter_source(engine.loop, statement))
    if isinstance(statement, DeadLetterAction):
        receipt = act(engine.loop, statement)
        return receipt, receipt.epoch
    if isinstance(statement, ReplaySource):
        receipt = replay_source(engine.loop, statement)
        return receipt, receipt.epoch
    if isinstance(statement, CreateTable):
        return _define(engine, lambda: create_table(core, statement))
    if isinstance(statement, CreateView):
        return _define(engine, lambda: create_view(core, statement))
    if isinstance(statement, CreateEventStore):
        return _define(engine, lambda: create_event_store(core, statement))
    if isinstance(statement, DropEventStore):
        return _drop(engine, lambda: drop_event_store(core, statement))
    if isinstance(statement, CreateEventType):
        found = statement
        receipt = register_type(
            engine.loop, found.store, found.event_type, found.schema, found.version, found.encrypted, found.subject
        )
        return None, receipt.epoch
    if isinstance(statement, CreateProjection):
        options = store_table(core.catalog, statement.store).events or {}
        view = projection_view(statement, options)
        return _define(engine, lambda: create_view(core, view))
    if isinstance(statement, Drop):
        return _drop(engine, lambda: drop(core, statement))
    if isinstance(statement, DropFlow):
        return _drop(engine, lambda: drop_flow(core, statement))
    if isinstance(statement, AlterTable):
        refuse_column_gone(core, statement)
        return _define(engine, lambda: alter_table(core, statement))
    return _read(engine, statement), None


def _drop(engine: Engine, drop_with_feeds: Callable[[], Sequence[Feed]]) -> Ran:
    """Run a definition that drops a relation, and remove what is kept for the changefeeds that went with it."""
    gone: list[Feed] = []
    changed = _define(engine, lambda: gone.extend(drop_with_feeds()))
    _forget_feeds(engine, gone)
    return changed


def _forget_feeds(engine: Engine, gone: Sequence[Feed]) -> None:
    for feed in gone:
        engine.feeds.forget(feed)
    if gone:
        engine.loop.between_epochs(lambda: forget_secrets(engine.core))


def _define(engine: Engine, make: Callable[[], None]) -> Ran:
    """Run a definition; one that changes nothing makes no epoch."""
    core = engine.core

    def made() -> int | None:
        before = core.epoch
        make()
        return core.epoch if core.epoch > before else None

    return None, engine.loop.define(made)


def _read(engine: Engine, statement: Statement) -> pa.Table:
    core = engine.core
    if isinstance(statement, Query):
        return _run_query(core, statement, None)
    if isinstance(statement, Explain):
        return explain(engine.loop, statement)
    if isinstance(statement, ExplainQuery):
        return explain_query(core, statement)
    if isinstance(statement, Show):
        return show(engine, statement)
    if isinstance(statement, Describe):
        return describe(core, statement)
    raise UnsupportedStatement(
        "this statement is not available",
        line=statement.line,
        column=statement.column,
        hint="write SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, SHOW, DESCRIBE or EXPLAIN",
    )


def run_change(
    engine: Engine, statement: ChangeStatement, read: ReadRows, key: str | None = None, digest: str = ""
) -> tuple[Receipt, bool]:
    """Run a statement whose rows are had from elsewhere; no epoch waits for them, however often it is overtaken.

    It is the reader that ends it, when there is no more time; changes that were worked out are carried through. Under a
    key that stands for its digest already, it is not run, and has the receipt that it had before: then this is True.
    """
    known = engine.core.known(key)
    if key is not None and known is not None:
        if known.digest not in ("", digest):
            raise KeyReused(key)
        return known, True
    calls: list[Call] = []

    def change() -> Call:
        calls[:] = [replace(work_out(engine.core, statement, read), key=key, digest=digest if key else "")]
        return calls[0]

    with told_where(statement):
        receipt = engine.loop.change(change, in_turn=False)
    return receipt, calls[0].repeats


def run_query_text(core: Core, sql: str, epoch: int | None) -> pa.Table:
    """The rows of one query."""
    return _run_query(core, only_query(sql), epoch)


def only_query(sql: str) -> Query:
    """The one query that a text is."""
    statements = parse(sql)
    if len(statements) != 1 or not isinstance(statements[0], Query):
        raise StatementError(
            "query takes one SELECT",
            hint="use execute for other statements and for scripts; in a shell: echo 'SHOW TABLES' | headrace run -",
            line=1,
            column=1,
        )
    return statements[0]


def _run_query(core: Core, query: Query, epoch: int | None) -> pa.Table:
    """The rows of a query."""
    _, relations = relations_of(core, query, epoch, lambda sql: core.sessions.queries.run(sql, {}))
    return core.sessions.queries.run(query.plain_sql, relations, query.line, query.column)
