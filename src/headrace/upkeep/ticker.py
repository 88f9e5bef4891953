"""Time as a change: an epoch whenever the clock alone moves a row of a view that reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.errors import HomeBroken, OwnerLost
from headrace.upkeep.failures import Failures

# A view that fails by the clock alone is tried again at least this often; it fails loudly at the next change.
_LONGEST_PAUSE = 60.0


class Ticker:
    """Follows the clock of one home on a thread of its own, from the moment that a view reads it."""

    def __init__(self, seconds: float, is_wanted: Callable[[], bool], tick: Callable[[], object]) -> None:
        self._seconds = seconds
        self._is_wanted = is_wanted
        self._tick = tick
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures = Failures("following the clock", _LONGEST_PAUSE)

    def start(self) -> None:
        """Begin, if a view reads the clock and nobody has begun yet; where no thread can be had, it is noted."""
        try:
            if self._thread is None and self._is_wanted():
                thread = threading.Thread(target=self._run, name="headrace-clock", daemon=True)
                thread.start()
                self._thread = thread
        except Exception as error:
            self.failures.note(error)

    def stop(self) -> None:
        """Finish the epoch under way, and begin no other."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            if self.failures.pausing:
                continue
            try:
                if self._is_wanted():
                    self._tick()
                self.failures.clear()
            except (OwnerLost, HomeBroken) as error:
                self.failures.note(error)
                return
            except BaseException as error:
                self.failures.note(error)
