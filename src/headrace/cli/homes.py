"""Which home a verb works on: the one that is named, the project's that the user stands in, or the default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headrace.project.folder import is_project, open_project
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
    folder = nearest_project(Path.cwd())
    if folder is None:
        return ChosenHome(DEFAULT_HOME, None, named=False)
    project = open_project(folder)
    return ChosenHome(project.home, project.content.settings, named=True)


def with_master(chosen: ChosenHome, master: str | None) -> ChosenHome:
    """The same home with Spark at this master, if one is given."""
    if master is None:
        return chosen
    settings = chosen.settings or read_settings()
    return replace(chosen, settings=read_settings(**{**settings.model_dump(), "spark_master": master}))


def nearest_project(folder: Path) -> Path | None:
    """The folder, or the nearest above it, that holds a headrace.yml."""
    return next((one for one in (folder, *folder.parents) if is_project(one)), None)
