"""What goes wrong in the background: logged, remembered for whoever asks, and tried again less and less often."""

from __future__ import annotations

import logging
import time

from headrace.errors import HeadraceError

# Seconds between two attempts that fail, at most.
LONGEST_PAUSE = 300.0


class Failures:
    """The failures of one background task since it last succeeded."""

    def __init__(self, task: str, longest_pause: float = LONGEST_PAUSE) -> None:
        self._task = task
        self._longest_pause = longest_pause
        self._log = logging.getLogger("headrace.background")
        self._failed_at = 0.0
        self.count = 0
        self.last: BaseException | None = None

    def note(self, error: BaseException) -> None:
        """Remember a failure; the log has it too, with its trace where nobody foresaw it."""
        self.count += 1
        self.last, self._failed_at = error, time.monotonic()
        self._log.warning("%s failed, and is tried again: %s", self._task, error, exc_info=error)

    def clear(self) -> None:
        """It has succeeded."""
        self.count, self.last = 0, None

    @property
    def text(self) -> str | None:
        """The last failure in words, if there is one."""
        return None if self.last is None else str(self.last) or type(self.last).__name__

    @property
    def pausing(self) -> bool:
        """Whether it is too early to try again."""
        if self.count == 0:
            return False
        # Where trying alone mends nothing, it is tried seldom from the start.
        terminal = isinstance(self.last, HeadraceError) and not self.last.transient
        pause = self._longest_pause if terminal else min(2.0 ** min(self.count, 30), self._longest_pause)
        return time.monotonic() - self._failed_at < pause
