"""Files that are whole or not there: written, synced and only then named; a name is never given twice.

An object store does as much by itself: what it has taken is whole and durable, so there is nothing to sync there.
`crash_point` marks the instants between two steps, so that tests can end the process, or raise, at each of them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from headrace.errors import LedgerError
from headrace.storage.folders import sync_folder
from headrace.storage.objects import Location, ObjectPath, StoreFailed, Unconfirmed

_TEMPORARY = ".tmp-"
_COPY_BYTES = 1024 * 1024
_crash_at = os.environ.get("HEADRACE_CRASH_AT", "")

# What a crash point can raise: Ctrl-C, what nobody foresaw, a full disk.
RAISED: Mapping[str, Callable[[], BaseException]] = {
    "interrupt": KeyboardInterrupt,
    "error": lambda: RuntimeError("raised at a crash point"),
    "full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
}

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes to do."""


def no_progress(done: int, total: int) -> None:
    """For callers that do not watch."""


def crash_point(name: str) -> None:
    """Die here, as by a power cut, or raise, if the environment says so.

    HEADRACE_CRASH_AT=<point>[!<error>][:<times to pass it first>], where the error is one of `RAISED`.
    """
    global _crash_at
    if not _crash_at:
        return
    what, _, passes = _crash_at.partition(":")
    point, _, error = what.partition("!")
    if point != name:
        return
    if int(passes or 0) > 0:
        _crash_at = f"{what}:{int(passes) - 1}"
        return
    if not error:
        os.kill(os.getpid(), signal.SIGKILL)
    _crash_at = ""
    raise RAISED[error]()


def remove_folder(path: Location) -> None:
    """Remove a folder and all that lies in it, as far as that can be done."""
    if isinstance(path, ObjectPath):
        with suppress(OSError):
            path.remove_all()
    else:
        shutil.rmtree(path, ignore_errors=True)


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


def write_named(
    folder: Location, prefix: str, write: Callable[[Any], None], suffix: str = ".parquet"
) -> tuple[str, int]:
    """Write a file whose name carries the SHA-256 of its content; its name and size. The caller syncs the folder."""
    if isinstance(folder, ObjectPath):
        return _upload_named(folder, prefix, write, suffix)
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


class ContentChanged(Exception):
    """A file no longer has the content that it is wanted for, or cannot be read any more."""


def take_named(folder: Location, prefix: str, file: Path, digest: str) -> str:
    """Have a folder hold a copy of a file of this SHA-256, under a name that carries it; the name.

    Not the file itself under a second name: whoever then changed it where it lies would change what is durable. The
    caller syncs the folder. ContentChanged if the content is another: nothing has the name then.
    """

    def copy(sink: Any) -> None:
        copied = hashlib.sha256()
        for part in _parts_now(file):
            copied.update(part)
            sink.write(part)
        if copied.hexdigest() != digest:
            raise ContentChanged(file)

    return write_named(folder, prefix, copy, file.suffix)[0]


def _parts_now(file: Path) -> Iterator[bytes]:
    # What the reader of the parts raises does not pass through here: only that they cannot be read is told so.
    try:
        yield from _parts(file)
    except OSError as error:
        raise ContentChanged(file) from error


def _upload_named(folder: ObjectPath, prefix: str, write: Callable[[Any], None], suffix: str) -> tuple[str, int]:
    with tempfile.NamedTemporaryFile(prefix="headrace-upload-") as file:
        hashing = _Hashing(file)
        write(hashing)
        file.flush()
        crash_point("file written")
        name = f"{prefix}{hashing.digest.hexdigest()}{suffix}"
        (folder / name).upload(Path(file.name))
        return name, hashing.size


def digest_of(path: Location) -> str:
    """The SHA-256 of what lies there now."""
    if isinstance(path, Path):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for part in path.bucket.parts(path.key):
        digest.update(part)
    return digest.hexdigest()


def is_whole(path: Location) -> bool:
    """Whether a file still has the content that its name was made of."""
    return digest_of(path) in path.name


def what_is_wrong(path: Location, size: int | None = None) -> str:
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


def copy_file(source: Location, target: Location, progress: Callable[[int], None]) -> tuple[int, str]:
    """Copy a file and sync the copy; its size and the SHA-256 of what was copied. The caller syncs the folder."""
    digest = hashlib.sha256()
    size = 0
    local = target if isinstance(target, Path) else None
    with open(local, "xb") if local else tempfile.NamedTemporaryFile(prefix="headrace-upload-") as copy:
        for part in _parts(source):
            digest.update(part)
            copy.write(part)
            size += len(part)
            progress(len(part))
        copy.flush()
        if isinstance(target, ObjectPath):
            target.upload(Path(copy.name))
        else:
            os.fsync(copy.fileno())
    return size, digest.hexdigest()


def _parts(source: Location) -> Iterator[bytes]:
    if isinstance(source, ObjectPath):
        yield from source.bucket.parts(source.key)
        return
    with open(source, "rb") as content:
        while part := content.read(_COPY_BYTES):
            yield part


def put_if_absent(path: Location, content: bytes, mode: int = 0o666) -> None:
    """Give a name to whole content, durably, to be read by whom the mode lets; FileExistsError if the name is taken.

    Unconfirmed if the disk does not confirm the name, or the object store does not tell. After any other error a look
    at the name tells whether it was given.
    """
    if isinstance(path, ObjectPath):
        crash_point("log written")
        path.create(content)
        crash_point("log named")
        return
    with _synced(path.parent, content, mode) as temporary:
        crash_point("log written")
        os.link(temporary, path)
        crash_point("log named")
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise Unconfirmed(*error.args) from error


def replace_file(path: Location, content: bytes) -> None:
    """Put whole content in the place of a file, durably."""
    if isinstance(path, ObjectPath):
        crash_point("replacement written")
        path.write_bytes(content)
        return
    with _synced(path.parent, content) as temporary:
        crash_point("replacement written")
        os.replace(temporary, path)
    sync_folder(path.parent)


@contextmanager
def _synced(folder: Path, content: bytes, mode: int = 0o666) -> Generator[Path, None, None]:
    """Whole content on the disk under a name of its own, which is gone afterwards."""
    temporary = folder / f"{_TEMPORARY}{uuid.uuid4().hex}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def withdraw(written: Iterable[Location]) -> None:
    """Remove files that nothing will name; where the object store is out of reach, the next owner does."""
    for path in written:
        with suppress(OSError) if isinstance(path, ObjectPath) else nullcontext():
            path.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Whether a name is that of a file that was never finished."""
    return name.startswith(_TEMPORARY)


def unread(what: str, error: Exception, hint: str) -> LedgerError:
    """A file that cannot be read as an error of ours; the hint is for one that is gone or damaged, which stays so."""
    # Arrow's errors about what a file holds have no number; those of the system, which may pass, have one.
    passes = isinstance(error, StoreFailed | PermissionError) or (
        isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError)
    )
    told = LedgerError(
        f"{what} cannot be read",
        detail=f"{error}. It is out of reach for now; nothing says that it is damaged." if passes else str(error),
        hint="send it again; if it goes on, look at the storage of the home" if passes else hint,
    )
    told.transient = passes
    return told
