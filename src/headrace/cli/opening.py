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
from headrace.cli.homes import ChosenHome
from headrace.cli.notes import notes_shown
from headrace.errors import HeadraceError, SetupError
from headrace.home_elsewhere import ask_home
from headrace.offline import existing, is_there
from headrace.settings import Settings, read_settings


def report(error: HeadraceError, *, as_json: bool) -> None:
    """Print the error to stderr: message, detail and hint, each on its own line, or one JSON object."""
    report_parts(error.code, error.message, error.detail, error.hint, as_json=as_json)


def report_parts(code: str, message: str, detail: str, hint: str, *, as_json: bool) -> None:
    """Print the parts of an error to stderr."""
    if as_json:
        typer.echo(json.dumps({"code": code, "message": message, "detail": detail, "hint": hint}), err=True)
        return
    # Not through rich: it would wrap and colour what a user may want to copy.
    typer.secho(f"error: {message}", err=True, fg=typer.colors.RED)
    if detail:
        typer.echo(f"detail: {detail}", err=True)
    if hint:
        typer.echo(f"hint: {hint}", err=True)


@contextmanager
def errors_reported(*, as_json: bool, debug: bool) -> Generator[None, None, None]:
    """Inside, an error of Headrace ends the program with its three lines instead of a stack."""
    try:
        with notes_shown(not as_json):
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
def opened(home: ChosenHome, *, write: bool = False, create: bool = False) -> Generator[headrace.Headrace, None, None]:
    """The open home, read-only unless `write`; only a verb that is told to `create` may make one."""
    new = create and not is_there(home.location, home.settings)
    if not create:
        existing(home.location, home.settings)
    with Console(stderr=True).status("Starting Spark and opening the home"):
        hr = headrace.open(home.location, read_only=not write, settings=_settings_of(home))
    # Who reads a home that is not there yet makes none until it owns it.
    if new and write:
        typer.echo(f"made a new home at {home.location}", err=True)
    with hr:
        yield hr


def _settings_of(home: ChosenHome) -> Settings:
    """A home's settings, as a program takes them that has its process to itself."""
    settings = home.settings or read_settings()
    if "pause_garbage_collection" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"pause_garbage_collection": True})


def through_owner(home: ChosenHome, verb: str, **arguments: Any) -> dict[str, Any] | None:
    """What the process that has the home open answers; none if no process has, and the verb opens it itself."""
    return ask_home(home.location, verb, arguments, home.settings)
