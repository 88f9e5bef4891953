"""`headrace status`: what a home holds."""

from __future__ import annotations

import typer

from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.reading import reading
from headrace.cli.show import show_json, show_rows


def status(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Show the newest epoch, the tables and the views.

    Examples:

        headrace status

        headrace status --home s3://lake/sales --json
    """
    with errors_reported(as_json=as_json, debug=debug), reading(chosen := choose_home(home)) as hr:
        held = hr.relations()
        if as_json:
            parts: dict[str, object] = {"home": chosen.location, "epoch": held.epoch}
            show_json({**parts, "tables": held.tables.to_pylist(), "views": held.views.to_pylist()})
            return
        typer.echo(f"{chosen.location} is at epoch {held.epoch}")
        for title, rows in (("Tables", held.tables), ("Views", held.views)):
            typer.echo(f"\n{title}")
            show_rows(rows, as_json=False)
