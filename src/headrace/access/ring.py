"""The keys of a home as a server has them: looked for anew every moment, so that a revoked one is soon refused."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

from headrace.access.book import Book
from headrace.access.grants import Access
from headrace.access.keys import Keys, keys_of
from headrace.errors import HeadraceError
from headrace.storage.objects import Location

_log = logging.getLogger("headrace.access")
_LOOK_SECONDS = 0.5
_LOOK_SECONDS_FAR = 5.0


class KeyRing:
    """Knows the newest keys of one home; where they cannot be read any more, those it knew stay in force."""

    def __init__(self, home: Location) -> None:
        self._book = Book(home)
        self._number = -1
        self._keys = Keys({}, {})
        self._seconds = _LOOK_SECONDS if isinstance(home, Path) else _LOOK_SECONDS_FAR
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_failing = False
        # A server does not begin with keys that it cannot read.
        self.look()

    @property
    def has_keys(self) -> bool:
        """Whether any key was ever made: from then on every request needs one, also if all are revoked."""
        return bool(self._keys.keys)

    @property
    def stand_ins(self) -> dict[str, str]:
        """By relation, the view that stands in for it."""
        return dict(self._keys.stand_ins)

    def access_of(self, digest: bytes) -> Access | None:
        """What the holder of the key of a digest may do now."""
        return self._keys.access_of(digest.hex(), datetime.now(UTC))

    def look(self) -> None:
        """Take a newer version of the keys, if there is one."""
        if self._book.newest() != self._number:
            number, document = self._book.read()
            self._keys, self._number = keys_of(document), number

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
            try:
                self.look()
                self._is_failing = False
            except (HeadraceError, OSError) as error:
                if not self._is_failing:
                    _log.error("the keys of the home are not renewed: %s", error)
                self._is_failing = True
