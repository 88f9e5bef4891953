"""How far one runner is, in memory and on disk: noted at every step, written now and then, and always at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from headrace.feeds.batch import Mark
from headrace.feeds.progress import Progress, ProgressFiles
from headrace.ledger.readers import Reader, Readers

# How often it is written while events go out, while there are none, and how often the log is told.
_BUSY_SECONDS = 0.25
_QUIET_SECONDS = 10.0
_LOG_SECONDS = 5.0
# So many numbers are reserved at a time.
_RESERVED = 10_000


class Kept:
    """The progress of one feed; what was delivered after the last write is delivered again after a crash."""

    def __init__(
        self, files: ProgressFiles, readers: Readers, limit: int, name: str, may_keep: Callable[[], bool]
    ) -> None:
        self._files = files
        self._readers = readers
        self._limit = limit
        self._name = name
        # Whether the log is this process's to keep, and the feed still one to keep it for.
        self._may_keep = may_keep
        # A paused feed's runner may end while the next one begins.
        self._lock = threading.Lock()
        self._written: Progress | None = None
        self._written_at = 0.0
        self._protected: tuple[int, int] | None = None
        self._protected_at = 0.0
        self.progress: Progress | None = None
        # The greatest number that an event may have that was ever sent.
        self.sent = 0

    def read(self) -> Progress | None:
        """How far the feed is, by this runner or those before it."""
        if self.progress is None:
            self.progress = self._files.read()
            if self.progress is not None:
                self.sent = self.progress.reserved
                self._protect(force=True)
        return self.progress

    def note(self, progress: Progress, now: bool = False) -> None:
        """Take how far it is; written at once if asked, or where that was long ago."""
        before = self._written
        self.progress = progress
        told = before is None or before.mark.sequence != progress.mark.sequence
        if now or time.monotonic() - self._written_at >= (_BUSY_SECONDS if told else _QUIET_SECONDS):
            self.write()

    def write(self) -> None:
        """Have it on disk as it is."""
        with self._lock:
            if self.progress is None or self.progress == self._written:
                return
            self._files.write(self.progress)
            self._written, self._written_at = self.progress, time.monotonic()
        self._protect()

    def reserve(self, sequence: int) -> None:
        """Have it on disk that events up to a number may be told from now on; many at once, for it takes a write."""
        progress = self.progress
        assert progress is not None
        self.sent = max(self.sent, sequence)
        if sequence > progress.reserved:
            self.note(replace(progress, reserved=sequence + _RESERVED), now=True)

    def told(self, safe: Mark, delivered: int = 0, parked: int = 0, now: bool = False) -> None:
        """Note that events were told, and up to where none is missing."""
        before = self.progress
        assert before is not None
        counts = {"delivered": before.delivered + delivered, "parked": before.parked + parked}
        self.note(replace(before, mark=safe, **counts), now)

    def confirm(self, sequence: int) -> None:
        """Take that the sink has all up to an event; it is written with what is noted next."""
        before = self.progress
        assert before is not None
        if sequence > before.confirmed:
            self.progress = replace(before, confirmed=sequence)

    def protect_from(self, epoch: int) -> None:
        """Have the log kept from an epoch on, if the feed has no position yet."""
        if self.read() is None and self._may_keep():
            self._readers.register(Reader(self._name, max(0, epoch - 1), self._limit))

    def _protect(self, force: bool = False) -> None:
        """Have the log kept from where the feed would go on."""
        assert self.progress is not None
        wanted = max(0, self.progress.mark.epoch - 1), self._limit
        if wanted == self._protected or (not force and time.monotonic() - self._protected_at < _LOG_SECONDS):
            return
        if not self._may_keep():
            return
        self._readers.register(Reader(self._name, *wanted))
        self._protected, self._protected_at = wanted, time.monotonic()

    def close(self) -> None:
        """Write it for the last time, with what is known of the numbers that were used."""
        if self.progress is not None:
            self.note(replace(self.progress, reserved=self.sent), now=True)
            self._protect(force=True)


def reader_name(feed_id: str) -> str:
    """Under which name the log is kept for a feed."""
    return f"changefeed-{feed_id}"
