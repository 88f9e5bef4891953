"""The first push and the first query after a start, rehearsed: who sends the real ones waits for no plan of Spark."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from headrace.errors import HeadraceError
from headrace.query_processes.pool import QueryProcesses, Stop
from headrace.query_processes.queries import processes_for
from headrace.query_processes.question import Question
from headrace.settings import Settings

_log = logging.getLogger("headrace.serving")


class Rehearsal:
    """Inside, each of these is done once, side by side; until they are done, the server is not ready.

    Nothing waits for it but /readyz, and what fails is left to the real push or query to tell.
    """

    def __init__(self) -> None:
        self._left = 0
        self._lock = threading.Lock()

    @property
    def under_way(self) -> bool:
        """Whether a part of it is not done yet."""
        return self._left > 0

    def begin(self, parts: Sequence[Callable[[], None]]) -> None:
        """Do them in the background; nobody waits for them to end a process."""
        for part in parts:
            with self._lock:
                self._left += 1
            try:
                threading.Thread(target=self._do, args=(part,), name="headrace-rehearsal", daemon=True).start()
            except RuntimeError as error:
                # Out of threads: a server that never becomes ready would be worse than a first call that is slow.
                self._done(error)

    def _do(self, part: Callable[[], None]) -> None:
        failed: Exception | None = None
        try:
            part()
        except Exception as error:
            failed = error
        finally:
            self._done(failed)

    def _done(self, failed: Exception | None) -> None:
        if failed is not None:
            _log.info("a rehearsal failed: %s", failed)
        with self._lock:
            self._left -= 1


@contextmanager
def warm_queries(settings: Settings) -> Generator[QueryProcesses, None, None]:
    """Query processes of which one is started now, in the background: who stands by has it when it is needed."""
    processes = processes_for(settings)

    def ask() -> None:
        # One that does not start now is started for the first query.
        with suppress(HeadraceError):
            processes.rows(Question("rows", "SELECT 1 AS one", {}), Stop())

    threading.Thread(target=ask, name="headrace-rehearsal", daemon=True).start()
    try:
        yield processes
    finally:
        processes.close()
