"""Requests to deliver parked events again, made by other threads and served between two batches."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import FeedError, FeedUnavailable, HeadraceError
from headrace.feeds.batch import Batch
from headrace.feeds.options import FeedOptions
from headrace.feeds.parked import batch_of
from headrace.feeds.sink import EventsRefused, SinkUnavailable, Target


@dataclass(frozen=True, eq=False)
class _Request:
    rows: Sequence[Mapping[str, Any]]
    # By sequence, why events were refused again.
    refused: Future[dict[int, str]] = field(default_factory=Future[dict[int, str]])


class ReplayRequests:
    """The requests of one feed."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def put(self, rows: Sequence[Mapping[str, Any]]) -> Future[dict[int, str]]:
        """Request the delivery of parked events; return what becomes the reasons of those that are refused again."""
        request = _Request(rows)
        self._requests.put(request)
        return request.refused

    def serve(self, deliver: Callable[[Batch], None], target: Target, options: FeedOptions) -> None:
        """Deliver what was requested since the last call. A sink that is unavailable is not tried again."""
        while not self._requests.empty():
            request = self._requests.get()
            if not request.refused.set_running_or_notify_cancel():
                continue
            try:
                request.refused.set_result(_deliver_rows(request.rows, deliver, target, options))
            except SinkUnavailable as error:
                request.refused.set_exception(
                    FeedUnavailable(f"the sink of changefeed {target.feed} is unavailable", detail=f"{error}.")
                )
            except BaseException as error:
                told = error if isinstance(error, HeadraceError) else FeedError(f"{type(error).__name__}: {error}")
                request.refused.set_exception(told)
                raise


def _deliver_rows(
    rows: Sequence[Mapping[str, Any]], deliver: Callable[[Batch], None], target: Target, options: FeedOptions
) -> dict[int, str]:
    refused: dict[int, str] = {}
    for row in rows:
        try:
            batch = batch_of(row, target, options.envelope, options.include_old_values)
        except FeedError as error:
            refused[row["sequence"]] = f"{error.message}. {error.detail}"
            continue
        try:
            deliver(batch)
        except EventsRefused as again:
            refused[row["sequence"]] = next(iter(again.refused.values()), "it was refused again")
    return refused
