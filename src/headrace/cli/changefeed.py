"""`headrace changefeed`: feeds listed, made, altered, paused, resumed, told anew and dropped; and parked events."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import typer

import headrace
from headrace.cli.acting import AllOption, carry_out, show_discarded, show_one, show_replayed, tell_idle
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, opened, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption, RowsOption
from headrace.cli.reading import reading
from headrace.cli.show import show_rows
from headrace.cli.sql_text import options_text, quoted, string
from headrace.errors import FeedError, RelationNameError

changefeed = typer.Typer(
    name="changefeed",
    help="Where changes go: Kafka topics, webhooks, databases, files.\n\n"
    "    headrace changefeed list\n\n"
    "    headrace changefeed create orders_out localhost:9092/orders --for orders --into kafka\n\n"
    "    headrace changefeed pause orders_out\n\n"
    "Where a process has the home open, it is asked to do it: it is the one that runs the feeds. "
    "Without one, such as headrace serve, nothing is told.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
parked = typer.Typer(
    name="parked",
    help="Events that a sink refused again and again: mend what was wrong, then replay.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
changefeed.add_typer(parked)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The changefeed.")]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the feed; may be repeated."),
]
# What a list shows; all of it is in --json and in `headrace changefeed show`.
_LISTED = ("name", "table", "state", "last_sequence", "events_delivered", "lag", "error", "sink", "location", "parked")
UNTOLD = "note: no process has the home open, so no changefeed is at work now; headrace serve has them told"


def feeds_for_people(feeds: pa.Table) -> pa.Table:
    """The columns of a list, in short."""
    return feeds.select([name for name in _LISTED if name in feeds.column_names])


@changefeed.command("list")
def list_feeds(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show all changefeeds: how far each is, by how many epochs it is behind, and why one stopped."""
    with errors_reported(as_json=as_json, debug=debug), reading(choose_home(home)) as held:
        found = held.relations()
        show_rows(found.feeds if as_json else feeds_for_people(found.feeds), as_json=as_json)
        tell_idle(UNTOLD, found.from_owner or not found.feeds.num_rows, as_json=as_json)


