"""Files that are whole or not there: written, synced and only then named; a name is never given twice.

`crash_point` marks the instants between two steps, so that tests can end the process at each of them.
"""

from __future__ import annotations

import hashlib
import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TEMPORARY = ".tmp-"
_COPY_BYTES = 1024 * 1024
_crash_at = os.environ.get("HEADRACE_CRASH_AT", "")

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes to do."""


def no_progress(done: int, total: int) -> None:
    """For callers that do not watch."""


def crash_point(name: str) -> None:
    """Die here, as by a power cut, if the environment says so: HEADRACE_CRASH_AT=<point>[:<times to pass it first>]."""
    global _crash_at
    point, _, passes = _crash_at.partition(":")
    if point != name:
        return
    if int(passes or 0) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    _crash_at = f"{point}:{int(passes) - 1}"


def make_folder(path: Path) -> None:
    """A folder that a power cut does not take away again."""
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _Hashing:
    """A file that is hashed while it is written."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, content: Any) -> int:
        self.digest.update(content)
        self.size += memoryview(content).nbytes
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()

    def tell(self) -> int:
        return self.size

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def write_named(folder: Path, prefix: str, write: Callable[[Any], None], suffix: str = ".parquet") -> tuple[str, int]:
    """Write a file whose name carries the SHA-256 of its content; its name and size. The caller syncs the folder."""
    temporary = folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb") as file:
            hashing = _Hashing(file)
            write(hashing)
            file.flush()
            os.fsync(file.fileno())
        crash_point("file written")
        name = f"{prefix}{hashing.digest.hexdigest()}{suffix}"
        os.replace(temporary, folder / name)
        return name, hashing.size
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_whole(path: Path) -> bool:
    """Whether a file still has the content that its name was made of."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() in path.name


def what_is_wrong(path: Path, size: int | None = None) -> str:
    """What is wrong with a file whose name was made of its content, in words; empty when nothing is."""
    try:
        held = path.stat().st_size
        if size is not None and held < size:
            return f"it has {held} of its {size} bytes"
        return "" if is_whole(path) else "its content has changed since it was written"
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"


def copy_file(source: Path, target: Path, progress: Callable[[int], None]) -> tuple[int, str]:
    """Copy a file and sync the copy; its size and the SHA-256 of what was copied. The caller syncs the folder."""
    digest = hashlib.sha256()
    size = 0
    with open(source, "rb") as content, open(target, "xb") as copy:
        while part := content.read(_COPY_BYTES):
            digest.update(part)
            copy.write(part)
            size += len(part)
            progress(len(part))
        copy.flush()
        os.fsync(copy.fileno())
    return size, digest.hexdigest()


def put_if_absent(path: Path, content: bytes) -> None:
    """Give a name to whole content, durably; FileExistsError if the name is taken.

    After any other error the name is not there, unless the disk failed to confirm it.
    """
    temporary = path.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        crash_point("log written")
        os.link(temporary, path)
        crash_point("log named")
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Put whole content in the place of a file, durably."""
    temporary = path.parent / f"{_TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        crash_point("replacement written")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def is_temporary(name: str) -> bool:
    """Whether a name is that of a file that was never finished."""
    return name.startswith(_TEMPORARY)
