"""Running statements: definitions, changes and queries written in SQL."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.catalog.catalog import Table, View, ViewDefinition
from headrace.catalog.make import make_table, table_contract
from headrace.definitions.adopt import adopt, restore_names
from headrace.definitions.alter import alter_table
from headrace.definitions.sources import change_source, shown_sources
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work
from headrace.errors import (
    HeadraceError,
    QueryError,
    RelationNameError,
    StatementError,
    UnsupportedStatement,
    ViewError,
)
from headrace.interrupts import interrupts_held
from headrace.reading.as_of import relations_of
from headrace.reading.explain import explain_view
from headrace.sql.statements import (
    AlterTable,
    CreateSource,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    ExplainQuery,
    Insert,
    Query,
    Show,
    SourceAction,
    Statement,
    Update,
    parse,
)
from headrace.statements.changes import ChangeStatement, ReadRows, work_out

if TYPE_CHECKING:
    from headrace.home import Headrace


Result = pa.Table | Receipt | None
# What a statement comes to, and the epoch that it made, if it made one.
Ran = tuple[Result, int | None]
# So many of the statements that a script has carried out are named with their epochs when it fails.
_NAMED = 8


def run_script(home: Headrace, sql: str) -> Result:
    """Run all statements of a script in order; the result is that of the last."""
    return run_statements(home, parse(sql))


def run_statements(home: Headrace, statements: Iterable[Statement]) -> Result:
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
        result, epoch = _create_sources(home, list(waiting.values()))
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
            result, done[number] = _run_whole(home, statement)
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


def _create_sources(home: Headrace, statements: Sequence[CreateSource]) -> Ran:
    """Read sources into one epoch; those that are known already are left alone where that was asked."""

    def make() -> None:
        wanted = [one for one in statements if not (one.if_not_exists and one.name in home.catalog.sources)]
        if wanted:
            adopt(home, sources=wanted)

    return _define(home, make)


def run_statement(home: Headrace, statement: Statement) -> Result:
    """Run one statement; an error that names no place of its own names the statement's."""
    return _run_whole(home, statement)[0]


def _run_whole(home: Headrace, statement: Statement) -> Ran:
    needed = isinstance(statement, Query | Explain | ExplainQuery)
    with told_where(statement), home.renewal.working(needed=needed):
        return _run_statement(home, statement)


@contextmanager
def told_where(statement: Statement) -> Generator[None, None, None]:
    """Inside, an error that names no place of its own comes to name the statement's."""
    try:
        yield
    except (RelationNameError, StatementError, ViewError, QueryError) as error:
        if error.line is None:
            error.met_at(statement.line, statement.column)
        raise


def _run_statement(home: Headrace, statement: Statement) -> Ran:
    if isinstance(statement, Insert | Update | Delete):
        receipt = home.submit(lambda: work_out(home, statement))
        return receipt, receipt.epoch
    if isinstance(statement, SourceAction):
        return _define(home, lambda: change_source(home, statement))
    if isinstance(statement, CreateTable):
        return _define(home, lambda: _create_table(home, statement))
    if isinstance(statement, CreateView):
        return _define(home, lambda: _create_view(home, statement))
    if isinstance(statement, Drop):
        return _define(home, lambda: _drop(home, statement))
    if isinstance(statement, AlterTable):
        return _define(home, lambda: alter_table(home, statement))
    return _read(home, statement), None


def _define(home: Headrace, make: Callable[[], None]) -> Ran:
    """Run a definition; one that changes nothing makes no epoch."""

    def made() -> int | None:
        before = home.epoch
        make()
        return home.epoch if home.epoch > before else None

    return None, home.define(made)


def _read(home: Headrace, statement: Statement) -> pa.Table:
    if isinstance(statement, Query):
        return _run_query(home, statement, None)
    if isinstance(statement, Explain):
        return _explain(home, statement)
    if isinstance(statement, ExplainQuery):
        return _lines(home.queries.frame(statement.query.plain_sql, home.relations())._jdf.queryExecution().toString())
    if isinstance(statement, Show):
        return _show(home, statement)
    if isinstance(statement, Describe):
        return _describe(home, statement)
    raise UnsupportedStatement(
        "this statement is not available",
        line=statement.line,
        column=statement.column,
        hint="see the SQL reference",
    )


def run_change(home: Headrace, statement: ChangeStatement, read_rows: ReadRows) -> Receipt:
    """Run a statement whose rows are had from elsewhere; no epoch waits for them, however often it is overtaken.

    It is the reader that ends it, when there is no more time; changes that were worked out are carried through.
    """
    with told_where(statement):
        return home.submit(lambda: work_out(home, statement, read_rows), in_turn=False)


def run_query_text(home: Headrace, sql: str, epoch: int | None) -> pa.Table:
    """The rows of one query."""
    statements = parse(sql)
    if len(statements) != 1 or not isinstance(statements[0], Query):
        raise StatementError(
            "query takes one SELECT",
            hint="use execute for other statements and for scripts",
            line=1,
            column=1,
        )
    return _run_query(home, statements[0], epoch)


