"""The next batch of a backlog is read and made into columns while an epoch is made of the one before it.

Columns are made by Arrow, views follow in Spark: on two cores neither waits for the other. One batch is made at a time,
in the order of the records, so that whatever is remembered from one to the next stays in order too.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from headrace.capture.columns.records import Records
from headrace.epoch.calls import Basis
from headrace.sources.bulk import Prepared


class Ready(NamedTuple):
    """Records, and what was made of them under the definitions of a basis; None if they must come one by one."""

    records: Records
    prepared: Prepared | None
    basis: Basis


class Ahead:
    """Reads batches, one of them ahead where that was asked for. Used by one thread, and closed by it."""

    def __init__(self, name: str, poll: Callable[[], Records], make: Callable[[Records], Ready]) -> None:
        self._poll = poll
        self._make = make
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"headrace-ahead-{name}")
        self._begun: Future[Ready] | None = None
        self._kept: Records | None = None

    def next(self) -> Ready:
        """The next batch: the one that was begun, or one that is read now."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return self._make(kept)
        begun, self._begun = self._begun, None
        return self._read() if begun is None else begun.result()

    def begin(self) -> None:
        """Have the next batch read meanwhile."""
        self._begun = self._threads.submit(self._read)

    def settle(self) -> None:
        """Wait for what is read ahead, and keep its records alone: columns are made of them when they are due."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._kept = begun.result().records

    def close(self) -> None:
        """Wait for what is under way, and let it go."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _read(self) -> Ready:
        return self._make(self._poll())
