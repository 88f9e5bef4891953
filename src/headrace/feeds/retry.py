"""Repeated calls to a sink: with growing pauses, until a call succeeds, cannot succeed, or the feed is stopped."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.feeds.blocked import pause_after
from headrace.feeds.sink import SinkUnavailable

# The longest pause that a sink can ask for.
_LONGEST_ASKED = 3_600.0


class Stopped(Exception):
    """The feed is to stop."""


@dataclass
class Retry:
    """The failed attempts of a feed since its sink last did what it was asked."""

    stopped: threading.Event
    # Called before each pause, with its length, and when a call succeeds after failures.
    on_failure: Callable[[Exception, float], None]
    on_success: Callable[[], None]
    attempts: int = 0

    def call(self, action: Callable[[], None]) -> None:
        """Call an action again and again while the sink is unavailable."""
        while True:
            try:
                action()
            except SinkUnavailable as error:
                self.pause(error)
            else:
                self.succeed()
                return

    def succeed(self) -> None:
        """Begin again with short pauses."""
        if self.attempts:
            self.attempts = 0
            self.on_success()

    def pause(self, error: Exception) -> None:
        """Wait before the next attempt; raise the error if it is permanent, and `Stopped` if the feed is to stop."""
        if self.stopped.is_set():
            raise Stopped from error
        if not is_transient(error):
            raise error
        self.attempts += 1
        pause = pause_after(self.attempts)
        if isinstance(error, SinkUnavailable) and error.retry_after is not None:
            # A sink can only lengthen the pause. A random part keeps many feeds apart that are given the same instant.
            pause = max(pause, min(error.retry_after, _LONGEST_ASKED) * random.uniform(1, 1.1))
        self.on_failure(error, pause)
        if self.stopped.wait(pause):
            raise Stopped from error


def is_transient(error: Exception) -> bool:
    """Return whether the same call may succeed later."""
    if isinstance(error, HeadraceError):
        return error.transient
    return isinstance(error, SinkUnavailable | OSError)
