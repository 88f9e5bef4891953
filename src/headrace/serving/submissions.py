"""Changes on their way into epochs: in line in the order in which they arrive, and nobody blocks while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.epoch.receipt import Receipt
from headrace.errors import HeadraceError, KeyReused, OwnerLost, WorkFailed
from headrace.serving.limits import PushSlot
from headrace.serving.metrics import Metrics

T = TypeVar("T")


class Submissions:
    """One thread runs the epochs for all requests; those that wait meanwhile are taken into the next one together."""

    def __init__(self, loop: Loop, metrics: Metrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self.lost: OwnerLost | None = None
        self._epochs = ThreadPoolExecutor(1, thread_name_prefix="headrace-epochs")

    def submit(
        self,
        changes: Mapping[str, Sequence[object]],
        key: str | None = None,
        slot: PushSlot | None = None,
        explain: Callable[[BaseException], BaseException] = lambda error: error,
        digest: str = "",
    ) -> Future[Receipt]:
        """Put changes in line and return at once; the future has their receipt, or the error that rejected them.

        The slot is released when their epoch is over. `explain` may turn the error into one for the sender.
        The digest tells the request of a key from any other; those that come again after it was committed are refused
        at once if they are not the same.
        """
        first = self._loop.core.known(key)

        def made() -> Call:
            if key is not None and first is not None and digest and first.digest not in ("", digest):
                raise KeyReused(key)
            return self._loop.call(changes, key, digest)

        return self.submit_call(made, slot, explain)

    def submit_call(
        self,
        made: Callable[[], Call],
        slot: PushSlot | None = None,
        explain: Callable[[BaseException], BaseException] = lambda error: error,
    ) -> Future[Receipt]:
        """The same with a call that is made here; where it cannot be made, the slot is released."""

        def wait(call: Call) -> Receipt:
            try:
                receipt = self._loop.receipt_of(call)
            except HeadraceError as error:
                if isinstance(error, OwnerLost):
                    self.lost = error
                self._metrics.refuse(error)
                raise explain(error) from None
            if not call.repeats:
                self._metrics.count(receipt)
            return receipt

        try:
            call = self._loop.enter(made())
            submission = self._carried(call, wait)
        except BaseException:
            if slot is not None:
                slot.release()
            raise
        if slot is not None:
            submission.add_done_callback(lambda _: slot.release())
        return submission

    def noting_loss(self, run: Callable[[], T]) -> Callable[[], T]:
        """What puts its calls in line by itself: where it finds that another owns the home, that is known here."""

        def noted() -> T:
            try:
                return run()
            except OwnerLost as error:
                self.lost = error
                raise

        return noted

    def _carried(self, call: Call, wait: Callable[[Call], Receipt]) -> Future[Receipt]:
        """Have the thread of the epochs wait for a call that is in line; where there is none, it leaves the line."""
        try:
            return self._epochs.submit(wait, call)
        except RuntimeError as error:
            if self._loop.withdraw(call):
                raise WorkFailed(
                    "there is no thread to run the epoch",
                    detail=f"{error}. Nothing of this call was done.",
                    hint="send it again in a few seconds",
                ) from error
        # Another has taken it into an epoch meanwhile, whose verdict holds.
        over: Future[Receipt] = Future()
        try:
            over.set_result(wait(call))
        except Exception as error:
            over.set_exception(error)
        return over

    def close(self) -> None:
        """Wait until everything in line has its outcome."""
        self._epochs.shutdown()


async def outcome(submission: Future[Receipt]) -> Receipt:
    """What a submission comes to; it goes on whoever stops waiting for it."""
    inner = asyncio.wrap_future(submission)
    inner.add_done_callback(note_outcome)
    return await asyncio.shield(inner)


def note_outcome(done: asyncio.Future[Any]) -> None:
    """Take note of an outcome that nobody may be waiting for any more, so that it is not reported as overlooked."""
    if not done.cancelled():
        done.exception()