def _run_query(home: Headrace, query: Query, epoch: int | None) -> pa.Table:
    """The rows of a query."""
    _, relations = relations_of(home, query, epoch, lambda sql: home.queries.run(sql, {}))
    return home.queries.run(query.plain_sql, relations, query.line, query.column)


def _create_table(home: Headrace, statement: CreateTable) -> None:
    if statement.name in home.catalog:
        if statement.if_not_exists:
            return
        raise RelationNameError(f"{statement.name} exists already", hint="choose another name, or write IF NOT EXISTS")
    adopt(home, [make_table(table_contract(home.catalyst, statement))])


def view_of(home: Headrace, statement: CreateView) -> ViewDefinition:
    """The definition that a statement gives, under the columns that the next epoch knows."""
    return ViewDefinition(
        statement.name,
        statement.query,
        statement.columns_spelled,
        statement.materialized,
        statement.policy,
        statement.query_line,
        statement.query_column,
        home.epoch + 1,
    )


def _create_view(home: Headrace, statement: CreateView) -> None:
    existing = home.catalog.relations.get(statement.name)
    if existing is not None:
        if isinstance(existing, Table):
            raise RelationNameError(f"{statement.name} is a table", hint="choose another name for the view")
        if statement.if_not_exists:
            return
        if not statement.or_replace:
            raise RelationNameError(
                f"{statement.name} exists already", hint="write CREATE OR REPLACE VIEW to change it"
            )
    adopt(home, views=[view_of(home, statement)])


def _drop(home: Headrace, statement: Drop) -> None:
    relation = home.catalog.relations.get(statement.name)
    if relation is None:
        if statement.if_exists:
            return
        home.catalog.get(statement.name)
        return
    kind = "table" if isinstance(relation, Table) else "view"
    if (statement.kind == "table") != (kind == "table"):
        raise RelationNameError(f"{statement.name} is a {kind}", hint=f"write DROP {kind.upper()} {statement.name}")
    users = [view.name for view in home.catalog.users(statement.name)]
    sources = [source.name for source in home.catalog.sources.values() if source.table == statement.name]
    if sources:
        raise RelationNameError(
            f"{statement.name} is in use",
            detail=f"Its rows come from source {', '.join(sources)}.",
            hint=f"write DROP SOURCE {sources[0]} first",
        )
    if users:
        raise RelationNameError(
            f"{statement.name} is in use",
            detail=f"It is read by {', '.join(users)}.",
            hint=f"drop {'them' if len(users) > 1 else 'it'} first",
        )
    left = home.catalog.without(statement.name)
    with interrupts_held():
        home.commit(Work({}, home.settings.small_bound), home.tick(), {"drop": [statement.name]}, left)
        restore_names(home, [relation], left.relations)
        if isinstance(relation, View):
            relation.context.clear()


def _explain(home: Headrace, statement: Explain) -> pa.Table:
    if isinstance(statement.target, str):
        return _lines(str(home.explain(statement.target)))
    created = statement.target

    def explained() -> str:
        view = home.make_view(view_of(home, created))
        try:
            return str(explain_view(view))
        finally:
            view.context.clear()

    # The analyzer knows the names of one catalog at a time, and a definition under way has its own.
    return _lines(home.between_epochs(explained))


def _lines(text: str) -> pa.Table:
    return pa.table({"plan": pa.array(text.splitlines(), type=pa.string())})


def _show(home: Headrace, statement: Show) -> pa.Table:
    held = {name: snapshot.count for name, (snapshot, _) in home.relations().items()}
    if statement.what == "tables":
        tables = [one for one in home.catalog.tables() if one.name in held]
        return pa.table(
            {
                "name": pa.array([t.name for t in tables], type=pa.string()),
                "key": pa.array([", ".join(t.contract.key) for t in tables], type=pa.string()),
                "rows": pa.array([held[t.name] for t in tables], type=pa.int64()),
            }
        )
    if statement.what == "views":
        views = [one for one in home.catalog.views() if one.name in held]
        return pa.table(
            {
                "name": pa.array([v.name for v in views], type=pa.string()),
                "incremental": pa.array([v.incremental for v in views], type=pa.bool_()),
                "reads": pa.array([", ".join(v.resolved.reads) for v in views], type=pa.string()),
                "rows": pa.array([held[v.name] for v in views], type=pa.int64()),
            }
        )
    if statement.what == "sources":
        return shown_sources(home.catalog.sources)
    return pa.table({"name": pa.array([], type=pa.string())})


def _describe(home: Headrace, statement: Describe) -> pa.Table:
    relation = home.catalog.get(statement.name)
    key = relation.contract.key if isinstance(relation, Table) else relation.key
    fields = relation.schema.fields
    return pa.table(
        {
            "col_name": pa.array([f.name for f in fields], type=pa.string()),
            "data_type": pa.array([f.dataType.simpleString() for f in fields], type=pa.string()),
            "nullable": pa.array([f.nullable and f.name not in key for f in fields], type=pa.bool_()),
            "key": pa.array([f.name in key for f in fields], type=pa.bool_()),
        }
    )
