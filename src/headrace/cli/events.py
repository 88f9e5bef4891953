"""`headrace events`: append to event stores, read them, and ask what was true then."""

from __future__ import annotations

from typing import Annotated, Any, cast

import pyarrow as pa
import typer

from headrace.capture.exact_json import json_text, read_json, read_kept
from headrace.capture.messages import Undecodable
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, opened, read_sql, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json, show_rows
from headrace.errors import EventsRejected
from headrace.events.event import number_or_text
from headrace.face import home_of

events = typer.Typer(
    name="events",
    help="Events of event stores: append them with an expected version, read them, ask what was true then.\n\n"
    '    headrace events append Customer c1 CustomerCreated \'{"name": "Ada"}\' --expected none\n\n'
    "    headrace events read Customer c1\n\n"
    "    headrace events state Customer c1 --as-of 2026-11-17T20:00:00Z",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TypeArgument = Annotated[str, typer.Argument(metavar="TYPE", help="The type of the aggregate.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the aggregate.")]
StoreOption = Annotated[
    str | None, typer.Option("--store", help="The event store; the only one, or events, if none is named.")
]


@events.command()
def append(
    aggregate_type: TypeArgument,
    aggregate_id: IdArgument,
    event_type: Annotated[str | None, typer.Argument(metavar="[EVENT_TYPE]", help="The type of one event.")] = None,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]", help="Its data, a JSON object.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="FILE", help="A JSON array of events, or - for stdin, instead of one event."),
    ] = None,
    expected: Annotated[str, typer.Option(help="any, none, or the version that the aggregate must have.")] = "any",
    key: Annotated[
        str | None, typer.Option("--key", help="Gives ids to events without one: sent again, they change nothing.")
    ] = None,
    store: StoreOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Append one event, or those of a file, all or none."""
    with errors_reported(as_json=as_json, debug=debug):
        listed = _events(event_type, data, file)
        given: dict[str, Any] = {"events": json_text(listed), "expected": number_or_text(expected)}
        if key is not None:
            given["key"] = key
        receipt = _asked(
            home, "append", store, write=True, aggregate_type=aggregate_type, aggregate_id=aggregate_id, **given
        )
        if as_json:
            show_json(receipt)
            return
        typer.echo(
            f"epoch {receipt['epoch']}: {aggregate_type} {aggregate_id} is at version {receipt['version']}, "
            f"position {receipt['position']}"
        )


@events.command()
def read(
    aggregate_type: Annotated[
        str | None, typer.Argument(metavar="[TYPE]", help="Only aggregates of this type.")
    ] = None,
    aggregate_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this aggregate.")] = None,
    since: Annotated[int, typer.Option(min=0, help="Only events after this position.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="So many at most.")] = 100,
    store: StoreOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show events in the order of their positions."""
    with errors_reported(as_json=as_json, debug=debug):
        named = {"aggregate_type": aggregate_type, "aggregate_id": aggregate_id}
        chosen = {name: value for name, value in named.items() if value is not None}
        answer = _asked(home, "read", store, write=False, since=since, limit=limit, **chosen)
        listed = read_kept(answer["events"])
        if as_json:
            typer.echo(json_text(listed))
            return
        names = (
            "position",
            "aggregate_type",
            "aggregate_id",
            "event_version",
            "event_type",
            "event_data",
            "metadata",
            "created_at",
        )
        columns = {name: pa.array([_text(one[name]) for one in listed], pa.string()) for name in names}
        show_rows(pa.table(columns), as_json=False, rows=limit)
        if answer["more"]:
            typer.echo(f"more follow: --since {listed[-1]['position']}")


@events.command()
def state(
    aggregate_type: TypeArgument,
    aggregate_id: IdArgument,
    as_of: Annotated[str | None, typer.Option("--as-of", help="A position, or a time with its zone.")] = None,
    store: StoreOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what an aggregate is, or was as of a position or a time; ends with code 1 if it was not there."""
    with errors_reported(as_json=as_json, debug=debug):
        given = {} if as_of is None else {"as_of": number_or_text(as_of)}
        answer = _asked(
            home, "state", store, write=False, aggregate_type=aggregate_type, aggregate_id=aggregate_id, **given
        )
        found = None if answer["state"] is None else read_kept(answer["state"])
        if as_json:
            typer.echo(json_text({**answer, "state": found}))
        elif found is None:
            typer.echo(_not_there(aggregate_type, aggregate_id, as_of, answer))
        else:
            typer.echo(json_text(found))
    if found is None:
        raise typer.Exit(1)


@events.command()
def forget(
    aggregate_type: TypeArgument,
    aggregate_id: IdArgument,
    store: StoreOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Delete the key of an aggregate's encrypted fields for good: what they held can be read no more."""
    with errors_reported(as_json=as_json, debug=debug):
        answer = _asked(home, "forget", store, write=True, aggregate_type=aggregate_type, aggregate_id=aggregate_id)
        if as_json:
            show_json(answer)
        else:
            typer.echo("forgotten" if answer["forgotten"] else "there was no key")


def _events(event_type: str | None, data: str | None, file: str | None) -> list[dict[str, Any]]:
    try:
        if file is None:
            if event_type is None:
                raise ValueError("name an EVENT_TYPE, or --file FILE")
            return [{"event_type": event_type, "event_data": read_json(data or "{}")}]
        if event_type is not None:
            raise ValueError("give one event or --file FILE, not both")
        listed = read_json(read_sql(file))
    except Undecodable as error:
        what = "DATA" if file is None else file
        raise _unreadable(f"{what} is not JSON: {error.reason.removeprefix('not JSON: ')}") from None
    except ValueError as error:
        raise _unreadable(str(error)) from None
    return cast("list[dict[str, Any]]", listed if isinstance(listed, list) else [listed])


def _unreadable(said: str) -> EventsRejected:
    hint = 'write headrace events append Customer c1 CustomerCreated \'{"name": "Ada"}\''
    return EventsRejected.of_the_call("an event store", said, hint=hint)


def _asked(home: str | None, deed: str, store: str | None, *, write: bool, **arguments: Any) -> dict[str, Any]:
    """What the process answers that has the home open; without one, the home is opened for it."""
    chosen = choose_home(home)
    given = arguments if store is None else {**arguments, "store": store}
    answer = through_owner(chosen, "events", deed=deed, **given)
    if answer is None:
        with opened(chosen, write=write) as hr:
            answer = home_of(hr).events_verb(deed=deed, **given)
    return answer


def _not_there(aggregate_type: str, aggregate_id: str, as_of: str | None, answer: dict[str, Any]) -> str:
    """Why there is no state: it was deleted, or its name or its type is not known."""
    named = f"{aggregate_type} {aggregate_id}"
    if answer["version"]:
        return f"{named} is deleted, at version {answer['version']}"
    types: list[str] = answer.get("types", [])
    told = f"there is no {named}" + ("" if as_of is None else f" as of {as_of}")
    if aggregate_type in types or not types:
        return told
    return f"{told}: no aggregate is of the type {aggregate_type}; there are {', '.join(types[:20])}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
