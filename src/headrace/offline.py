"""What can be done with a home without Spark: copy it, bring a copy up, look for damage."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.definitions.restored import PAUSED_BY_RESTORE, paused_head
from headrace.errors import LedgerError, SetupError
from headrace.ledger.backup import backup, restore
from headrace.ledger.durable import Progress, no_progress
from headrace.ledger.inspection import Inspection, inspect_storage
from headrace.ledger.ledger import RESTORING, Head, Ledger
from headrace.owner.ownership import living_owner, take_ownership
from headrace.owner.register import outrank_owners
from headrace.settings import Settings, read_settings
from headrace.storage.objects import Location, location_of

__all__ = [
    "PAUSED_BY_RESTORE",
    "backup_home",
    "existing",
    "inspect_home",
    "is_there",
    "relation_names",
    "restore_home",
]


def backup_home(
    home: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    progress: Progress = no_progress,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Copy a home that no process has open; it is owned meanwhile, so that none opens it."""
    settings = settings or read_settings()
    path = existing(home, settings)
    ownership = take_ownership(path, settings.owner_timeout)
    try:
        return backup(path, location_of(destination, settings.storage_options), progress)
    finally:
        ownership.release()


def restore_home(
    source: str | os.PathLike[str],
    home: str | os.PathLike[str],
    progress: Progress = no_progress,
    *,
    live: bool = False,
) -> dict[str, Any]:
    """Restore a backup as a new home, whose sources and changefeeds are paused unless it takes over (`live`).

    The home that was backed up may still run: two homes that deliver under the same sequence numbers, or read one
    replication slot, harm the receivers.
    """
    paused: dict[str, list[str]] = {"sources": [], "changefeeds": []}

    def pause(heads: Sequence[Head]) -> Mapping[str, Any]:
        head = paused_head(heads)
        paused["sources"] = [one["name"] for one in head.get("sources", ())]
        paused["changefeeds"] = [one["name"] for one in head.get("feeds", ())]
        return head

    result = restore(_location(source), _location(home), progress, None if live else pause)
    if live:
        outrank_owners(_location(home))
    return {**result, "paused": paused}


def inspect_home(
    home: str | os.PathLike[str], progress: Progress = no_progress, settings: Settings | None = None
) -> Inspection:
    """Check every file of a home against its checksum, also while a process has it open."""
    return inspect_storage(existing(home, settings), progress)


def relation_names(home: Location) -> frozenset[str] | None:
    """The relations of a home, as its ledger names them; none if it has no ledger yet, or one that cannot be read."""
    ledger = Ledger(home, 0)
    try:
        ledger.open()
    except LedgerError:
        return None
    if not ledger.exists:
        return None
    names: set[str] = set()
    for head in ledger.heads():
        names.difference_update(head.content.get("drop", ()))
        names.update(one["name"] for one in head.content.get("define", ()))
    return frozenset(names)


def is_there(home: str | os.PathLike[str], settings: Settings | None = None) -> bool:
    """Whether a home lies there, also one that has lost its ledger, or is being made or restored."""
    location = _location(home, settings)
    with _reached(home):
        return (
            (location / "ledger").is_dir()
            or (location / RESTORING).is_file()
            or any(location.glob("*/*/_delta_log"))
            or living_owner(location) is not None
        )


def existing(home: str | os.PathLike[str], settings: Settings | None = None) -> Location:
    """The location of a home that is there."""
    location = _location(home, settings)
    if is_there(home, settings):
        return location
    with _reached(home):
        is_folder = location.is_dir()
    raise SetupError(
        f"{home} is a folder, but no home" if is_folder else f"there is no home at {home}",
        detail="This verb works on what is there, so it does not create one.",
        hint=f"name another with --home or HEADRACE_HOME, go to the folder of its headrace.yml, or create it: "
        f"headrace run --home {home} script.sql",
    )


@contextmanager
def _reached(home: str | os.PathLike[str]) -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(
            f"the home {home} cannot be reached",
            detail=f"{error}.",
            hint="see the setting storage_options, then try again",
        ) from error


def _location(name: str | os.PathLike[str], settings: Settings | None = None) -> Location:
    return location_of(name, (settings or read_settings()).storage_options)
