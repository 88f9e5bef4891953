"""Which home a verb works on: the one that is named, the project's that the user stands in, or the default."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import typer

from headrace.cli.notes import note_once
from headrace.errors import SetupError
from headrace.project.folder import FILE_NAME, is_project, open_project
from headrace.settings import Settings, read_settings

DEFAULT_HOME = "headrace-home"


@dataclass(frozen=True)
class ChosenHome:
    """A home, the settings of the project that it belongs to, and whether anything but a default chose it."""

    location: str
    settings: Settings | None
    named: bool


def choose_home(given: str | None) -> ChosenHome:
    """The home by --home or HEADRACE_HOME, else the storage of the nearest headrace.yml, else headrace-home.

    A project's settings come along only with its own home: another home has other needs.
    """
    if given is not None:
        return ChosenHome(given, None, named=True)
    folder = nearest_project(current_folder())
    if folder is None:
        return ChosenHome(DEFAULT_HOME, None, named=False)
    project = open_project(folder)
    return ChosenHome(project.home, project.content.settings, named=True)


def with_master(chosen: ChosenHome, master: str | None) -> ChosenHome:
    """The same home with Spark at this master, if one is given."""
    if master is None:
        return chosen
    settings = chosen.settings or read_settings()
    return replace(
        chosen, settings=read_settings(**{**settings.model_dump(exclude_unset=True), "spark_master": master})
    )


def tell_unused_master(master: str | None) -> None:
    """Say that another process has the home open, and works with its own Spark."""
    if master is not None:
        typer.echo(f"note: the process that has the home open ran this with its own Spark, not at {master}", err=True)


def current_folder() -> Path:
    """The folder that the user stands in."""
    try:
        return Path.cwd()
    except OSError as error:
        raise SetupError(
            "the current folder cannot be found",
            detail=f"{error}. It was removed, or may not be read.",
            hint="go to another folder, or name the home with --home",
        ) from error


def nearest_project(folder: Path) -> Path | None:
    """The folder, or the nearest above it, that holds a headrace.yml; SetupError if others could have written that."""
    found = next((one for one in (folder, *folder.parents) if is_project(one)), None)
    if found is not None:
        _refuse_of_others(found / FILE_NAME)
        if found != folder:
            note_once(f"the project is that of {found / FILE_NAME}")
    return found


def _refuse_of_others(file: Path) -> None:
    """Refuse a file that nobody named and that another user may have left: it names homes, and options of Java."""
    for one in (file.parent, file):
        try:
            about = one.stat()
        except OSError as error:
            raise SetupError(f"{file} cannot be looked at", detail=f"{error}.", hint=_to_name(file)) from error
        if about.st_uid not in (0, os.geteuid()):
            why = f"{one} belongs to {_name_of(about.st_uid)}, and you are {_name_of(os.geteuid())}."
        elif about.st_mode & stat.S_IWOTH:
            why = f"Everybody may write {one}; chmod o-w makes an end of that."
        else:
            continue
        raise SetupError(
            f"{file} may be another user's, and is not taken",
            detail=f"{why} Who writes it decides what runs here, in your name.",
            hint=_to_name(file),
        )


def _to_name(file: Path) -> str:
    return (
        f"to take it on purpose, name it: headrace run {file.parent}, headrace serve --project {file.parent}; "
        "or name a home with --home"
    )


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
