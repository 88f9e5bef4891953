"""A command that is misspelt, told as every other error is: message, detail, hint."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.main import get_command

from headrace.cli.opening import report_parts

# What the library raises for arguments that it cannot take; it has no public name of its own there.
_USAGE_ERROR: Any = typer.BadParameter.__base__


def run_command(app: typer.Typer, name: str, arguments: Sequence[str]) -> int:
    """Run a command; its exit code, which is 2 where it was misspelt."""
    try:
        code = get_command(app).main(list(arguments), prog_name=name, standalone_mode=False)
    except typer.Abort:
        typer.echo("Aborted!", err=True)
        return 1
    except _USAGE_ERROR as error:
        return _told(error, name, as_json="--json" in arguments)
    return code if isinstance(code, int) else 0


def _told(error: Any, name: str, *, as_json: bool) -> int:
    context = error.ctx
    if context is None or type(error).__name__ == "NoArgsIsHelpError":
        # A group of verbs of which none was named shows them.
        error.show(sys.stderr)
        return int(error.exit_code)
    said = error.format_message().strip().rstrip(".")
    where = context.command_path or name
    report_parts(
        "usage_error",
        said[:1].lower() + said[1:],
        " ".join(context.get_usage().split()),
        f"{where} --help tells what it takes",
        as_json=as_json,
    )
    return int(error.exit_code)
