"""The book of a home's keys: small versions of one document, each whole, readable by its user alone.

A version is written only where the one before it is still the newest, on a disk as in an object store, so two who write
at once never lose each other's change. Nobody needs to own the home for it: a server that runs looks for a newer one.
Each names the one that it was made of: so a book that was put back from a copy and written on is told from its own.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import LedgerError
from headrace.storage.folders import sync_folder
from headrace.storage.objects import Location, ObjectPath

FOLDER = "access"
_ATTEMPTS = 20
# Versions that stay: a name that was removed could be given again, by one who read long ago what came before it.
_KEPT = 100
_HINT = "mend the rights of the folder access in the home, or put it back from a copy"

Document = dict[str, Any]


class Book:
    """The document of one home."""

    def __init__(self, home: Location) -> None:
        self._folder = home / FOLDER / "keys"

    def newest(self) -> int:
        """The number of the newest version; 0 if nothing was ever written."""
        return max(self._numbers(), default=0)

    def read(self) -> tuple[int, Document]:
        """The newest version and its number; one that cannot be read is an error, and never an empty book."""
        for _ in range(_ATTEMPTS):
            number = self.newest()
            if number == 0:
                return 0, {}
            document = self._version(number)
            if document is not None:
                return number, document
            # A newer one has come, and this one was removed.
        raise LedgerError("the keys of the home change faster than they can be read", hint="try again")

    def comes_from(self, number: int, document: Document, earlier: int, written: object) -> bool:
        """Whether a version was made of an earlier one, which is known by what it was written with, or is it."""
        while number > earlier:
            number -= 1
            before = self._version(number)
            # An older Headrace does not know the field: it names none, or keeps what the version before it names.
            if before is None or document.get("follows") not in (before.get("written"), before.get("follows")):
                return False
            document = before
        return number == earlier and document.get("written") == written

    def change(self, change: Callable[[Document], Document]) -> Document:
        """Write what a change makes of the newest version; it is asked again where another was faster."""
        for _ in range(_ATTEMPTS):
            number, document = self.read()
            changed = change(document)
            # No two writers write the same: by its own content a request that is sent again knows its answer.
            written = {**changed, "follows": document.get("written"), "written": uuid.uuid4().hex}
            if self._write(number + 1, json.dumps(written, indent=1, sort_keys=True).encode()):
                newest = self.newest()
                if newest - number > _KEPT // 2:
                    break  # so much was written meanwhile that the name may have been given before
                self._tidy(newest)
                return changed
        raise LedgerError(
            "the keys of the home are being changed by others", hint="look with headrace key list, then try again"
        )

    def _version(self, number: int) -> Document | None:
        try:
            document = json.loads(self._file(number).read_bytes())
            if not isinstance(document, dict):
                raise ValueError("it is no object")
            return document
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise LedgerError("the keys of the home cannot be read", detail=f"{error}.", hint=_HINT) from error

    def _write(self, number: int, content: bytes) -> bool:
        try:
            if isinstance(self._folder, ObjectPath):
                (self._folder / _name(number)).create(content)
                return True
            self._write_file(self._folder, number, content)
        except FileExistsError:
            return False
        except OSError as error:
            raise LedgerError("the keys of the home cannot be written", detail=f"{error}.", hint=_HINT) from error
        return True

    def _write_file(self, folder: Path, number: int, content: bytes) -> None:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        temporary = folder / f".tmp-{uuid.uuid4().hex}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, folder / _name(number))
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(folder)
        sync_folder(folder.parent)

    def _tidy(self, newest: int) -> None:
        for number in self._numbers():
            if number <= newest - _KEPT:
                self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> Location:
        return self._folder / _name(number)

    def _numbers(self) -> list[int]:
        try:
            return [int(one.stem) for one in self._folder.iterdir() if one.stem.isdecimal()]
        except FileNotFoundError:
            return []  # whoever knew of versions holds on to them: see KeyRing
        except OSError as error:
            raise LedgerError("the keys of the home cannot be listed", detail=f"{error}.", hint=_HINT) from error


def _name(number: int) -> str:
    return f"{number:012d}.json"
