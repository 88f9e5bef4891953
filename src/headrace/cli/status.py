"""`headrace status`: what a home holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli.changefeed import UNTOLD, feeds_for_people
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.reading import reading
from headrace.cli.show import show_json, show_rows
from headrace.cli.source import UNREAD, for_people
from headrace.errors import HeadraceError
from headrace.offline import PAUSED_BY_RESTORE

RESTORED = "note: sources and changefeeds that run in the backup are paused in this restored home; RESUME starts them"


def status(
    home: HomeOption = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="For scripts: exit with 0 if all is well, 1 with warnings, 2 if it is broken."),
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the newest epoch, the tables, the views, and how the sources and changefeeds fare.

    Examples:

        headrace status

        headrace status --home s3://lake/sales --json

        headrace status --check || page-somebody
    """
    if check:
        _check(home, as_json=as_json, debug=debug)
        return
    with errors_reported(as_json=as_json, debug=debug), reading(chosen := choose_home(home)) as hr:
        held = hr.relations()
        if as_json:
            listed = {"tables": held.tables, "views": held.views, "sources": held.sources, "changefeeds": held.feeds}
            parts: dict[str, object] = {"home": chosen.location, "epoch": held.epoch}
            show_json({**parts, **{name: rows.to_pylist() for name, rows in listed.items()}})
            return
        typer.echo(f"{chosen.location} is at epoch {held.epoch}")
        shown = {"Tables": held.tables, "Views": held.views}
        if held.sources.num_rows:
            shown["Sources"] = for_people(held.sources)
        if held.feeds.num_rows:
            shown["Changefeeds"] = feeds_for_people(held.feeds)
        for title, rows in shown.items():
            typer.echo(f"\n{title}")
            show_rows(rows, as_json=False)
        listed = [*held.sources.to_pylist(), *held.feeds.to_pylist()]
        if any(one.get("error") == PAUSED_BY_RESTORE for one in listed):
            typer.echo(RESTORED)
        if held.sources.num_rows and not held.from_owner:
            typer.echo(UNREAD)
        if held.feeds.num_rows and not held.from_owner:
            typer.echo(UNTOLD)


def _check(home: str | None, *, as_json: bool, debug: bool) -> None:
    """Tell what is wrong in a line each, and end with a code that says how bad it is."""
    told: dict[str, Any] | None = None
    why = "no process has it open"
    with errors_reported(as_json=as_json, debug=debug):
        chosen = choose_home(home)
        try:
            known = through_owner(chosen, "status")
            told = None if known is None else {**known, **(through_owner(chosen, "findings") or {})}
        except HeadraceError as error:
            why = error.message
    if told is None:
        text = f"It is not served: {why}; headrace serve --home {chosen.location} serves it."
        found = [{"kind": "home", "about": chosen.location, "level": "broken", "text": text}]
    else:
        found = list(told.get("findings", ()))
    code = max((2 if one["level"] == "broken" else 1 for one in found), default=0)
    epoch = None if told is None else told["epoch"]
    if as_json:
        show_json({"home": chosen.location, "epoch": epoch, "code": code, "findings": found})
    else:
        typer.echo(
            f"{chosen.location}: {('all is well', 'warnings', 'broken')[code]}" + (f", epoch {epoch}" if told else "")
        )
        for one in found:
            typer.echo(f"  {one['level']} {one['kind']} {one['about']}: {one['text']}")
    raise typer.Exit(code)
