"""What goes wrong in the background: logged, remembered for whoever asks, and tried again less and less often."""

from __future__ import annotations

import logging
import time

from headrace.errors import HeadraceError

# Seconds between two attempts that fail, at most.
LONGEST_PAUSE = 300.0


class Failures:
    """The failures of one background task since it last succeeded: how many, and the `text` of the last."""

    def __init__(self, task: str, longest_pause: float = LONGEST_PAUSE) -> None:
        self._task = task
        self._longest_pause = longest_pause
        self._log = logging.getLogger("headrace.background")
        self._failed_at = 0.0
        self._terminal = False
        self.count = 0
        # Not the error itself, whose frames hold all that the task had in hand.
        self.text: str | None = None

    def note(self, error: BaseException) -> None:
        """Remember a failure; the log has it too, with its trace where nobody foresaw it."""
        self.count += 1
        self.text, self._failed_at = str(error) or type(error).__name__, time.monotonic()
        self._terminal = isinstance(error, HeadraceError) and not error.transient
        self._log.warning("%s failed, and is tried again: %s", self._task, error, exc_info=error)

    def clear(self) -> None:
        """It has succeeded."""
        self.count, self.text = 0, None

    @property
    def pausing(self) -> bool:
        """Whether it is too early to try again."""
        if self.count == 0:
            return False
        # Where trying alone mends nothing, it is tried seldom from the start.
        pause = self._longest_pause if self._terminal else min(2.0 ** min(self.count, 30), self._longest_pause)
        return time.monotonic() - self._failed_at < pause
