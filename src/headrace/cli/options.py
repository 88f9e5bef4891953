"""The options that every verb takes, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

HomeOption = Annotated[
    str,
    typer.Option(
        "--home",
        envvar="HEADRACE_HOME",
        metavar="FOLDER",
        help="The home to work on: the folder or URI that holds everything durable.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs; errors are JSON too.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the stack of an error.")]
RowsOption = Annotated[int, typer.Option("--rows", min=1, help="Rows to print at most; --json prints all.")]

DEFAULT_HOME = "headrace-home"
