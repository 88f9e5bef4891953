"""Folders for what need not last: gone when closed, and swept away after a process that could not close them."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

_PREFIX = "headrace-"
_IN_USE = "in-use"
_ROOM_FOR_LEAVES = 512 * 1024 * 1024


class Scratch:
    """A folder that lives as long as this process keeps it open.

    It is for this user alone, unless it is shared: then others, on other machines too, read and write there as far as
    the umask of this process lets them.
    """

    def __init__(self, parent: Path | None = None, *, shared: bool = False, sweeping: bool = True) -> None:
        self._parent = parent or Path(tempfile.gettempdir())
        self._shared = shared
        if shared:
            self._parent.mkdir(parents=True, exist_ok=True)
        if sweeping:
            sweep(self._parent)
        self.path = self._made()
        self._lock: IO[str] = open(self.path / f"{_IN_USE}.new", "w")  # noqa: SIM115 - held until close
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Named only once it is locked, so that nobody takes it for abandoned.
        (self.path / f"{_IN_USE}.new").rename(self.path / _IN_USE)

    def _made(self) -> Path:
        if not self._shared:
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
        path = self._parent / f"{_PREFIX}{secrets.token_hex(8)}"
        # The last of others may have taken the folder around it along just now.
        path.mkdir(parents=True)
        return path

    def close(self) -> None:
        """Remove the folder; that around shared ones goes with the last of them."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
        if self._shared:
            with suppress(OSError):
                self._parent.rmdir()


def sweep(parent: Path) -> None:
    """Remove the folders of processes that are gone."""
    for mark in parent.glob(f"{_PREFIX}*/{_IN_USE}"):
        try:
            # To be written, though it is not: NFS gives who only reads no such lock.
            with open(mark, "r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)
        except OSError:
            continue


def spark_path(path: Path) -> str:
    """A file or folder of this machine as Spark is told it, whatever it takes for its file system otherwise."""
    # Not as a URI: Spark's paths know no escapes.
    return f"file://{path}"


def memory_folder() -> Path | None:
    """A folder in memory for the leaves of prepared queries, where the machine has a roomy one."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM_FOR_LEAVES
    return memory if roomy else None
