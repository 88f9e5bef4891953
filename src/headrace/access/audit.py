"""The audit trail of a home: who administered what, when, and whether it was done; appended, never rewritten.

On a disk it is one file of lines of JSON, access/audit.ndjson, which only its user can read; in an object store each
entry is an object of its own. Statements are told by their kind and the names in them, never by their text: a text may
hold what nobody should read twice.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import pwd
import socket
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.access.book import FOLDER
from headrace.errors import HeadraceError
from headrace.storage.objects import Location, ObjectPath

_acting: ContextVar[str] = ContextVar("headrace_acting", default="")
_log = logging.getLogger("headrace.access")
_LONGEST = 500


@contextmanager
def acting(who: str) -> Generator[None, None, None]:
    """Inside, what is administered is done by this one."""
    token = _acting.set(who)
    try:
        yield
    finally:
        _acting.reset(token)


def who_acts() -> str:
    """Who acts here: the holder of a key, or the user of this machine."""
    return _acting.get() or user_here()


def user_here() -> str:
    """The user of this process, with the machine."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    return f"{name}@{socket.gethostname()}"


class Audit:
    """The trail of one home."""

    def __init__(self, home: Location) -> None:
        self._folder = home / FOLDER
        self._lock = threading.Lock()

    def note(self, what: str, outcome: str = "done", who: str | None = None, **more: Any) -> None:
        """Add an entry, durably; where that fails it is logged instead: what was done is done."""
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "who": (who or who_acts())[:_LONGEST],
            "what": what[:_LONGEST],
            "outcome": outcome[:_LONGEST],
            **{name: str(value)[:_LONGEST] for name, value in more.items() if value is not None},
        }
        line = json.dumps(entry, ensure_ascii=True).encode() + b"\n"
        try:
            with self._lock:
                self._append(line, entry["at"])
        except OSError as error:
            _log.error("the audit trail cannot be written (%s): %s", error, line.decode().strip())

    @contextmanager
    def noting(self, *deeds: str) -> Generator[None, None, None]:
        """Inside, something is done that is noted, with what became of it."""
        outcome = "done"
        try:
            yield
        except BaseException as error:
            outcome = error.code if isinstance(error, HeadraceError) else type(error).__name__
            raise
        finally:
            for what in deeds:
                self.note(what, outcome)

    def entries(self) -> Iterator[dict[str, Any]]:
        """What the trail holds, oldest first; a last line that was cut off by a crash is left out."""
        if isinstance(self._folder, ObjectPath):
            lines = [one.read_bytes() for one in sorted((self._folder / "audit").iterdir())]
        else:
            try:
                lines = (self._folder / "audit.ndjson").read_bytes().splitlines()
            except FileNotFoundError:
                lines = []
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def _append(self, line: bytes, at: str) -> None:
        if isinstance(self._folder, ObjectPath):
            name = f"{at.replace(':', '').replace('+0000', 'Z')}-{uuid.uuid4().hex[:8]}.json"
            (self._folder / "audit" / name).create(line)
            return
        _append_file(self._folder, line)


def _append_file(folder: Path, line: bytes) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "audit.ndjson"
    # In one write of the system's appending mode: entries of several processes never mix.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(file).st_size
        # A line that a crash cut off is ended, so that this one stands alone.
        whole = size == 0 or os.pread(file, 1, size - 1) == b"\n"
        content = line if whole else b"\n" + line
        # A disk that becomes full takes a part, and says so by no error.
        if (written := os.write(file, content)) < len(content):
            raise OSError(errno.ENOSPC, f"{written} of {len(content)} bytes were written")
        os.fsync(file)
    finally:
        os.close(file)