@changefeed.command()
def show(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show all that is known of one changefeed."""
    with errors_reported(as_json=as_json, debug=debug), reading(choose_home(home)) as held:
        show_one(held.relations().feeds.to_pylist(), name, "changefeed", as_json=as_json)


@changefeed.command()
def create(
    name: NameArgument,
    location: Annotated[str, typer.Argument(metavar="WHERE", help="Such as localhost:9092/topic, a URL, or a path.")],
    table: Annotated[str, typer.Option("--for", metavar="RELATION", help="The table or view whose changes go out.")],
    sink: Annotated[str, typer.Option("--into", metavar="SINK", help="Such as kafka, webhook, postgres or files.")],
    options: OptionsOption = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave one that is there alone.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a changefeed, as CREATE CHANGEFEED does.

    Examples:

        headrace changefeed create out localhost:9092/orders --for orders --into kafka -o include_old_values=true

        headrace changefeed create serving 'postgresql://api@db/shop/orders' --for orders --into postgres
        -o password=env:API_PASSWORD
    """
    with errors_reported(as_json=as_json, debug=debug):
        if not sink.isalnum():
            raise FeedError(f"there is no sink {sink}", hint="such as kafka, webhook, postgres or files")
        given = options_text(options or ())
        sql = (
            f"CREATE CHANGEFEED {'IF NOT EXISTS ' if if_not_exists else ''}{quoted(name)} FOR TABLE {quoted(table)} "
            f"INTO {sink.upper()} {string(location)}{f' WITH ({given})' if given else ''}"
        )
        at_work = carry_out(home, sql, f"changefeed {name} is made", as_json=as_json, idle=UNTOLD)
        if at_work and not as_json:
            _note_warning(home, name)


def _note_warning(home: str | None, name: str) -> None:
    """Show what the process that has the home open knows to be doubtful about a feed."""
    with reading(choose_home(home)) as held:
        for one in held.relations().feeds.to_pylist():
            if one["name"] == name.lower() and one.get("warning"):
                typer.echo(f"note: {one['warning']}")


@changefeed.command()
def alter(
    name: NameArgument,
    options: OptionsOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="An option to be as if it had not been given.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Give a changefeed other options; it goes on where it was."""
    with errors_reported(as_json=as_json, debug=debug):
        if not options and not unset:
            raise FeedError("it is not said what is to be another", hint="write --option name=value or --unset name")
        changes = [f"SET ({options_text(options)})"] if options else []
        changes += [f"UNSET ({', '.join(map(string, unset))})"] if unset else []
        sql = "; ".join(f"ALTER CHANGEFEED {quoted(name)} {change}" for change in changes)
        carry_out(home, sql, f"changefeed {name} has other options", as_json=as_json)


@changefeed.command()
def pause(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Tell nothing for now; what was told is remembered, and the log is kept up to retention_epochs."""
    with errors_reported(as_json=as_json, debug=debug):
        carry_out(home, f"PAUSE CHANGEFEED {quoted(name)}", f"changefeed {name} is paused", as_json=as_json)


@changefeed.command()
def resume(
    name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Have a changefeed go on that was paused, or that stopped at an error."""
    with errors_reported(as_json=as_json, debug=debug):
        sql = f"RESUME CHANGEFEED {quoted(name)}"
        carry_out(home, sql, f"changefeed {name} goes on", as_json=as_json, idle=UNTOLD)


@changefeed.command()
def resync(
    name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Have a changefeed tell all rows anew, as they are now; then it goes on with changes."""
    with errors_reported(as_json=as_json, debug=debug):
        sql = f"RESYNC CHANGEFEED {quoted(name)}"
        carry_out(home, sql, f"changefeed {name} tells all rows anew", as_json=as_json, idle=UNTOLD)


@changefeed.command()
def drop(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Forget a changefeed; what was told stays where it is, and so do parked events."""
    with errors_reported(as_json=as_json, debug=debug):
        done = f"changefeed {name} is dropped; what it told stays"
        carry_out(home, f"DROP CHANGEFEED {quoted(name)}", done, as_json=as_json)


FeedOption = Annotated[str | None, typer.Option("--feed", help="Those of one changefeed.")]
SequencesArgument = Annotated[list[int] | None, typer.Argument(metavar="[SEQUENCE...]", help="Some by their numbers.")]


@parked.command("list")
def list_parked(
    feed: FeedOption = None,
    home: HomeOption = None,
    rows: RowsOption = 100,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show parked events, each with the reason."""
    with errors_reported(as_json=as_json, debug=debug), reading(choose_home(home)) as held:
        try:
            found = held.query(f"SELECT * FROM parked_events{_where(feed, None)} ORDER BY feed, sequence", None)
        except RelationNameError:
            # The first changefeed makes the table.
            found = pa.table({})
        show_rows(found, as_json=as_json, rows=rows)


@parked.command()
def replay(
    sequences: SequencesArgument = None,
    feed: FeedOption = None,
    every: AllOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Have the sink take parked events after all; what is refused again stays. Ends with code 1 if any stays."""
    with errors_reported(as_json=as_json, debug=debug):
        show_replayed(_acted(home, "REPLAY", sequences, feed, every), as_json=as_json)


@parked.command()
def discard(
    sequences: SequencesArgument = None,
    feed: FeedOption = None,
    every: AllOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Let go of parked events for good."""
    with errors_reported(as_json=as_json, debug=debug):
        show_discarded(_acted(home, "DISCARD", sequences, feed, every), as_json=as_json)


def _acted(home: str | None, verb: str, sequences: list[int] | None, feed: str | None, every: bool) -> headrace.Receipt:
    if not sequences and feed is None and not every:
        raise FeedError("it is not said which parked events", hint="name their sequences, --feed, or --all")
    chosen, sql = choose_home(home), f"{verb} PARKED EVENTS{_where(feed, sequences)}"
    answer = through_owner(chosen, "execute", sql=sql)
    if answer is not None:
        return headrace.Receipt(**answer["receipt"])
    with opened(chosen, write=True) as hr:
        receipt = hr.execute(sql)
    assert isinstance(receipt, headrace.Receipt)
    return receipt


def _where(feed: str | None, sequences: list[int] | None) -> str:
    conditions = [f"feed = {string(feed.lower())}"] if feed is not None else []
    conditions += [f"sequence IN ({', '.join(map(str, sequences))})"] if sequences else []
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
