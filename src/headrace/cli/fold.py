"""`headrace fold`: old deltas into the bases, now."""

from __future__ import annotations

import typer

from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, opened, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.show import counted, show_json


def fold(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Merge the deltas of old epochs into each relation's base table, now.

    Where a process has the home open, that process does it, and goes on taking changes meanwhile. Otherwise the
    home is opened for it.

    Examples:

        headrace fold

        headrace fold --home s3://lake/sales --json
    """
    with errors_reported(as_json=as_json, debug=debug):
        chosen = choose_home(home)
        result = through_owner(chosen, "fold")
        if result is None:
            with opened(chosen, write=True) as hr:
                result = hr.fold()
    if as_json:
        show_json({"home": chosen.location, **result})
        return
    # A view's own state is folded too, under names with a #; people know the relations.
    rows = {name: count for name, count in result["folded"].items() if "#" not in name and not name.startswith("_")}
    typer.echo(
        f"{chosen.location} is folded up to epoch {result['epoch']} in {result['seconds']:.1f} s; "
        f"epochs from {result['oldest']} on can be read"
    )
    for name, count in rows.items():
        typer.echo(f"  {name}: {counted(count, 'row')} written")
