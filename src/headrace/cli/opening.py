"""Open a home for one verb, and turn every error of Headrace into three lines and exit code 1."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import headrace
from headrace.elsewhere import ask_home
from headrace.errors import HeadraceError, SetupError
from headrace.settings import Settings
from headrace.storage import existing


def report(error: HeadraceError, *, as_json: bool) -> None:
    """Print the error to stderr: message, detail and hint, each on its own line, or one JSON object."""
    if as_json:
        parts = {"code": error.code, "message": error.message, "detail": error.detail, "hint": error.hint}
        typer.echo(json.dumps(parts), err=True)
        return
    # Not through rich: it would wrap and colour what a user may want to copy.
    typer.secho(f"error: {error.message}", err=True, fg=typer.colors.RED)
    if error.detail:
        typer.echo(f"detail: {error.detail}", err=True)
    if error.hint:
        typer.echo(f"hint: {error.hint}", err=True)


@contextmanager
def errors_reported(*, as_json: bool, debug: bool) -> Generator[None, None, None]:
    """Inside, an error of Headrace ends the program with its three lines instead of a stack."""
    try:
        yield
    except HeadraceError as error:
        if debug:
            raise
        report(error, as_json=as_json)
        raise typer.Exit(1) from None


def read_sql(script: str) -> str:
    """The text of a SQL file, or of stdin if it is named -."""
    try:
        content = sys.stdin.buffer.read() if script == "-" else Path(script).read_bytes()
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(
            f"cannot read {'stdin' if script == '-' else script}",
            detail=str(error),
            hint="give the path of a SQL file in UTF-8 or of a project's folder, or - for stdin",
        ) from error


@contextmanager
def opened(
    home: str,
    *,
    write: bool = False,
    create: bool = True,
    settings: Settings | None = None,
    as_json: bool = False,
    debug: bool = False,
) -> Generator[headrace.Headrace, None, None]:
    """The open home, read-only unless `write`; only a verb that writes may also `create` it."""
    with errors_reported(as_json=as_json, debug=debug):
        if not (write and create):
            existing(home)
        with Console(stderr=True).status("Starting Spark and opening the home"):
            hr = headrace.open(home, read_only=not write, settings=settings)
        with hr:
            yield hr


def through_owner(
    home: str, verb: str, *, as_json: bool = False, debug: bool = False, **arguments: Any
) -> dict[str, Any] | None:
    """What the process that has the home open answers; none if no process has, and the verb opens it itself."""
    with errors_reported(as_json=as_json, debug=debug):
        return ask_home(home, verb, arguments)
