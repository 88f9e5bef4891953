"""Connections of the server: how many, for how long without a request or a reader, and how one that is refused ends."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.serving.problems import Refusal
from headrace.serving.request_parsing import RequestParsing, closing_answer

# Of what a client still sends after it was refused: so long, so much and so slowly is it read, and thrown away.
_LINGER_SECONDS = 2.0
_LINGER_BYTES = 128 * 1024 * 1024
_PAUSE_SECONDS = 0.25
# What a client must at least take of an answer while it is waited for.
_TAKEN_BYTES = 64 * 1024
# What the home itself needs of the files that a process may have open.
_OWN_FILES = 256


def most_connections(wanted: int) -> int:
    """As many as are wanted, but no more than the files that the process may open allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else max(min(wanted, files - _OWN_FILES), 1)


def bounded(seconds: float, most: int) -> type[RequestParsing]:
    """The protocol of connections of which there are so many, each for so long without a request's head or a reader."""

    class Bounded(RequestParsing):
        """Lets go of a client that says nothing, or its headers too slowly, or does not read, and of one too many."""

        _waiting: asyncio.TimerHandle | None = None
        _reading: asyncio.TimerHandle | None = None
        _unsent = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.write(_full(most))
                transport.close()
                return
            self._await_request()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._waiting, self._reading):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._await_request()

        def _await_request(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
            self._waiting = self.loop.call_later(seconds, self._let_go)

        def _let_go(self) -> None:
            cycle: Any = self.cycle
            # A request that is under way has its own deadlines.
            if cycle is None or cycle.response_complete:
                self.transport.close()
                if self._reading is None:
                    self._await_reader()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._await_reader()

        def resume_writing(self) -> None:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None
            super().resume_writing()

        def _await_reader(self) -> None:
            self._unsent = self.transport.get_write_buffer_size()
            self._reading = self.loop.call_later(seconds, self._let_go_of_reader)

        def _let_go_of_reader(self) -> None:
            if self._unsent - self.transport.get_write_buffer_size() >= _TAKEN_BYTES:
                self._await_reader()
            else:
                # Not closed, which waits until all of it is sent: a reader that takes nothing would keep it for ever.
                self.transport.abort()

    return Bounded


def _full(most: int) -> bytes:
    refusal = Refusal(
        503,
        "too_many_connections",
        "too many connections are open",
        detail=f"{most} may be, which is the limit.",
        hint="close some, or come back after the seconds that Retry-After names",
    )
    return closing_answer("503 Service Unavailable", refusal, "Retry-After: 5\r\n")


class Lingering:
    """Reads on a little after a refusal that closes the connection.

    A client that first sends its whole body would otherwise see a reset connection instead of the refusal.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; if its answer closes the connection, end it when the client has stopped to send."""
        if scope["type"] != "http" or any(name == b"expect" for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        whole = closing = False

        async def noted() -> Message:
            nonlocal whole
            message = await receive()
            whole = whole or message["type"] != "http.request" or not message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            nonlocal closing
            if message["type"] == "http.response.start":
                closing = any(
                    name.lower() == b"connection" and value.lower() == b"close" for name, value in message["headers"]
                )
            elif closing and not message.get("more_body", False):
                await send({**message, "more_body": True})
                if not whole:
                    await _discard(noted, lambda: whole)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(scope, noted, sent)


async def _discard(receive: Receive, ended: Callable[[], bool]) -> None:
    """Read and forget what comes, until it ends, pauses, or has been enough."""
    size, until = 0, time.monotonic() + _LINGER_SECONDS
    while not ended() and size < _LINGER_BYTES and time.monotonic() < until:
        try:
            async with asyncio.timeout(_PAUSE_SECONDS):
                size += len((await receive()).get("body", b""))
        except TimeoutError:
            return


async def hang_up(receive: Receive) -> None:
    """Ends when the client is gone; the body of its request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        continue
