"""Work on a cluster that has no executors is given up: Spark itself would have it wait for ever."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from headrace.plans.failures import FAILURES
from headrace.spark.requirements import has_executors

_log = logging.getLogger("headrace.spark")
_LOOK_SECONDS = 1.0


class ExecutorWatch:
    """Looks, again and again, whether jobs of a Spark wait for executors, and ends those of our sessions if so."""

    def __init__(
        self, sessions: Callable[[], Sequence[SparkSession]], patience: float, stopped: Callable[[], None]
    ) -> None:
        self._sessions = sessions
        self._patience = patience
        self._stopped = stopped
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headrace-executors", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        waiting_since: float | None = None
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                sessions = self._sessions()
                if not self._waits(sessions[0]):
                    waiting_since = None
                elif waiting_since is None:
                    waiting_since = time.monotonic()
                elif time.monotonic() - waiting_since >= self._patience:
                    _log.warning("Spark has had no executor for %.0f seconds: what waits for one ends", self._patience)
                    for session in sessions:
                        session.interruptAll()
                    waiting_since = None
            except FAILURES:
                # A Spark that has ended is another's concern, and the next one is looked at from now on.
                waiting_since = None
            except Exception:
                # Unforeseen; but without this thread work would wait for ever.
                waiting_since = None
                _log.exception("it could not be seen whether Spark has executors")

    def _waits(self, session: SparkSession) -> bool:
        """Whether there are jobs, and no executor to run them."""
        java_context: Any = session.sparkContext._jsc  # pyright: ignore
        if java_context is None:
            # Stopped by who gave it, or forgotten because it has ended; then sessions of the next one are to come.
            return False
        if java_context.sc().isStopped():
            self._stopped()
            return False
        if has_executors(session):
            return False
        return len(session.sparkContext.statusTracker().getActiveJobsIds()) > 0
