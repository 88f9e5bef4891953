"""Waiting for what goes on in other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(true: Callable[[], bool], seconds: float = 90) -> None:
    """Wait for something that is about to be so."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.02)
