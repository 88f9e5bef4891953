"""`headrace init`: make a small project that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.opening import errors_reported
from headrace.cli.options import DebugOption, JsonOption
from headrace.cli.show import show_json
from headrace.project.template import make_project


def init(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to make; its name is the project's.")],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a project folder with two tables, two views and a script of changes.

    Examples:

        headrace init shop
    """
    with errors_reported(as_json=as_json, debug=debug):
        files = make_project(folder)
    if as_json:
        show_json({"folder": str(folder), "files": files})
        return
    for file in files:
        typer.echo(f"made {folder / file}")
    typer.echo(
        f"\nNext:\n  cd {folder}\n  headrace check\n  headrace run\n  headrace run changes.sql\n"
        '  headrace query "SELECT * FROM revenue_by_city"'
    )
