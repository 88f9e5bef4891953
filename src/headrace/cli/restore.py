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
    live: Annotated[
        bool,
        typer.Option("--live", help="Take over: sources and changefeeds go on. The old home must never run again."),
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Restore a backup as a home, at the epoch of the backup.

    Sources and changefeeds are paused in the restored home: the old home may still run, and two homes that deliver
    under the same sequence numbers, or read one replication slot, harm the receivers. RESUME SOURCE and RESUME
    CHANGEFEED start them one by one; with --live they all go on as they were.

    Keys, policies and the audit trail are no part of a backup: make keys and set policies before the home is served.

    Every file is checked before the first is copied. Nothing is ever written over: to go back to a backup, restore it
    beside the old home and look at it; then end the old home, and restore the backup with --live.

    Examples:

        headrace restore /mnt/backups/shop-monday shop-again

        headrace verify --home shop-again

        headrace restore /mnt/backups/shop-monday shop-live --live
    """
    with errors_reported(as_json=as_json, debug=debug), watched("Checking and copying the backup") as progress:
        result = restore_home(source, home, progress, live=live)
    if as_json:
        show_json({"source": source, **result, "not_restored": list(_NOT_RESTORED)})
        return
    typer.echo(
        f"{home} is at epoch {result['epoch']}, restored from the backup of {result['backed_up_at']}: "
        f"{result['files']} files, {result['bytes']:,} bytes, {result['seconds']:.1f} s"
    )
    paused = [f"{what.removesuffix('s')} {name}" for what, names in result["paused"].items() for name in names]
    if paused:
        typer.echo(
            f"Paused: {', '.join(paused)}. RESUME SOURCE and RESUME CHANGEFEED start them one by one; if the old home "
            "is gone for good, headrace restore --live restores them running."
        )
    typer.echo(
        f"Not restored, for no backup has them: {', '.join(_NOT_RESTORED)}. Before {home} is served, make keys with "
        "headrace key create and set policies with headrace policy set, or put the old home's folder access into it."
    )
