"""Who is at work in a JVM: when it ends for want of memory, only one that was alone in it is known to be the cause."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Occupants:
    """Counts those at work, and all who ever came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._came = 0

    @contextmanager
    def enter(self) -> Generator[Callable[[], bool], None, None]:
        """Be at work; what is yielded tells whether nobody else was, from the first moment until it is asked."""
        with self._lock:
            found = self._inside
            self._inside += 1
            self._came += 1
            number = self._came
        try:
            yield lambda: found == 0 and self._came == number
        finally:
            with self._lock:
                self._inside -= 1
