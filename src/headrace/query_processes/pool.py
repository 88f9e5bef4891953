"""The query processes of a server: started when first needed, kept clear for the next query, replaced when they end.

A query that is asked while another has run for long goes into another process, if there may be one. Into a process in
which something goes on that was stopped nobody else is sent; it is ended when those that are in it have left, or soon,
and who is in it by then is asked again elsewhere. When a process runs out of memory, or ends for a reason unknown,
nobody knows whose fault it was: the query that was in it for longest is asked once more, alone, and others as before,
but alone if it happens to them again. One that is asked alone leaves a process to the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from headrace.query_processes.child import PROGRAM, Allowance, Child, ProcessLost
from headrace.query_processes.error_forms import error_from_json
from headrace.query_processes.question import Question, answer_rows
from headrace.query_processes.refusals import closed, lost, not_run, too_much_memory
from headrace.query_processes.wire import Message, WireBroken
from headrace.reading.stoppable import stopped

_LOOK_SECONDS = 0.2
# A query that has run for so long may go on for long.
_LONG_SECONDS = 2.0
# How long one waits behind an older query before it is asked in a process that is clear.
_BESIDE_SECONDS = 3.0
# How long what was stopped may go on before nobody else is sent into its process, and before that is ended in any case.
_STOP_SECONDS = 1.0
_DRAIN_SECONDS = 4.0
_IDLE_SECONDS = 60.0
_START_AGAIN_SECONDS = 5.0
# A process beyond those that queries take for long, for the next query to find one; and for how long two are kept free
# after one has ended that should not have.
_RESERVE = 1
_TROUBLE_SECONDS = 60.0
_ATTEMPTS = 5
# One that ends before it is ready may have been killed with another; two in a row do not start.
_FAILURES = 2
T = TypeVar("T")
_log = logging.getLogger("headrace.reading")


class Stop:
    """The wish of an asker that a query be stopped."""

    def __init__(self) -> None:
        self.wanted: Future[None] = Future()

    def stop(self) -> None:
        """Wish it; more than once is the same as once."""
        with suppress(InvalidStateError):
            self.wanted.set_result(None)

    def refuse(self) -> None:
        """Raise if it was wished."""
        if self.wanted.done():
            raise stopped()


@dataclass(eq=False)
class _Seat:
    """One query's part in a process."""

    room: _Room
    alone: bool
    taken_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class _Stopped:
    """A query that nobody waits for any more; it goes on until it is answered."""

    answer: Future[Message]
    at: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Room:
    """A process and the queries in it."""

    child: Child
    seats: list[_Seat] = field(default_factory=list[_Seat])
    left_at: float = field(default_factory=time.monotonic)
    stopped: list[_Stopped] = field(default_factory=list[_Stopped])
    # When the oldest of those took their part who were in it when it ended.
    oldest_at: float | None = None

    @property
    def ready(self) -> bool:
        return self.child.ready.is_set() and self.child.ending is None

    @property
    def settling(self) -> float | None:
        """For how many seconds something has gone on in it that was stopped."""
        self.stopped = [one for one in self.stopped if not one.answer.done()]
        return time.monotonic() - self.stopped[0].at if self.stopped else None

    @property
    def drained(self) -> bool:
        """Whether what was stopped goes on for so long that nobody else is sent into it."""
        return (self.settling or 0.0) > _STOP_SECONDS

    @property
    def crowded(self) -> bool:
        """Whether a query in it may keep others waiting."""
        long_ago = time.monotonic() - _LONG_SECONDS
        return self.drained or any(seat.alone or seat.taken_at < long_ago for seat in self.seats)

    @property
    def clear(self) -> bool:
        """Whether a query is answered there as soon as can be."""
        return self.ready and not self.crowded and self.settling is None

    @property
    def open(self) -> bool:
        """Whether a query may go into it."""
        return self.ready and not self.drained and not any(seat.alone for seat in self.seats)


class _Moved(Exception):
    """A process that is clear was found for a query that waits behind another."""


