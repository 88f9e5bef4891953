"""Queries on their way through Spark: so many at once, each for so long, and none for an asker who has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from fastapi import Request

from headrace.engine.stoppable import Stoppable
from headrace.errors import QueryStopped
from headrace.home import Headrace
from headrace.serving.problems import Refusal

T = TypeVar("T")
_STOP_AGAIN_SECONDS = 0.2
_END_SECONDS = 2.0


class AskerGone(Exception):
    """The client hung up; nobody waits for an answer."""


class Asking:
    """Runs queries in threads of their own."""

    def __init__(self, hr: Headrace, places: int) -> None:
        self._hr = hr
        self._places = places
        self._lock = threading.Lock()
        self._taken = 0
        self._threads = ThreadPoolExecutor(places, thread_name_prefix="headrace-query")

    @property
    def under_way(self) -> int:
        """How many queries run."""
        return self._taken

    async def answer(self, request: Request, seconds: float, work: Callable[[Stoppable], T], *, changes: bool) -> T:
        """What the work comes to within so many seconds; `changes` that were worked out are carried through."""
        with self._lock:
            if self._taken >= self._places:
                raise Refusal(
                    429,
                    "too_busy",
                    "too many queries are under way",
                    detail=f"{self._places} run at once, which is the limit.",
                    hint="send the request again after the seconds that Retry-After names",
                    headers={"Retry-After": "1"},
                )
            self._taken += 1
        try:
            stoppable = Stoppable(self._hr.frames.catalyst.session.sparkContext)
            running = self._threads.submit(work, stoppable)
        except BaseException:
            self._leave()
            raise
        running.add_done_callback(self._leave)
        gone = asyncio.ensure_future(_hang_up(request))
        try:
            return await self._waited(running, gone, stoppable, seconds, changes)
        finally:
            gone.cancel()

    async def _waited(
        self, running: Future[T], gone: asyncio.Future[None], stoppable: Stoppable, seconds: float, changes: bool
    ) -> T:
        result = asyncio.shield(asyncio.wrap_future(running))
        # Changes go on when their sender hangs up: the statement was whole.
        awaited = {result} if changes else {result, gone}
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        stopping = asyncio.ensure_future(_stop(stoppable, running))
        await asyncio.wait({result, stopping}, timeout=None if changes else _END_SECONDS)
        if not changes and gone.done():
            result.cancel()
            raise AskerGone
        try:
            if result.done():
                return result.result()
        except QueryStopped:
            pass
        raise Refusal(
            504,
            "timeout",
            "the statement took too long and was stopped",
            detail=f"It was given {seconds:g} seconds. Nothing was changed.",
            hint="ask for less at a time, or give it more time with timeout_seconds, up to HEADRACE_SERVE_QUERY_TIME",
        )

    def _leave(self, _: object = None) -> None:
        with self._lock:
            self._taken -= 1

    def close(self) -> None:
        """Wait until every query has ended."""
        self._threads.shutdown()


async def _hang_up(request: Request) -> None:
    """Ends when the client is gone; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def _stop(stoppable: Stoppable, running: Future[T]) -> None:
    """Cancel Spark jobs until the work has ended: one may start just as others are cancelled."""
    loop = asyncio.get_running_loop()
    while not running.done():
        await loop.run_in_executor(None, stoppable.stop)
        await asyncio.wait({asyncio.shield(asyncio.wrap_future(running))}, timeout=_STOP_AGAIN_SECONDS)
