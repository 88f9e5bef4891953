"""Brings stores into order in the background: no caller waits for it, and it waits for the epochs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from headrace.state.store import Store
from headrace.upkeep.failures import Failures

# With this many runs a store is slow to read: it is brought into order even while an epoch runs.
MANY_RUNS = 16
_LOOK_AGAIN = 0.05


class Merger:
    """Merges the runs of stores, one store after the other; where that fails, they are as right as before."""

    def __init__(self, idle: threading.Event) -> None:
        self._idle = idle
        self._thread = ThreadPoolExecutor(1, "headrace-merge")
        self.failures = Failures("bringing stores into order")

    def submit(self, store: Store) -> None:
        """Have a store merged when no epoch runs, or at once if its runs have become many. Never raises."""
        try:
            self._thread.submit(self._merge, store)
        except Exception as error:
            self.failures.note(error)

    def close(self) -> None:
        """Finish the store at hand and leave the others; no epoch may be running."""
        self._thread.shutdown(cancel_futures=True)

    def _merge(self, store: Store) -> None:
        try:
            while store.run_count < MANY_RUNS and not self._idle.wait(_LOOK_AGAIN):
                pass
            store.merge()
            self.failures.clear()
        except BaseException as error:
            self.failures.note(error)
