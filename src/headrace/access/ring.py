"""The keys of a home as a server has them: looked for anew every moment, so that a revoked one is soon refused."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

from headrace.access.book import Book
from headrace.access.grants import Access
from headrace.access.keys import Keys, keys_of
from headrace.errors import HeadraceError, LedgerError
from headrace.storage.objects import Location

_log = logging.getLogger("headrace.access")
_LOOK_SECONDS = 0.5
_LOOK_SECONDS_FAR = 5.0


class KeyRing:
    """Knows the newest keys of one home; where they cannot be read any more, those it knew stay in force.

    So they do where the versions of the book are gone, or were not made of the one in force: a folder that was removed,
    or put back from a copy, must not open the door, nor have a revoked key open it again, nor take a mask away. What is
    revoked there is refused all the same.
    """

    def __init__(self, home: Location) -> None:
        self._book = Book(home)
        self._number = -1
        # By its content, too: one that was put back from a copy and changed since may have the number of another.
        self._written: object = None
        self._keys = Keys({}, {})
        # Digests that any version called revoked: they open nothing while this process lives.
        self._revoked: set[str] = set()
        self._seconds = _LOOK_SECONDS if isinstance(home, Path) else _LOOK_SECONDS_FAR
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._had_keys = False
        self.failure: str | None = None
        """Why the keys are not renewed, while they are not."""
        # A server does not begin with keys that it cannot read.
        self.look()

    @property
    def has_keys(self) -> bool:
        """Whether any key was ever made: from then on every request needs one, also if all are revoked."""
        return self._had_keys

    @property
    def stand_ins(self) -> dict[str, str]:
        """By relation, the view that stands in for it."""
        return dict(self._keys.stand_ins)

    def access_of(self, digest: bytes) -> Access | None:
        """What the holder of the key of a digest may do now."""
        found = digest.hex()
        return None if found in self._revoked else self._keys.access_of(found, datetime.now(UTC))

    def look(self) -> None:
        """Take a newer version of the keys, if there is one; one that was not made of those in force is an error."""
        number, document = self._book.read()
        written = document.get("written")
        if number == self._number and written == self._written:
            return
        keys = keys_of(document)
        self._revoked.update(one.digest for one in keys.keys.values() if one.revoked_at is not None)
        # Where nothing is in force yet, whatever is there comes into force.
        if self._number > 0 and not self._book.comes_from(number, document, self._number, self._written):
            raise self._refusal(number)
        self._keys, self._number, self._written = keys, number, written
        self._had_keys = self._had_keys or bool(keys.keys)

    def _refusal(self, number: int) -> LedgerError:
        older = "are older than those in force" if number < self._number else "were not made of those in force"
        return LedgerError(
            f"the keys of the home {'are gone' if number == 0 else older}",
            detail=f"Version {self._number} stays in force; the newest in the home is {number or 'none'}.",
            hint="put the folder access back as it was; to take what is there, revoke again what was revoked since that"
            " copy, then start the server again",
        )

    def start(self) -> None:
        """Look again and again, in a thread of its own."""
        self._thread = threading.Thread(target=self._look_on, name="headrace-keys", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(self._seconds):
            self._look_again()

    def _look_again(self) -> None:
        try:
            self.look()
        except Exception as error:
            # Whatever it is: nobody else would notice that a key was revoked.
            told = f"{error.message}. {error.detail}" if isinstance(error, HeadraceError) else str(error)
            if self.failure is None:
                _log.error("the keys of the home are not renewed: %s", told)
            self.failure = told
        else:
            if self.failure is not None:
                _log.warning("the keys of the home are renewed again")
            self.failure = None