class QueryProcesses:
    """Answers questions in query processes."""

    def __init__(self, allowance: Allowance, most: int, program: Sequence[str] = PROGRAM) -> None:
        self.allowance = allowance
        self._most = most
        self._program = program
        self._changed = threading.Condition()
        self._rooms: list[_Room] = []
        self._tending: threading.Thread | None = None
        self._failed_at: float | None = None
        self._failures = 0
        self._trouble_at: float | None = None
        self._alone_waiting = 0
        self._closed = False

    def rows(self, question: Question, stop: Stop) -> pa.Table:
        """The rows of a question."""
        return self._answered(question, stop, answer_rows)

    def plan(self, question: Question, stop: Stop) -> str:
        """Spark's plan of a question."""
        return self._answered(question, stop, lambda message: str(message.head["plan"]))

    def pids(self) -> list[int]:
        """The processes there are."""
        with self._changed:
            return [room.child.pid for room in self._rooms]

    def processor_seconds(self) -> float:
        """How much of the processor those have had so far."""
        with self._changed:
            return sum(room.child.processor_seconds() for room in self._rooms)

    def close(self) -> None:
        """End all processes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._tending is not None:
            self._tending.join()

    def _answered(self, question: Question, stop: Stop, read: Callable[[Message], T]) -> T:
        alone = moved = lost_before = False
        for _ in range(_ATTEMPTS):
            seat = self._sit_down(alone, stop)
            try:
                message = self._ask(seat, question, stop, may_move=not (alone or moved))
                if "error" in message.head:
                    raise error_from_json(message.head["error"])
                return read(message)
            except _Moved:
                moved = True
            except (WireBroken, KeyError):
                # It is not to be believed any more.
                seat.room.child.kill("disbelieved")
            except ProcessLost as process:
                if process.ending == "memory" and (alone or process.alone):
                    raise too_much_memory() from None
                if process.ending == "unknown" and alone:
                    raise lost() from None
                if process.ending in ("memory", "unknown"):
                    alone = alone or lost_before or self._was_oldest(seat)
                    lost_before = True
            finally:
                self._leave(seat)
        raise not_run()

    def _was_oldest(self, seat: _Seat) -> bool:
        """Whether nobody was in a process that has ended for longer."""
        with self._changed:
            room = seat.room
            if room.oldest_at is None:
                room.oldest_at = min(one.taken_at for one in room.seats)
            return seat.taken_at <= room.oldest_at

    def _sit_down(self, alone: bool, stop: Stop) -> _Seat:
        """A part in a process; waits until there is one."""
        with self._changed:
            self._tend()
            self._alone_waiting += alone
            try:
                while True:
                    stop.refuse()
                    if self._closed:
                        raise closed()
                    room = self._free_alone() if alone else self._free()
                    if room is not None:
                        seat = _Seat(room, alone)
                        room.seats.append(seat)
                        return seat
                    if self._failures >= _FAILURES and not self._rooms:
                        raise not_run()
                    self._changed.wait(_LOOK_SECONDS)
            finally:
                self._alone_waiting -= alone

    def _free(self) -> _Room | None:
        """The process that a query may go into now."""
        clear = next((room for room in self._rooms if room.clear), None)
        shared = (room for room in self._rooms if room.open)
        return clear or min(shared, key=lambda room: len(room.seats), default=None)

    def _free_alone(self) -> _Room | None:
        """The process that a query may have for itself, which is not the only one that others can go into."""
        empty = next((room for room in self._rooms if room.clear and not room.seats), None)
        others = any(room.open for room in self._rooms if room is not empty)
        return empty if others or self._failed_at is not None else None

    def _ask(self, seat: _Seat, question: Question, stop: Stop, *, may_move: bool) -> Message:
        child = seat.room.child
        number, answer = child.ask(question)
        awaited: list[Future[Any]] = [answer, stop.wanted]
        while not answer.done():
            wait(awaited, _LOOK_SECONDS, FIRST_COMPLETED)
            if answer.done():
                break
            if stop.wanted.done():
                self._stop(seat, number, answer)
                raise stopped()
            if may_move and time.monotonic() - seat.taken_at > _BESIDE_SECONDS and self._better(seat):
                self._stop(seat, number, answer)
                raise _Moved
        return answer.result()

    def _better(self, seat: _Seat) -> bool:
        """Whether a query waits behind an older one, and there is a process where it would not."""
        with self._changed:
            behind = any(other.taken_at < seat.taken_at for other in seat.room.seats)
            return behind and any(room.clear for room in self._rooms if room is not seat.room)

    def _stop(self, seat: _Seat, number: int, answer: Future[Message]) -> None:
        """Have a query stopped, for which nobody waits any more."""
        with self._changed:
            seat.room.stopped.append(_Stopped(answer))
        seat.room.child.stop(number)

    def _leave(self, seat: _Seat) -> None:
        with self._changed:
            seat.room.seats.remove(seat)
            seat.room.left_at = time.monotonic()
            self._changed.notify_all()

    def _tend(self) -> None:
        if self._tending is None:
            tending = threading.Thread(target=self._tend_on, name="headrace-query-processes", daemon=True)
            tending.start()
            self._tending = tending

    def _tend_on(self) -> None:
        """Keep a process ready, and one that is clear where there may be one."""
        while not self._closed:
            try:
                if self._look_after():
                    self._start()
            except Exception:
                _log.exception("a query process could not be looked after")
            with self._changed:
                self._changed.notify_all()
                if not self._closed:
                    self._changed.wait(_LOOK_SECONDS)
        for room in self._rooms:
            room.child.kill("closed")
        for room in self._rooms:
            room.child.ended.wait()

    def _look_after(self) -> bool:
        """Let go of processes that have ended, end those that are to end, and tell whether another is to be started."""
        now = time.monotonic()
        with self._changed:
            troubled = self._trouble_at is not None and now - self._trouble_at < _TROUBLE_SECONDS
            kept = 2 if troubled or self._alone_waiting else 1
            for room in list(self._rooms):
                if room.child.ended.is_set():
                    self._rooms.remove(room)
                    if not room.child.ready.is_set():
                        self._failed_at = now
                        self._failures += 1
                    elif room.child.ending in ("memory", "unknown", "stopped"):
                        self._trouble_at = now
                elif room.ready:
                    self._failed_at = None
                    self._failures = 0
                    idle = len(self._rooms) > kept and not room.seats and now - room.left_at > _IDLE_SECONDS
                    if room.drained and (not room.seats or (room.settling or 0.0) > _DRAIN_SECONDS):
                        room.child.kill("stopped")
                    elif idle:
                        room.child.kill("idle")
            resting = self._failures >= _FAILURES and now - (self._failed_at or 0.0) < _START_AGAIN_SECONDS
            starting = any(not room.child.ready.is_set() for room in self._rooms)
            free = sum(not room.crowded for room in self._rooms)
            wanted = len(self._rooms) < self._most + _RESERVE and free < kept
            return wanted and not (resting or starting)

    def _start(self) -> None:
        """Start another process, while nobody who asks waits for that alone."""
        try:
            room = _Room(Child(self.allowance, self._program))
        except (OSError, RuntimeError):
            # Out of processes, threads, memory or files: whoever waits hears it now, and it is tried again later.
            self._failed_at = time.monotonic()
            self._failures = max(_FAILURES, self._failures + 1)
            _log.exception("a query process could not be started")
        else:
            with self._changed:
                self._rooms.append(room)
