"""`headrace verify`: the judge, and the inspection of what lies on disk."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.homes import ChosenHome, choose_home
from headrace.cli.opening import errors_reported, opened
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.progress import shown
from headrace.cli.show import show_json, watched
from headrace.offline import inspect_home


def verify(
    name: Annotated[str | None, typer.Argument(help="One view; without it, all.")] = None,
    storage: Annotated[
        bool, typer.Option("--storage", help="Check the files of the home instead; needs no Spark.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Recompute views in full with plain Spark and compare them, row by row, with what is served.

    Without a name, the counts of sources are compared with the tables that prove them too: received = applied + stale +
    dead, its dead letters, and what is kept of all that came.

    With --storage, every file of the home is compared with its checksum instead: what is torn, missing or altered is
    named, and the newest epoch that is still whole. It may run while a process has the home open.

    Ends with code 1 when anything differs or is damaged.

    Examples:

        headrace verify

        headrace verify orders_by_city --json

        headrace verify --storage
    """
    if storage and name is not None:
        raise typer.BadParameter("--storage checks the whole home: leave the view's name out")
    with errors_reported(as_json=as_json, debug=debug):
        chosen = choose_home(home)
        ok = _verify_storage(chosen, as_json=as_json) if storage else _verify_views(chosen, name, as_json=as_json)
    if not ok:
        raise typer.Exit(1)


def _verify_views(home: ChosenHome, name: str | None, *, as_json: bool) -> bool:
    with opened(home) as hr:
        with shown(hr, "Recomputing with plain Spark", None):
            verdict = hr.verify(name)
        differences = [str(difference) for difference in verdict.differences]
        unbalanced = [str(one) for one in verdict.imbalances]
        what = name or "every view"
        if as_json:
            show_json({"ok": verdict.ok, "epoch": hr.epoch, "differences": differences, "imbalances": unbalanced})
            return verdict.ok
        if differences:
            typer.echo(f"{what} differs from the full recompute at epoch {hr.epoch}:")
        else:
            typer.echo(f"{what} equals its full recompute at epoch {hr.epoch}")
        for difference in differences:
            typer.echo(f"  {difference}")
        if unbalanced:
            typer.echo("of what sources brought, something is lost or counted twice:")
        for one in unbalanced:
            typer.echo(f"  {one}")
    return verdict.ok


def _verify_storage(home: ChosenHome, *, as_json: bool) -> bool:
    with watched("Checking every file") as progress:
        found = inspect_home(home.location, progress, home.settings)
    if as_json:
        show_json({"home": home.location, **found.to_json()})
    else:
        typer.echo(f"{home.location}: {found.files} files, {found.size:,} bytes checked")
        for one in found.damaged:
            typer.echo(f"  {one}")
        typer.echo(found.verdict())
    return found.ok
