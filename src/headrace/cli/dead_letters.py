"""`headrace dead-letters`: what sources could not apply, listed, replayed and discarded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
import typer
from rich.console import Console

import headrace
from headrace.cli.acting import AllOption, show_discarded, show_replayed
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, opened, read_sql, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption, RowsOption
from headrace.cli.show import counted, show_json, show_rows
from headrace.errors import SourceError
from headrace.face import home_of

dead_letters = typer.Typer(
    name="dead-letters",
    help="What sources could not apply, with the reason: mend what was wrong, then replay.\n\n"
    "    headrace dead-letters list --source orders\n\n"
    "    headrace dead-letters replay --source orders\n\n"
    "    headrace dead-letters replay ID --payload mended.json\n\n"
    "    headrace dead-letters discard --stage text",
    no_args_is_help=True,
    rich_markup_mode=None,
)

IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Some letters by their ids.")]
SourceOption = Annotated[str | None, typer.Option("--source", help="Those of one source.")]
StageOption = Annotated[
    str | None, typer.Option("--stage", help="Those that ended there: text, values, contract, view, ...")
]
_PAYLOAD = 200
Deed = Literal["list", "replay", "discard"]


@dead_letters.command("list")
def list_letters(
    source: SourceOption = None,
    stage: StageOption = None,
    home: HomeOption = None,
    rows: RowsOption = 100,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show dead letters, oldest first, each with the begin of its payload."""
    with errors_reported(as_json=as_json, debug=debug):
        answer = _asked(home, "list", write=False, source=source, stage=stage, most=None if as_json else rows)
        letters = answer["letters"]
        if as_json:
            show_json(letters)
            return
        names = ("id", "table", "stage", "reason", "payload", "arrived_at")
        columns = {name: pa.array([_short(one[name]) for one in letters], pa.string()) for name in names}
        show_rows(pa.table(columns), as_json=False, rows=rows)
        if answer["count"] > len(letters):
            typer.echo(f"of {counted(answer['count'], 'dead letter')} in all (--rows)")


@dead_letters.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The letter.")],  # noqa: A002 - as the column is called
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show one dead letter, with all of its payload."""
    with errors_reported(as_json=as_json, debug=debug):
        (letter,) = _asked(home, "list", write=False, ids=[id])["letters"]
        if as_json:
            show_json(letter)
            return
        for name, value in letter.items():
            typer.echo(f"{name:<10}  {'NULL' if value is None else value}")


@dead_letters.command()
def replay(
    ids: IdsArgument = None,
    source: SourceOption = None,
    stage: StageOption = None,
    every: AllOption = False,
    payload: Annotated[
        str | None,
        typer.Option("--payload", metavar="FILE", help="Read one letter with what this file holds; - reads stdin."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Have dead letters read again as their sources would; what is refused again stays, with the reason.

    Ends with code 1 if any stays.
    """
    with errors_reported(as_json=as_json, debug=debug):
        if payload is not None and len(ids or ()) != 1:
            raise SourceError("an edited payload is for one letter", hint="name its id before --payload FILE")
        text = None if payload is None else read_sql(payload)
        receipt = _acted(home, "replay", ids, source, stage, every, text)
        stays = bool(ids) and not as_json and sum(receipt.dead.values()) > 0
        letters = _asked(home, "list", write=False, ids=ids)["letters"] if stays else []
        show_replayed(receipt, as_json=as_json, reasons=[f"{one['id']}: {one['reason']}" for one in letters])


@dead_letters.command()
def discard(
    ids: IdsArgument = None,
    source: SourceOption = None,
    stage: StageOption = None,
    every: AllOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Let go of dead letters for good."""
    with errors_reported(as_json=as_json, debug=debug):
        show_discarded(_acted(home, "discard", ids, source, stage, every, None), as_json=as_json)


def _acted(
    home: str | None,
    deed: Deed,
    ids: list[str] | None,
    source: str | None,
    stage: str | None,
    every: bool,
    payload: str | None,
) -> headrace.Receipt:
    if not ids and source is None and stage is None and not every:
        raise SourceError("it is not said which dead letters", hint="name ids, --source, --stage, or --all")
    chosen = {"ids": ids or None, "source": source, "stage": stage}
    count = _asked(home, "list", write=False, **chosen, most=len(ids or ()))["count"]
    with Console(stderr=True).status(f"{deed} of {counted(count, 'dead letter')}"):
        return headrace.Receipt(**_asked(home, deed, write=True, **chosen, payload=payload)["receipt"])


def _asked(home: str | None, deed: Deed, *, write: bool, **arguments: Any) -> dict[str, Any]:
    """What the process answers that has the home open; without one, the home is opened for it."""
    chosen = choose_home(home)
    given = {name: value for name, value in arguments.items() if value is not None}
    answer = through_owner(chosen, "dead_letters", deed=deed, **given)
    if answer is None:
        with opened(chosen, write=write) as hr:
            answer = home_of(hr).dead_letters(deed, **given)
    return answer


def _short(value: Any) -> str | None:
    text = None if value is None else " ".join(str(value).split())
    return text if text is None or len(text) <= _PAYLOAD else f"{text[:_PAYLOAD]}..."
