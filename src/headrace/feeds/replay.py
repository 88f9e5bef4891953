"""Requests to deliver parked events again, made by other threads and served between two batches."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import FeedError, FeedUnavailable, HeadraceError
from headrace.feeds.batch import Batch, EventForm
from headrace.feeds.parked import batch_of
from headrace.feeds.sink import EventsRefused, SinkUnavailable


@dataclass(frozen=True, eq=False)
class _Request:
    row: Mapping[str, Any]
    # The reason of the sink that refuses the event again; None once it has arrived.
    refusal: Future[str | None] = field(default_factory=Future[str | None])


class ReplayRequests:
    """The requests of one feed."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()

    def put(self, row: Mapping[str, Any]) -> Future[str | None]:
        """Request the delivery of a parked event; return what becomes the reason if it is refused again."""
        request = _Request(row)
        self._requests.put(request)
        return request.refusal

    def serve(self, deliver: Callable[[Batch], None], form: EventForm) -> None:
        """Deliver what was requested since the last call. A sink that is unavailable is not tried again."""
        while not self._requests.empty():
            request = self._requests.get()
            if not request.refusal.set_running_or_notify_cancel():
                continue
            try:
                request.refusal.set_result(_deliver_row(request.row, deliver, form))
            except SinkUnavailable as error:
                request.refusal.set_exception(
                    FeedUnavailable(f"the sink of changefeed {form.feed} is unavailable", detail=f"{error}.")
                )
            except BaseException as error:
                told = error if isinstance(error, HeadraceError) else FeedError(f"{type(error).__name__}: {error}")
                request.refusal.set_exception(told)
                raise


def _deliver_row(row: Mapping[str, Any], deliver: Callable[[Batch], None], form: EventForm) -> str | None:
    try:
        batch = batch_of(row, form)
    except FeedError as error:
        return f"{error.message}. {error.detail}"
    try:
        deliver(batch)
    except EventsRefused as refused:
        return next(iter(refused.refused.values()), "it was refused again")
    return None
