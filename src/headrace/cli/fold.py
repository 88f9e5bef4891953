"""`headrace fold`: old deltas into the bases, now."""

from __future__ import annotations

import typer

from headrace.cli.opening import opened, through_owner
from headrace.cli.options import DEFAULT_HOME, DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json


def fold(home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Merge the deltas of old epochs into each relation's base table, now.

    Where a process has the home open, that process does it, and goes on taking changes meanwhile. Otherwise the
    home is opened for it.

    Examples:

        headrace fold

        headrace fold --home s3://lake/sales --json
    """
    result = through_owner(home, "fold", as_json=as_json, debug=debug)
    if result is None:
        with opened(home, write=True, create=False, as_json=as_json, debug=debug) as hr:
            result = hr.fold()
    if as_json:
        show_json({"home": home, **result})
        return
    typer.echo(f"{home} is folded")
    for name, value in result.items():
        typer.echo(f"  {name}: {value}")
