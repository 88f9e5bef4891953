"""`headrace backup`: a consistent copy of one epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json, watched
from headrace.offline import backup_home, existing


def backup(
    destination: Annotated[str, typer.Argument(help="A folder or URI that does not exist yet or is empty.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Copy the home as of its newest epoch, older epochs included, into a folder.

    Where a process has the home open, that process does it, and goes on taking changes meanwhile. Otherwise the
    files are copied here, without Spark. Every file is checked while it is copied; backup.json is written last, and a
    folder without it is no backup.

    Examples:

        headrace backup /mnt/backups/shop-monday

        headrace backup ../copy --home shop --json

        headrace restore /mnt/backups/shop-monday shop-again
    """
    # The process that has the home open may have been started in another folder.
    folder = destination if "://" in destination else str(Path(destination).absolute())
    with errors_reported(as_json=as_json, debug=debug):
        chosen = choose_home(home)
        existing(chosen.location, chosen.settings)
        with Console(stderr=True).status("Copying the newest epoch"):
            result = through_owner(chosen, "backup", destination=folder)
        if result is None:
            with watched("Copying the newest epoch") as progress:
                result = backup_home(chosen.location, folder, progress, chosen.settings)
    if as_json:
        show_json({"home": chosen.location, **result})
        return
    typer.echo(
        f"epoch {result['epoch']} of {chosen.location} is in {destination}: "
        f"{result['files']} files, {result['bytes']:,} bytes, {result['seconds']:.1f} s"
    )
