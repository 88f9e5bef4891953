"""Changes on their way into epochs: in line in the order in which they arrive, and nobody blocks while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from headrace.engine.loop import Call
from headrace.engine.receipt import Receipt
from headrace.errors import HeadraceError, KeyReused, OwnerLost
from headrace.home import Headrace
from headrace.serving.limits import Place
from headrace.serving.metrics import Metrics


class Submissions:
    """One thread runs the epochs for all requests; those that wait meanwhile are taken into the next one together."""

    def __init__(self, hr: Headrace, metrics: Metrics) -> None:
        self._hr = hr
        self._metrics = metrics
        self.lost: OwnerLost | None = None
        self._epochs = ThreadPoolExecutor(1, thread_name_prefix="headrace-epochs")

    def submit(
        self,
        changes: Mapping[str, Sequence[object]],
        key: str | None = None,
        place: Place | None = None,
        explain: Callable[[BaseException], BaseException] = lambda error: error,
        digest: str = "",
    ) -> Future[Receipt]:
        """Put changes in line and return at once; the future has their receipt, or the error that rejected them.

        The place is left when their epoch is over. `explain` may turn the error into one that the sender understands.
        The digest tells the request of a key from any other; those that come again after it was committed are refused
        at once if they are not the same.
        """

        def settle(call: Call) -> Receipt:
            try:
                receipt = self._hr.settle(call)
            except HeadraceError as error:
                if isinstance(error, OwnerLost):
                    self.lost = error
                self._metrics.refuse(error)
                raise explain(error) from None
            if not replayed:
                self._metrics.count(receipt)
            return receipt

        first = self._hr.known(key)
        replayed = first is not None
        try:
            if key is not None and first is not None and digest and first.digest not in ("", digest):
                raise KeyReused(key)
            call = self._hr.enter(changes, key, digest)
            submission = self._epochs.submit(settle, call)
        except BaseException:
            if place is not None:
                place.leave()
            raise
        if place is not None:
            submission.add_done_callback(lambda _: place.leave())
        return submission

    def close(self) -> None:
        """Wait until everything in line has been settled."""
        self._epochs.shutdown()


async def outcome(submission: Future[Receipt]) -> Receipt:
    """What a submission comes to; it goes on whoever stops waiting for it."""
    inner = asyncio.wrap_future(submission)
    inner.add_done_callback(heard)
    return await asyncio.shield(inner)


def heard(done: asyncio.Future[Any]) -> None:
    """Take note of an outcome that nobody may be waiting for any more, so that it is not reported as overlooked."""
    if not done.cancelled():
        done.exception()
