"""Statements on their way: so many at once, each for so long, and none for a client that has gone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, wait
from dataclasses import dataclass
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from headrace.errors import QueryStopped
from headrace.serving.access import asker_of
from headrace.serving.connections import hang_up
from headrace.serving.problems import Refusal
from headrace.serving.submissions import note_outcome

T = TypeVar("T")
_STOP_AGAIN_SECONDS = 0.2
_END_SECONDS = 2.0
_GIVE_UP_SECONDS = 30.0


class ClientGone(Exception):
    """The client hung up; nobody waits for an answer."""


class Stops(Protocol):
    """What stops the work for a client."""

    def stop(self) -> None:
        """Stop it; call it again until it ends."""
        ...


@dataclass(frozen=True)
class PreparedStatement(Generic[T]):
    """What is to be run, and whether it changes anything: changes that were worked out are carried through."""

    run: Callable[[], T]
    changes: bool


class StatementRunner:
    """Runs statements in threads of their own."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._lock = threading.Lock()
        # With the asker of each.
        self._running: dict[Future[Any], tuple[str, Stops]] = {}

    def limit(self, slots: int) -> None:
        """Run so many at once from now on."""
        self._slots = slots

    @property
    def under_way(self) -> int:
        """How many queries run."""
        return len(self._running)

    async def answer(
        self, request: Request, seconds: float, stops: Stops, read: Callable[[], PreparedStatement[T]]
    ) -> T:
        """What the work that is read comes to within so many seconds."""
        running: Future[T] = Future()
        running.set_running_or_notify_cancel()
        asker = asker_of(request)
        with self._lock:
            self._refuse(asker)
            self._running[running] = asker, stops
        try:
            # It has its slot already: reading takes the interpreter from the epochs.
            work = await run_in_threadpool(read)
            # A thread of its own for each, which has its slot until it ends, whoever still waits for it.
            Thread(target=self._run, args=(running, work.run), name="headrace-query", daemon=True).start()
        except BaseException:
            self._release(running)
            raise
        gone = asyncio.ensure_future(hang_up(request.receive))
        try:
            return await self._waited(running, gone, stops, seconds, work.changes)
        finally:
            gone.cancel()

    def _refuse(self, asker: str) -> None:
        """Raise if all slots are taken, or as many as one asker may have: a quarter is left to others."""
        most_of_one = self._slots - self._slots // 4
        own = sum(each == asker for each, _ in self._running.values())
        if own >= most_of_one:
            detail = f"{own} of them have this key and address, which is the limit."
        elif len(self._running) >= self._slots:
            detail = f"{self._slots} run at once, which is the limit."
        else:
            return
        raise Refusal(
            429,
            "too_busy",
            "too many queries are under way",
            detail=detail,
            hint="send the request again after the seconds that Retry-After names",
            headers={"Retry-After": "1"},
        )

    async def _waited(
        self, running: Future[T], gone: asyncio.Future[None], stops: Stops, seconds: float, changes: bool
    ) -> T:
        result = asyncio.wrap_future(running)
        result.add_done_callback(note_outcome)
        # Changes go on when their sender hangs up: the statement was whole.
        awaited = {result} if changes else {result, gone}
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        stopping = asyncio.ensure_future(_stop(stops, running, give_up=not changes))
        await asyncio.wait({result, stopping}, timeout=None if changes else _END_SECONDS)
        with contextlib.suppress(QueryStopped):
            if result.done():
                return result.result()
        if gone.done():
            raise ClientGone
        # Not a 5xx: the server is well, and whoever retries by status would only ask the same again.
        raise Refusal(
            400,
            "timeout",
            "the statement took too long and was stopped",
            detail=f"It was given {seconds:g} seconds. Nothing was changed.",
            hint="ask for less at a time, or give it more time with timeout_seconds, up to HEADRACE_SERVE_QUERY_TIME",
        )

    def _run(self, running: Future[T], work: Callable[[], T]) -> None:
        # Who hears of it may ask the next at once, and has a slot by then.
        try:
            result = work()
        except BaseException as error:
            self._release(running)
            with contextlib.suppress(InvalidStateError):
                running.set_exception(error)
        else:
            self._release(running)
            with contextlib.suppress(InvalidStateError):
                running.set_result(result)

    def _release(self, running: Future[Any]) -> None:
        with self._lock:
            self._running.pop(running, None)

    def close(self) -> None:
        """Wait until every query has ended; one that takes long is stopped."""
        wait(list(self._running), _END_SECONDS)
        for running, (_, stops) in list(self._running.items()):
            stops.stop()
            wait([running], _GIVE_UP_SECONDS)


async def _stop(stops: Stops, running: Future[Any], *, give_up: bool) -> None:
    """Cancel Spark jobs until the work has ended: one may start just as others are cancelled."""
    loop = asyncio.get_running_loop()
    given_up_at = loop.time() + _GIVE_UP_SECONDS
    while not running.done():
        await loop.run_in_executor(None, stops.stop)
        await asyncio.sleep(_STOP_AGAIN_SECONDS)
        if give_up and loop.time() > given_up_at:
            # Where the JVM ran out of memory, the thread that was to answer may be dead and its socket silent.
            with contextlib.suppress(InvalidStateError):
                running.set_exception(QueryStopped("the query was given up"))
