"""Work that is stopped when its time is over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

_AGAIN_SECONDS = 0.2
_log = logging.getLogger("headrace.spark")


@contextmanager
def stopped_after(seconds: float, stop: Callable[[], None]) -> Generator[None, None, None]:
    """Inside, work is stopped after so many seconds, again and again: a job may begin just as others are cancelled."""
    left = threading.Event()

    def watch() -> None:
        pause = seconds
        while not left.wait(pause):
            try:
                stop()
            except Exception as error:
                _log.info("work could not be stopped, which is tried again: %s", error)
            pause = _AGAIN_SECONDS

    watching = threading.Thread(target=watch, name="headrace-stop", daemon=True)
    watching.start()
    try:
        yield
    finally:
        left.set()
        watching.join()
