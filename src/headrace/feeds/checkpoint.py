"""The checkpoint of a feed, in memory and on disk: recorded at every step, written now and then, and at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from headrace.feeds.batch import Mark
from headrace.feeds.progress import Progress, ProgressFiles
from headrace.ledger.readers import Reader, Readers

# How often the checkpoint is written while events go out, and while there are none; how often the log is protected.
_BUSY_SECONDS = 0.25
_QUIET_SECONDS = 10.0
_LOG_SECONDS = 5.0
# So many sequence numbers are reserved at a time.
_RESERVED = 10_000


class FeedCheckpoint:
    """The progress of one feed; what was delivered after the last write is delivered again after a crash."""

    def __init__(self, files: ProgressFiles, readers: Readers, limit: int, may_keep: Callable[[], bool]) -> None:
        self._files = files
        self._readers = readers
        self._limit = limit
        self._name = reader_name(files.feed_id)
        # Whether this process owns the home, and the feed was not dropped.
        self._may_keep = may_keep
        # A paused feed's runner may end while the next one begins.
        self._lock = threading.Lock()
        self._written: Progress | None = None
        self._written_at = 0.0
        self._protected: tuple[int, int] | None = None
        self._protected_at = 0.0
        self.progress: Progress | None = None
        # The greatest sequence number that an event may have been sent with.
        self.sent = 0

    def read(self) -> Progress | None:
        """Return the progress of the feed, by this runner or those before it; None if it never began."""
        if self.progress is None:
            self.progress = self._files.read()
            if self.progress is not None:
                self.sent = self.progress.reserved
                self._protect(force=True)
        return self.progress

    def record(self, progress: Progress, now: bool = False) -> None:
        """Record the progress; write it now, or if the last write was long ago."""
        before = self._written
        self.progress = progress
        has_moved = before is None or before.mark.sequence != progress.mark.sequence
        if now or time.monotonic() - self._written_at >= (_BUSY_SECONDS if has_moved else _QUIET_SECONDS):
            self.write()

    def write(self) -> None:
        """Write the progress to disk, unless it is there."""
        with self._lock:
            if self.progress is None or self.progress == self._written:
                return
            self._files.write(self.progress)
            self._written, self._written_at = self.progress, time.monotonic()
        self._protect()

    def reserve(self, sequence: int) -> None:
        """Reserve sequence numbers durably, many at a time, so that a RESET after a crash never reuses one."""
        progress = self.progress
        assert progress is not None
        self.sent = max(self.sent, sequence)
        if sequence > progress.reserved:
            self.record(replace(progress, reserved=sequence + _RESERVED), now=True)

    def advance(self, safe: Mark, delivered: int, parked: int) -> None:
        """Record that events were delivered or parked, and the position up to which none is missing."""
        before = self.progress
        assert before is not None
        counts = {"delivered": before.delivered + delivered, "parked": before.parked + parked}
        self.record(replace(before, mark=safe, **counts))

    def confirm(self, sequence: int) -> None:
        """Record that the sink has stored the position of an event; the next write includes it."""
        before = self.progress
        assert before is not None
        if sequence > before.confirmed:
            self.progress = replace(before, confirmed=sequence)

    def protect_from(self, epoch: int) -> None:
        """Have the log kept from an epoch on, if the feed has no position yet."""
        if self.read() is None and self._may_keep():
            self._readers.register(Reader(self._name, max(0, epoch - 1), self._limit))

    def _protect(self, force: bool = False) -> None:
        """Have the log kept from the position of the feed on."""
        assert self.progress is not None
        wanted = max(0, self.progress.mark.epoch - 1), self._limit
        if wanted == self._protected or (not force and time.monotonic() - self._protected_at < _LOG_SECONDS):
            return
        if not self._may_keep():
            return
        self._readers.register(Reader(self._name, *wanted))
        self._protected, self._protected_at = wanted, time.monotonic()

    def close(self) -> None:
        """Write the progress for the last time, with the sequence numbers that were used."""
        if self.progress is not None:
            self.record(replace(self.progress, reserved=self.sent), now=True)
            self._protect(force=True)


def reader_name(feed_id: str) -> str:
    """Return the name under which the log is kept for a feed."""
    return f"changefeed-{feed_id}"
