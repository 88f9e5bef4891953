"""`headrace status`: what a home holds."""

from __future__ import annotations

import typer

from headrace.cli.changefeed import UNTOLD, feeds_for_people
from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.reading import reading
from headrace.cli.show import show_json, show_rows
from headrace.cli.source import UNREAD, for_people


def status(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show the newest epoch, the tables, the views, and how the sources and changefeeds fare.

    Examples:

        headrace status

        headrace status --home s3://lake/sales --json
    """
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
        if held.sources.num_rows and not held.from_owner:
            typer.echo(UNREAD)
        if held.feeds.num_rows and not held.from_owner:
            typer.echo(UNTOLD)
