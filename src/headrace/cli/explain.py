"""`headrace explain`: how a view is maintained, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.homes import choose_home
from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, HomeOption, JsonOption
from headrace.cli.reading import reading
from headrace.cli.show import show_json


def explain(
    name: Annotated[str, typer.Argument(help="A view of the home.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Tell the rule of every operator of a view and, where it is not incremental, the reason.

    Examples:

        headrace explain orders_by_city

        headrace explain orders_by_city --json
    """
    with errors_reported(as_json=as_json, debug=debug), reading(choose_home(home)) as hr:
        explanation = hr.explain(name)
        if as_json:
            parts = {
                "name": name,
                "incremental": explanation.incremental,
                "reasons": list(explanation.reasons),
            }
            show_json({**parts, "text": str(explanation)})
        else:
            typer.echo(str(explanation))
