"""What can be done with a home without Spark: copy it, bring a copy up, look for damage."""

from __future__ import annotations

import os
from typing import Any

from headrace.errors import LedgerError, SetupError
from headrace.ledger.backup import backup, restore
from headrace.ledger.durable import Progress, no_progress
from headrace.ledger.inspection import Inspection, inspect_storage
from headrace.objects import Place, place_of
from headrace.owner import take_ownership
from headrace.settings import read_settings


def backup_home(
    home: str | os.PathLike[str], destination: str | os.PathLike[str], progress: Progress = no_progress
) -> dict[str, Any]:
    """Copy a home that no process has open; it is owned meanwhile, so that none opens it."""
    path = existing(home)
    ownership = take_ownership(path, read_settings().owner_timeout)
    try:
        return backup(path, _place(destination), progress)
    finally:
        ownership.release()


def restore_home(
    source: str | os.PathLike[str], home: str | os.PathLike[str], progress: Progress = no_progress
) -> dict[str, Any]:
    """Bring a backup up as a new home."""
    return restore(_place(source), _place(home), progress)


def inspect_home(home: str | os.PathLike[str], progress: Progress = no_progress) -> Inspection:
    """Check every file of a home against its checksum, also while a process has it open."""
    return inspect_storage(existing(home), progress)


def existing(home: str | os.PathLike[str]) -> Place:
    """The place of a home that is there."""
    path = _place(home)
    try:
        if path.is_dir():
            return path
    except OSError as error:
        raise LedgerError(
            f"the home {home} cannot be reached",
            detail=f"{error}.",
            hint="see the setting storage_options, then try again",
        ) from error
    raise SetupError(
        f"there is no home at {home}",
        detail="This verb works on what is there, so it does not create one.",
        hint=f"name another with --home or HEADRACE_HOME, or create it: headrace run --home {home} script.sql",
    )


def _place(name: str | os.PathLike[str]) -> Place:
    return place_of(name, read_settings().storage_options)
