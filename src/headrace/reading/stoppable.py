"""Spark work that another thread may stop."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress

from pyspark import SparkContext

from headrace.errors import QueryStopped
from headrace.plans.failures import FAILURES, work_failed


def stopped() -> QueryStopped:
    """The asker has gone, or the time is over."""
    return QueryStopped("the query was stopped", hint="ask for less at a time, or allow it more time")


class Stoppable:
    """What one asker had begun: Spark jobs under a tag of their own, by which they are found and cancelled."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._tag = f"headrace-{uuid.uuid4().hex}"
        self._stopped = threading.Event()

    @contextmanager
    def working(self) -> Generator[None, None, None]:
        """Inside, Spark jobs of this thread are cancelled by `stop`, which makes this raise `QueryStopped`."""
        self._refuse_stopped()
        try:
            self._context.addJobTag(self._tag)
        except FAILURES as error:
            raise work_failed("the query", error) from error
        try:
            yield
        except Exception:
            self._refuse_stopped()
            raise
        finally:
            # Threads are used again, and a tag would stay with them; if Spark has ended, what failed first is told.
            with suppress(*FAILURES):
                self._context.removeJobTag(self._tag)
        self._refuse_stopped()

    def stop(self) -> None:
        """Stop the work, begun or not; call it again until it ends: a job may start just as others are cancelled."""
        self._stopped.set()
        self._context.cancelJobsWithTag(self._tag)

    def _refuse_stopped(self) -> None:
        if self._stopped.is_set():
            raise stopped()
