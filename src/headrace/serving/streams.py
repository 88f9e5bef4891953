"""Streams of events: how many at once, what they share, who wakes them, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.reading.following import Changes, Dropped, Position, Progress, Reset, Step
from headrace.reading.history import EpochChanges
from headrace.reading.readings import Readings
from headrace.serving.access import still_holds
from headrace.serving.connections import hang_up
from headrace.serving.problems import Refusal
from headrace.serving.shared import Shared
from headrace.state.state import BEGIN, At, Piece

T = TypeVar("T")
_READERS = 2
_TEXT_BYTES = 32 * 1024 * 1024
# As much as a connection is given before the client has taken what it was given last.
_PIECE_BYTES = 64 * 1024


class Streams:
    """The open streams of one server; a commit wakes them all, and what one has read and written serves the others."""

    def __init__(self, readings: Readings, slots: int) -> None:
        self._following = readings.following
        self._readings = readings
        self._slots = slots
        self._taken = 0
        self._forget: Callable[[], None] | None = None
        self._moved = asyncio.Event()
        self.ending = False
        # Few, so that many who catch up at once do not fill the memory.
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="headrace-stream")
        self.shared = Shared(self._read, _TEXT_BYTES)

    def limit(self, slots: int) -> None:
        """Let so many be open from now on; those that are stay so."""
        self._slots = slots

    @property
    def open(self) -> int:
        """How many are open."""
        return self._taken

    def enter(self) -> OpenStream:
        """A slot for one stream; 429 if all are taken."""
        if self._taken >= self._slots or self.ending:
            raise Refusal(
                429,
                "too_busy",
                "too many change streams are open",
                detail=f"{self._slots} may be, which is the limit.",
                hint="close one, or come back after the seconds that Retry-After names",
                headers={"Retry-After": "5"},
            )
        self._taken += 1
        return OpenStream(self)

    def release(self) -> None:
        """Give a slot back."""
        self._taken -= 1

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def steps(self, position: Position, seconds: float) -> AsyncGenerator[Step | None, None]:
        """What happens to a relation from a position on, as it is committed; None after so many seconds of nothing.

        It ends when the relation was dropped, the server ends or the home does; of a home that ended, what it still
        tells comes first, or why it tells nothing more.
        """
        while not self.ending:
            ended = self._following.ended
            columns = position.columns
            shape = None if columns is None else (columns.born, columns.since)
            name = ("step", position.relation, position.epoch, shape)
            step = await self.shared.read(name, lambda: self._following.step(position))  # noqa: B023 - read before it moves
            if isinstance(step, Dropped):
                yield step
                return
            if not isinstance(step, Progress) or step.position != position:
                yield step
            position = step.position
            assert position.epoch is not None
            # What it brought may be large, and the wait long.
            del step
            if ended:
                return
            if not await self.newer_than(position.epoch, seconds):
                yield None

    async def newer_than(self, epoch: int, seconds: float) -> bool:
        """Whether an epoch newer than this came within so many seconds."""
        if self._forget is None:
            self._forget = self._following.listen(self._woken_in(asyncio.get_running_loop()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._readings.epoch <= epoch and not (self.ending or self._following.ended):
                    await self._moved.wait()
        return self._readings.epoch > epoch or self.ending or self._following.ended

    def _woken_in(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def listener() -> None:
            # A loop that has ended has nobody to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake)

        return listener

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def end(self) -> None:
        """Let every stream end after the event that it is sending."""
        self.ending = True
        self._wake()

    def close(self) -> None:
        """Wait for readings that are under way."""
        if self._forget is not None:
            self._forget()
        self._readers.shutdown()


class OpenStream:
    """One open stream."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._released = False
        self.steps = streams.steps
        self.newer_than = streams.newer_than
        self.text = streams.shared.text

    async def pieces(self, step: Reset, rows: int) -> AsyncGenerator[tuple[At, Piece], None]:
        """What a relation holds, at most so many rows at a time: each is made when the one before it has been sent."""
        at: At | None = BEGIN
        while at is not None:
            read = partial(step.content.piece, at, rows)
            piece = await self._streams.shared.read(("piece", step.reading, at, rows), read)
            yield at, piece
            at = piece.after

    async def changes(
        self, form: str, step: Changes, rows: int, write: Callable[[EpochChanges, bool], bytes]
    ) -> AsyncGenerator[bytes, None]:
        """What some epochs changed, at most so many rows at a time, and whether they are the last of their epoch.

        Each is written when the one before it has been sent, and once for all who are sent this form.
        """
        columns = step.position.columns
        for changed in step.epochs:
            name = (form, step.position.relation, columns and columns.since, changed.epoch)
            for begin in range(0, max(changed.rows.num_rows, 1), rows):
                part = replace(changed, rows=changed.rows.slice(begin, rows), kinds=changed.kinds.slice(begin, rows))
                yield await self.text((*name, begin), partial(write, part, begin + rows >= changed.rows.num_rows))

    def release(self) -> None:
        """Give its slot back."""
        if not self._released:
            self._released = True
            self._streams.release()


class EventStream(Response):
    """Events as they come, one at a time and in pieces: the next is made when the client has taken the last.

    A client that takes no piece for `patience` seconds, or that is gone, is let go of; it can resume. So is one
    whose key no longer holds, which is asked before each event.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        stream: OpenStream,
        patience: float,
        *,
        greeting: bytes = b": headrace\n\n",
        media_type: str = "text/event-stream",
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]
        self._events = events
        self._stream = stream
        self._patience = patience
        self._greeting = greeting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client or the server ends it."""
        sending = asyncio.ensure_future(self._send(scope, send))
        leaving = asyncio.ensure_future(hang_up(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            await self._events.aclose()
            self._stream.release()
        if (
            not sending.cancelled()
            and (error := sending.exception()) is not None
            and not isinstance(error, TimeoutError)
        ):
            raise error

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # A first line at once, so that a client knows that it is heard.
        await send({"type": "http.response.body", "body": self._greeting, "more_body": True})
        async for event in self._events:
            if not still_holds(scope):
                # As if it had ended: who asks again hears why.
                break
            for begin in range(0, len(event), _PIECE_BYTES):
                piece = event[begin : begin + _PIECE_BYTES]
                async with asyncio.timeout(self._patience):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
