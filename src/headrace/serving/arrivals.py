"""Requests that are bringing changes: an epoch that takes long waits a moment for those that came just now."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

# Who takes longer than this to send its changes is not waited for: it may never be done.
_LATELY_SECONDS = 0.1


class Arrivals:
    """Which requests are being received, and since when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_at: dict[object, float] = {}

    @contextmanager
    def receiving(self) -> Generator[None, None, None]:
        """Inside, a request's changes are read and put in line."""
        request = object()
        with self._lock:
            self._began_at[request] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._began_at[request]

    def expected(self) -> bool:
        """Whether changes will be in line soon."""
        now = time.monotonic()
        with self._lock:
            return any(now - began_at < _LATELY_SECONDS for began_at in self._began_at.values())
