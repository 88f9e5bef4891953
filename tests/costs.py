"""Costs in processor time, which are compared with each other: how fast the machine is does not matter."""

from __future__ import annotations

import time
from collections.abc import Callable


def cost_of(work: Callable[[], object], tries: int = 3) -> float:
    """Return the least processor time, in seconds, that the calling thread took for the work in several tries."""
    costs: list[float] = []
    for _ in range(tries):
        began = time.thread_time()
        work()
        costs.append(time.thread_time() - began)
    return min(costs)
