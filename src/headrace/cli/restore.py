"""`headrace restore`: a backup becomes a home."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, JsonOption
from headrace.cli.show import show_json, watched
from headrace.offline import restore_home

# What the folder access of a home holds.
_NOT_RESTORED = ("keys", "policies", "audit trail")


def restore(
    source: Annotated[str, typer.Argument(help="The folder of a backup.")],
    home: Annotated[str, typer.Argument(help="The new home: a folder that does not exist yet or is empty.")],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Bring a backup up as a home, at the epoch that it was taken at.

    Keys, policies and the audit trail are no part of a backup: make keys and set policies before the home is served.

    Every file is checked before the first is copied. Nothing is ever written over: to go back to a backup, restore it
    beside the old home, look at it, then swap the two folders.

    Examples:

        headrace restore /mnt/backups/shop-monday shop-again

        headrace verify --home shop-again
    """
    with errors_reported(as_json=as_json, debug=debug), watched("Checking and copying the backup") as progress:
        result = restore_home(source, home, progress)
    if as_json:
        show_json({"source": source, **result, "not_restored": list(_NOT_RESTORED)})
        return
    typer.echo(
        f"{home} is at epoch {result['epoch']}, as it was backed up at {result['backed_up_at']}: "
        f"{result['files']} files, {result['bytes']:,} bytes, {result['seconds']:.1f} s"
    )
    typer.echo(
        f"Not restored, for no backup has them: {', '.join(_NOT_RESTORED)}. Before {home} is served, make keys with "
        "headrace key create and set policies with headrace policy set, or put the old home's folder access into it."
    )
