"""`headrace reload`: a server reads its settings and its certificate anew."""

from __future__ import annotations

import typer

from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported, through_owner
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.show import show_json
from headrace.errors import SetupError


def reload(home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Have the server of a home read its limits, the level of its log and its certificate anew, as SIGHUP does.

    They come from the file of serve --settings, or from the project of serve --project; the environment of a process
    that runs does not change. What was changed and cannot be taken by a server that runs is named: it is for the next
    start.

    Examples:

        headrace reload

        headrace reload --home sales --json
    """
    with errors_reported(as_json=as_json, debug=debug):
        chosen = choose_home(home)
        answer = through_owner(chosen, "reload")
        if answer is None:
            raise SetupError(f"nobody serves the home {chosen.location}", hint="start it with headrace serve")
    if as_json:
        show_json({"home": chosen.location, **answer})
        return
    typer.echo(f"{chosen.location}: read anew: {answer['told']}")
