"""Folders whose names a power cut does not take away again; an object store has none, and needs none."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.storage.objects import Location, ObjectPath


def make_folder(path: Location, mode: int = 0o777) -> None:
    """A folder that a power cut does not take away again; those that are made have this mode."""
    if isinstance(path, ObjectPath):
        return
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        one.mkdir(mode=mode, exist_ok=True)
        sync_folder(one.parent)


def sync_folder(path: Location) -> None:
    """Make the names in a folder durable."""
    if isinstance(path, ObjectPath):
        return
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
