"""Waiting for a condition that another thread or process makes true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Far more than anything takes on a machine that is busy with other work: only a test that fails waits so long.
PATIENCE = 240.0


def until(true: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, f"the condition did not hold within {seconds:.0f} seconds"
        time.sleep(0.02)


def await_end_of_thread(name: str) -> None:
    """Wait until no thread of this process has a name."""
    until(lambda: all(thread.name != name for thread in threading.enumerate()))
