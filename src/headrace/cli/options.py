"""The options that every verb takes, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        envvar="HEADRACE_HOME",
        metavar="FOLDER",
        help="The home to work on: the folder or URI that holds everything durable. By default the storage of the "
        "nearest headrace.yml, in this folder or above it; without one, headrace-home.",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark works, such as spark://host:7077; by default HEADRACE_SPARK_MASTER, else on this machine.",
    ),
]
ProjectArgument = Annotated[
    Path, typer.Argument(metavar="[PROJECT]", help="The project's folder, by default this one.", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A value for ${NAME} in a project's SQL; may be repeated."),
]
ProgressOption = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show how far fills are; by default only on a terminal."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs; errors are JSON too.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print all rows as CSV on stdout.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the stack of an error.")]
RowsOption = Annotated[int, typer.Option("--rows", min=1, help="Rows to print at most; --json prints all.")]
