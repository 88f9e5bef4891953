"""Costs in processor time, which are compared with each other: how fast the machine is does not matter."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def cost_of(work: Callable[[], object], tries: int = 3, clock: Callable[[], float] = time.thread_time) -> float:
    """Return the least processor time, in seconds, that the work took in several tries.

    It is that of the calling thread; with `time.process_time` as the clock, it is that of all threads. The garbage
    collector is off: it would look through all that the tests before this one have left.
    """
    costs: list[float] = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(tries):
            began = clock()
            work()
            costs.append(clock() - began)
    finally:
        if was_enabled:
            gc.enable()
    return min(costs)
