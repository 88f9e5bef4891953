"""Folders for what need not last: gone when closed, and swept away after a process that could not close them."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

_PREFIX = "headrace-"
_IN_USE = "in-use"
_ROOM_FOR_LEAVES = 512 * 1024 * 1024
_MAKING = threading.Lock()
_OPEN: weakref.WeakValueDictionary[Path, Scratch] = weakref.WeakValueDictionary()


class Scratch:
    """A folder that lives as long as this process keeps it open.

    It is for this user alone, unless it is shared: then whoever may read the folder around it, on other machines too,
    may read this one, whatever the umask of this process is. Others write only into folders that Spark makes in it.
    """

    def __init__(
        self, parent: Path | None = None, *, shared: bool = False, sweeping: bool = True, parent_stays: bool = False
    ) -> None:
        self._parent = parent or Path(tempfile.gettempdir())
        self._shared = shared
        self._parent_stays = parent_stays or not shared
        if shared:
            self._parent.mkdir(parents=True, exist_ok=True)
        if sweeping:
            sweep(self._parent)
        self.path = self._made()
        self._lock = self._marked()
        self._is_closed = False
        _OPEN[self.path] = self

    def _made(self) -> Path:
        if not self._shared:
            return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
        path = self._parent / f"{_PREFIX}{secrets.token_hex(8)}"
        # The last of others may have taken the folder around it along just now.
        path.mkdir(0o700, parents=True)
        path.chmod(self._mode())
        return path

    def _mode(self) -> int:
        """The rights of the folder around it to read and to pass on its group, as far as it is shared."""
        return 0o700 | (self._parent.stat().st_mode & (stat.S_ISGID | 0o055) if self._shared else 0)

    def _marked(self) -> IO[str]:
        mark = open(self.path / f"{_IN_USE}.new", "w")  # noqa: SIM115 - held until close
        fcntl.flock(mark, fcntl.LOCK_EX)
        # Named only once it is locked, so that nobody takes it for abandoned.
        (self.path / f"{_IN_USE}.new").rename(self.path / _IN_USE)
        return mark

    def make_again(self) -> None:
        """Make the folder as it was, empty, and its mark, if somebody has removed one of them."""
        with _MAKING:
            if not self._is_closed and not (self.path / _IN_USE).exists():
                self.path.mkdir(0o700, parents=True, exist_ok=True)
                self.path.chmod(self._mode())
                self._lock.close()
                self._lock = self._marked()

    def close(self) -> None:
        """Remove the folder; that around shared ones goes with the last of them, unless it is to stay."""
        with _MAKING:
            # Whoever found it before this must not make it again.
            self._is_closed = True
            _OPEN.pop(self.path, None)
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
        if not self._parent_stays:
            with suppress(OSError):
                self._parent.rmdir()


def make_again(folder: Path) -> None:
    """Have a folder be there, in scratch of this process, that others who keep such folders tidy may have removed."""
    for one in (folder, *folder.parents):
        scratch = _OPEN.get(one)
        if scratch is not None:
            scratch.make_again()
            folder.mkdir(parents=True, exist_ok=True)
            return


def let_read(file: Path) -> None:
    """Let those read a file who may read its folder, whatever the umask of this process is."""
    file.chmod(0o600 | file.parent.stat().st_mode & 0o044)


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
