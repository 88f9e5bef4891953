"""`headrace source`: sources listed, made, paused, resumed, replayed and dropped."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

from headrace.cli.acting import run_statement, show_one, tell, tell_idle
from headrace.cli.homes import ChosenHome, choose_home
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, HomeOption, JsonOption, ProgressOption
from headrace.cli.reading import Relations, reading
from headrace.cli.show import show_rows
from headrace.cli.sql_text import options_text, quoted, string
from headrace.errors import SourceError

source = typer.Typer(
    name="source",
    help="Where rows come from: databases, Kafka topics, Delta tables, files, functions.\n\n"
    "    headrace source list\n\n"
    "    headrace source create orders --into orders --from kafka localhost:9092/shop.public.orders "
    "--option format=debezium\n\n"
    "    headrace source pause orders\n\n"
    "Where a process has the home open, it is asked to do it: it is the one that runs the sources. "
    "Without one, such as headrace serve, no source is read.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The source.")]
# What a list shows; all of it is in --json and in `headrace source show`.
_LISTED = ("name", "table", "state", "received", "applied", "stale", "dead", "pending", "lag_records", "lag_seconds",
           "records_per_second", "error", "warning")  # fmt: skip
UNREAD = "note: no process has the home open, so no source is read now; headrace serve has them read"


def _listed(home: ChosenHome) -> Relations:
    """What SHOW SOURCES tells, by the process that runs them, if there is one."""
    with reading(home) as held:
        return held.relations()


def for_people(sources: pa.Table) -> pa.Table:
    """The columns of a list, in short; those that the process tells that runs them."""
    short = sources.select([name for name in _LISTED if name in sources.column_names])
    for index, field in enumerate(short.schema):
        if field.type == pa.float64():
            values = [None if one is None else round(one, 1) for one in short.column(index).to_pylist()]
            short = short.set_column(index, field.name, pa.array(values, pa.float64()))
    return short


@source.command("list")
def list_sources(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show all sources: what became of what they brought, how far they are behind, and why one stopped.

    received = applied + stale + dead + pending.
    """
    with errors_reported(as_json=as_json, debug=debug):
        found = _listed(choose_home(home))
        show_rows(found.sources if as_json else for_people(found.sources), as_json=as_json)
        tell_idle(UNREAD, found.from_owner or not found.sources.num_rows, as_json=as_json)


@source.command()
def show(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show all that is known of one source."""
    with errors_reported(as_json=as_json, debug=debug):
        show_one(_listed(choose_home(home)).sources.to_pylist(), name, "source", as_json=as_json)


@source.command()
def create(
    name: NameArgument,
    connector: Annotated[str, typer.Option("--from", metavar="CONNECTOR", help="Such as postgres, kafka or files.")],
    location: Annotated[str, typer.Argument(metavar="WHERE", help="Such as localhost:9092/topic, a URL, or a path.")],
    table: Annotated[
        str, typer.Option("--into", metavar="TABLE", help="The table that it is for, unless its records tell.")
    ] = "",
    options: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the source; may be repeated."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave one that is there alone.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a source, as CREATE SOURCE does.

    Examples:

        headrace source create orders localhost:9092/shop.public.orders --from kafka --into orders -o format=debezium

        headrace source create shop postgresql://reader@db:5432/shop --from postgres -o tables=public.orders
        -o password=env:SHOP_PASSWORD

        headrace source create lake /lake/orders --from delta --into orders -o mode=follow
    """
    with errors_reported(as_json=as_json, debug=debug):
        if not connector.isalnum():
            raise SourceError(f"there is no connector {connector}", hint="such as kafka, delta or files")
        given = options_text(options or ())
        is_read = run_statement(
            choose_home(home),
            f"CREATE SOURCE {'IF NOT EXISTS ' if if_not_exists else ''}{quoted(name)} "
            f"{f'INTO {quoted(table)} ' if table else ''}FROM {connector.upper()} {string(location)}"
            f"{f' WITH ({given})' if given else ''}",
        )
        tell(f"source {name} is made", as_json=as_json)
        tell_idle(UNREAD, is_read, as_json=as_json)


@source.command()
def pause(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Read a source no further for now; the epoch under way is finished."""
    with errors_reported(as_json=as_json, debug=debug):
        run_statement(choose_home(home), f"PAUSE SOURCE {quoted(name)}")
        tell(f"source {name} is paused", as_json=as_json)


@source.command()
def resume(
    name: NameArgument,
    with_snapshot: Annotated[
        bool,
        typer.Option(
            "--with-snapshot", help="Read its tables anew first, since its log no longer has what comes next."
        ),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Have a source go on that was paused, or that stopped at an error."""
    with errors_reported(as_json=as_json, debug=debug):
        is_read = run_statement(
            choose_home(home), f"RESUME SOURCE {quoted(name)}{' WITH SNAPSHOT' if with_snapshot else ''}"
        )
        tell(f"source {name} goes on", as_json=as_json)
        tell_idle(UNREAD, is_read, as_json=as_json)


@source.command()
def snapshot(
    name: NameArgument,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Those to be read; all if none is named.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Have a source bring all rows of tables once more, while their changes go on."""
    with errors_reported(as_json=as_json, debug=debug):
        named = f" TABLE {', '.join(map(string, tables))}" if tables else ""
        run_statement(choose_home(home), f"SNAPSHOT SOURCE {quoted(name)}{named}")
        tell(f"source {name} is asked for the rows of {', '.join(tables or ('all its tables',))}", as_json=as_json)


@source.command()
def alter(
    name: NameArgument,
    options: Annotated[
        list[str], typer.Option("--option", "-o", metavar="NAME=VALUE", help="What is to be another from now on.")
    ],
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Give a source other options; it goes on where it was."""
    with errors_reported(as_json=as_json, debug=debug):
        given = options_text(options)
        run_statement(choose_home(home), f"ALTER SOURCE {quoted(name)} SET ({given})")
        tell(f"source {name} has other options", as_json=as_json)


@source.command()
def drop(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Forget a source; what it brought, its raw rows and its dead letters stay."""
    with errors_reported(as_json=as_json, debug=debug):
        run_statement(choose_home(home), f"DROP SOURCE {quoted(name)}")
        tell(f"source {name} is dropped; what it brought stays", as_json=as_json)


@source.command()
def replay(
    name: NameArgument,
    since: Annotated[
        str, typer.Option("--since", metavar="EVENT|TIME", help="An event_id of NAME_raw, or a time of arrival.")
    ] = "",
    until: Annotated[
        str, typer.Option("--until", metavar="EVENT|TIME", help="The last one; only with --into another table.")
    ] = "",
    into: Annotated[
        str, typer.Option("--into", metavar="TABLE", help="Another table, which is made if it is not there.")
    ] = "",
    progress: ProgressOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Apply again what a source brought, from what NAME_raw has kept of it.

    Examples:

        headrace source replay orders

        headrace source replay orders --since '2026-01-31 12:00' --into orders_again
    """
    with errors_reported(as_json=as_json, debug=debug):
        parts = {"FROM": string(since), "UNTIL": string(until), "INTO": quoted(into)}
        given = [f" {word} {part}" for word, part in parts.items() if part.strip("'`")]
        run_statement(choose_home(home), f"REPLAY SOURCE {quoted(name)}{''.join(given)}", f"Replaying {name}", progress)
        tell(f"source {name} is replayed", as_json=as_json)
