"""Folders for what need not last: gone when closed, and swept away after a process that could not close them."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

_PREFIX = "headrace-"
_IN_USE = "in-use"
_ROOM_FOR_LEAVES = 512 * 1024 * 1024


class Scratch:
    """A folder that lives as long as this process keeps it open."""

    def __init__(self, parent: Path | None = None) -> None:
        where = parent or Path(tempfile.gettempdir())
        sweep(where)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
        self._lock: IO[str] = open(self.path / f"{_IN_USE}.new", "w")  # noqa: SIM115 - held until close
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Named only once it is locked, so that nobody takes it for abandoned.
        (self.path / f"{_IN_USE}.new").rename(self.path / _IN_USE)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def sweep(parent: Path) -> None:
    """Remove the folders of processes that are gone."""
    for mark in parent.glob(f"{_PREFIX}*/{_IN_USE}"):
        try:
            with open(mark) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)
        except OSError:
            continue


def memory_folder() -> Path | None:
    """A folder in memory for the leaves of prepared queries, where the machine has a roomy one."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM_FOR_LEAVES
    return memory if roomy else None
