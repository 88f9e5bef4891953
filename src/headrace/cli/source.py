"""`headrace source`: sources listed, made, paused, resumed, replayed and dropped."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import pyarrow as pa
import typer

from headrace.cli.acting import carry_out, show_one, tell_idle
from headrace.cli.homes import ChosenHome, choose_home
from headrace.cli.opening import errors_reported, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption, ProgressOption
from headrace.cli.reading import Relations, reading
from headrace.cli.show import show_rows
from headrace.cli.sql_text import options_text, quoted, string
from headrace.errors import HeadraceError, SourceError
from headrace.home_elsewhere import rows_of

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
# A list is so wide, and what is wrong has what the other columns leave; all is in --json and `headrace source show`.
_WIDTH, _LEAST_OF_ERROR, _MOST_OF_TABLES = 120, 20, 30
_BETWEEN, _EDGES = len(" │ "), 2
# How long a new source is waited for, and how often it is looked at meanwhile.
_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 0.2
UNREAD = "note: no process has the home open, so no source is read now; headrace serve has them read"


def _listed(home: ChosenHome) -> Relations:
    """What SHOW SOURCES tells, by the process that runs them, if there is one."""
    with reading(home) as held:
        return held.relations()


def for_people(sources: pa.Table) -> pa.Table:
    """A list that a terminal has room for: a line a source, with the begin of what is wrong with it."""
    rows = sources.to_pylist()
    columns = {
        "name": [one.get("name") for one in rows],
        "state": [one.get("state") for one in rows],
        "tables": [_cut(", ".join(one.get("tables") or [one.get("table") or ""]), _MOST_OF_TABLES) for one in rows],
        "lag": [_lag(one.get("lag_records"), one.get("lag_seconds")) for one in rows],
        "applied": [_number(one.get("applied")) for one in rows],
        "dead": [_number(one.get("dead")) for one in rows],
    }
    taken = sum(max(len(one or "NULL") for one in (name, *values)) + _BETWEEN for name, values in columns.items())
    columns["error"] = [_cut(_wrong(one), max(_LEAST_OF_ERROR, _WIDTH - _EDGES - taken)) for one in rows]
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def _number(count: int | None) -> str | None:
    return None if count is None else f"{count:,}"


def _lag(records: int | None, seconds: float | None) -> str | None:
    parts = [] if records is None else [f"{records:,}"]
    return ", ".join(parts if seconds is None else [*parts, f"{seconds:,.1f} s"]) or None


def _wrong(row: Mapping[str, Any]) -> str:
    return row.get("error") or (f"warning: {row['warning']}" if row.get("warning") else "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _tell_first_answer(home: ChosenHome, name: str) -> None:
    """Say what a source that was just made runs into, once it has answered; it is made in any case."""
    ends = time.monotonic() + _ANSWER_SECONDS
    row: Mapping[str, Any] = {}
    # Whatever becomes of the asking: what was asked for is done.
    with suppress(HeadraceError):
        while (told := through_owner(home, "relations")) is not None:
            row = next((one for one in rows_of(told["sources"]).to_pylist() if one["name"] == name.lower()), {})
            if _has_answered(row) or time.monotonic() >= ends:
                break
            time.sleep(_LOOK_SECONDS)
    if wrong := _wrong(row):
        typer.echo(f"{row['state']}, {wrong}")
    elif not _has_answered(row):
        typer.echo("nothing has come from it yet")
    typer.echo(f"headrace source show {name} tells how it fares")


def _has_answered(row: Mapping[str, Any]) -> bool:
    heard = any(row.get(one) is not None for one in ("error", "position", "lag_records", "lag_seconds"))
    return heard or bool(row.get("received")) or row.get("state") != "Running"


@source.command("list")
def list_sources(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show all sources: their tables, how far they are behind (records, seconds), and why one stopped.

    All that is known is in --json, and of one in headrace source show.
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
    """Make a source, as CREATE SOURCE does, and tell what its first seconds come to.

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
        sql = (
            f"CREATE SOURCE {'IF NOT EXISTS ' if if_not_exists else ''}{quoted(name)} "
            f"{f'INTO {quoted(table)} ' if table else ''}FROM {connector.upper()} {string(location)}"
            f"{f' WITH ({given})' if given else ''}"
        )
        at_work = carry_out(home, sql, f"source {name} is made", as_json=as_json, idle=UNREAD)
        if at_work and not as_json:
            _tell_first_answer(choose_home(home), name)


@source.command()
def pause(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Read a source no further for now; the epoch under way is finished."""
    with errors_reported(as_json=as_json, debug=debug):
        carry_out(home, f"PAUSE SOURCE {quoted(name)}", f"source {name} is paused", as_json=as_json)


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
        sql = f"RESUME SOURCE {quoted(name)}{' WITH SNAPSHOT' if with_snapshot else ''}"
        carry_out(home, sql, f"source {name} goes on", as_json=as_json, idle=UNREAD)


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
        done = f"source {name} is asked for the rows of {', '.join(tables or ('all its tables',))}"
        carry_out(home, f"SNAPSHOT SOURCE {quoted(name)}{named}", done, as_json=as_json)


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
        sql = f"ALTER SOURCE {quoted(name)} SET ({options_text(options)})"
        carry_out(home, sql, f"source {name} has other options", as_json=as_json)


@source.command()
def drop(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Forget a source; what it brought, its raw rows and its dead letters stay."""
    with errors_reported(as_json=as_json, debug=debug):
        done = f"source {name} is dropped; what it brought stays"
        carry_out(home, f"DROP SOURCE {quoted(name)}", done, as_json=as_json)


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
        sql = f"REPLAY SOURCE {quoted(name)}{''.join(given)}"
        done, what = f"source {name} is replayed", f"Replaying {name}"
        carry_out(home, sql, done, as_json=as_json, what=what, progress=progress)
