"""How fast a source may be read: no more records a second than it is allowed, of whatever they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

OPTION = "max_records_per_second"


class Rate:
    """Holds back whoever reads; a source that brings too much waits in turn, as its connector has no room for more."""

    def __init__(self, options: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        given = options.get(OPTION)
        self._rate = None if given is None else int(given)
        self._clock = clock
        self._due_at = clock()

    def most(self, wanted: int) -> int:
        """How many records may be asked for at once: those of a second at most."""
        return wanted if self._rate is None else max(1, min(wanted, self._rate))

    def wait(self, stopped: threading.Event) -> None:
        """Wait until the next records are due, or the source is stopped."""
        if self._rate is not None and (left := self._due_at - self._clock()) > 0:
            stopped.wait(left)

    def took(self, count: int) -> None:
        """So many records were read: the next are due when these have had their time."""
        if self._rate is not None:
            self._due_at = max(self._due_at, self._clock()) + count / self._rate
