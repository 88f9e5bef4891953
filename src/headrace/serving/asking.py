"""Queries on their way through Spark: so many at once, each for so long, and none for an asker who has gone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from threading import Thread
from typing import Any, TypeVar

from fastapi import Request

from headrace.engine.stoppable import Stoppable
from headrace.errors import QueryStopped
from headrace.home import Headrace
from headrace.serving.problems import Refusal
from headrace.serving.submissions import heard

T = TypeVar("T")
_STOP_AGAIN_SECONDS = 0.2
_END_SECONDS = 2.0
_GIVE_UP_SECONDS = 30.0


class AskerGone(Exception):
    """The client hung up; nobody waits for an answer."""


class Asking:
    """Runs queries in threads of their own."""

    def __init__(self, hr: Headrace, places: int) -> None:
        self._hr = hr
        self._places = places
        self._lock = threading.Lock()
        self._taken = 0
        self._running: dict[Future[Any], Stoppable] = {}

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
        running: Future[T] = Future()
        running.set_running_or_notify_cancel()
        stoppable = self._running[running] = Stoppable(self._hr.frames.catalyst.session.sparkContext)
        running.add_done_callback(self._leave)
        # A thread of its own for each: one that Spark never answers can be left behind without holding a place.
        Thread(target=_run, args=(running, work, stoppable), name="headrace-query", daemon=True).start()
        gone = asyncio.ensure_future(_hang_up(request))
        try:
            return await self._waited(running, gone, stoppable, seconds, changes)
        finally:
            gone.cancel()

    async def _waited(
        self, running: Future[T], gone: asyncio.Future[None], stoppable: Stoppable, seconds: float, changes: bool
    ) -> T:
        result = asyncio.wrap_future(running)
        result.add_done_callback(heard)
        # Changes go on when their sender hangs up: the statement was whole.
        awaited = {result} if changes else {result, gone}
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        stopping = asyncio.ensure_future(_stop(stoppable, running, give_up=not changes))
        await asyncio.wait({result, stopping}, timeout=None if changes else _END_SECONDS)
        with contextlib.suppress(QueryStopped):
            if result.done():
                return result.result()
        if gone.done():
            raise AskerGone
        # Not a 5xx: the server is well, and whoever retries by status would only ask the same again.
        raise Refusal(
            400,
            "timeout",
            "the statement took too long and was stopped",
            detail=f"It was given {seconds:g} seconds. Nothing was changed.",
            hint="ask for less at a time, or give it more time with timeout_seconds, up to HEADRACE_SERVE_QUERY_TIME",
        )

    def _leave(self, running: Future[Any]) -> None:
        with self._lock:
            self._taken -= 1
            self._running.pop(running, None)

    def close(self) -> None:
        """Wait until every query has ended; one that takes long is stopped."""
        wait(list(self._running), _END_SECONDS)
        for running, stoppable in list(self._running.items()):
            stoppable.stop()
            wait([running], _GIVE_UP_SECONDS)


def _run(running: Future[T], work: Callable[[Stoppable], T], stoppable: Stoppable) -> None:
    try:
        result = work(stoppable)
    except BaseException as error:
        with contextlib.suppress(InvalidStateError):
            running.set_exception(error)
    else:
        with contextlib.suppress(InvalidStateError):
            running.set_result(result)


async def _hang_up(request: Request) -> None:
    """Ends when the client is gone; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def _stop(stoppable: Stoppable, running: Future[Any], *, give_up: bool) -> None:
    """Cancel Spark jobs until the work has ended: one may start just as others are cancelled."""
    loop = asyncio.get_running_loop()
    given_up_at = loop.time() + _GIVE_UP_SECONDS
    while not running.done():
        await loop.run_in_executor(None, stoppable.stop)
        await asyncio.sleep(_STOP_AGAIN_SECONDS)
        if give_up and loop.time() > given_up_at:
            # Where the JVM ran out of memory, the thread that was to answer may be dead and its socket silent.
            with contextlib.suppress(InvalidStateError):
                running.set_exception(QueryStopped("the query was given up"))
