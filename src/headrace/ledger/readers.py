"""Readers of the log that come back: what one of them has not read is kept for it, up to a limit of its own."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass

from headrace.errors import LedgerError, ReadOnly
from headrace.ledger.durable import replace_file
from headrace.storage.objects import Location

READERS = "readers.json"


@dataclass(frozen=True)
class Reader:
    """Who reads, how far it has come, and for how many epochs the log waits for it."""

    name: str
    epoch: int
    limit_epochs: int


class Readers:
    """The registered readers of one home."""

    def __init__(self, home: Location, may_write: bool = True) -> None:
        self._path = home / READERS
        self._may_write = may_write
        self._lock = threading.Lock()
        self._readers: dict[str, Reader] = {}
        self._read()

    def begin_to_own(self) -> None:
        """Take readers in from now on, beside those that the owner before took in."""
        with self._lock:
            self._read()
            self._may_write = True

    def _read(self) -> None:
        try:
            self._readers = {one["name"]: Reader(**one) for one in json.loads(self._path.read_text())}
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LedgerError(
                f"{self._path} cannot be read",
                detail=f"{error}. It says how far each registered reader has come.",
                hint="put it back from a backup, or remove it and register the readers again",
            ) from error

    def register(self, reader: Reader) -> None:
        """Keep for a reader what it has not read, or note how far it has come."""
        with self._lock:
            self._refuse_read_only()
            self._readers[reader.name] = reader
            self._save()

    def forget(self, name: str) -> None:
        """Wait for a reader no longer."""
        with self._lock:
            self._refuse_read_only()
            self._readers.pop(name, None)
            self._save()

    def protected(self, newest: int) -> int | None:
        """The epoch after which everything must stay, or None where no reader waits."""
        with self._lock:
            waiting = [one.epoch for one in self._readers.values() if newest - one.epoch <= one.limit_epochs]
        return min(waiting, default=None)

    def _refuse_read_only(self) -> None:
        """The owner, who folds, reads the file only once: it would not know of this reader."""
        if not self._may_write:
            raise ReadOnly("the home was opened read-only", hint="register readers in the process that owns the home")

    def _save(self) -> None:
        replace_file(self._path, json.dumps([asdict(one) for one in self._readers.values()]).encode())
