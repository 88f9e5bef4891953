"""`headrace verify`: the judge."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.opening import opened
from headrace.cli.options import DEFAULT_HOME, DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json


def verify(
    name: Annotated[str | None, typer.Argument(help="One view; without it, all.")] = None,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Recompute views in full with plain Spark and compare them, row by row, with what is served.

    Ends with code 1 when anything differs.

    Examples:

        headrace verify

        headrace verify orders_by_city --json
    """
    with opened(home, as_json=as_json, debug=debug) as hr:
        verdict = hr.verify(name)
        differences = [str(difference) for difference in verdict.differences]
        what = name or "every view"
        if as_json:
            show_json({"ok": verdict.ok, "epoch": hr.epoch, "differences": differences})
        elif verdict.ok:
            typer.echo(f"{what} equals its full recompute at epoch {hr.epoch}")
        else:
            typer.echo(f"{what} differs from the full recompute at epoch {hr.epoch}:")
            for difference in differences:
                typer.echo(f"  {difference}")
    if not verdict.ok:
        raise typer.Exit(1)
