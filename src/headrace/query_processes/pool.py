"""The query processes of a server: started when first needed, kept clear for the next query, replaced when they end.

A query that is asked while another has run for long goes into another process, if there may be one. Into a process in
which something goes on that was stopped nobody else is sent; it is ended when those that are in it have left, or soon,
and who is in it by then is asked again elsewhere. When a process runs out of memory, or ends for a reason unknown,
nobody knows whose fault it was: the query that was in it for longest is the suspect and is asked once more, alone; the
others as before, but alone if it happens to them again. One that is asked alone leaves a process to the others.
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
# For how long two are kept clear after one has ended that should not have: one for a suspect, and one for the rest.
_TROUBLE_SECONDS = 60.0
# One that ends before it is ready may have been killed with another; two in a row do not start.
_FAILURES = 2
_ATTEMPTS = 5
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
class _RunningQuery:
    """One query's part in a process."""

    process: _Process
    alone: bool
    taken_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class _Stopped:
    """A query that nobody waits for any more; it goes on until it is answered."""

    answer: Future[Message]
    taken_at: float
    at: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Process:
    """A process and the queries in it."""

    child: Child
    running: list[_RunningQuery] = field(default_factory=list[_RunningQuery])
    left_at: float = field(default_factory=time.monotonic)
    has_started: bool = False
    stopped: list[_Stopped] = field(default_factory=list[_Stopped])
    # When the query came that was in it for longest when it ended.
    oldest_at: float | None = None

    @property
    def ready(self) -> bool:
        return self.child.ready.is_set() and self.child.ending is None

    @property
    def stopping_for(self) -> float | None:
        """For how many seconds something has gone on in it that was stopped."""
        since = next((one.at for one in self.stopped if not one.answer.done()), None)
        return None if since is None else time.monotonic() - since

    @property
    def drained(self) -> bool:
        """Whether what was stopped goes on for so long that nobody else is sent into it."""
        return (self.stopping_for or 0.0) > _STOP_SECONDS

    @property
    def crowded(self) -> bool:
        """Whether a query in it may keep others waiting."""
        long_ago = time.monotonic() - _LONG_SECONDS
        return self.drained or any(query.alone or query.taken_at < long_ago for query in self.running)

    @property
    def clear(self) -> bool:
        """Whether a query is answered there as soon as can be."""
        return self.ready and not self.crowded and self.stopping_for is None

    @property
    def open(self) -> bool:
        """Whether a query may go into it."""
        return self.ready and not self.drained and not any(query.alone for query in self.running)

    def is_suspect(self, query: _RunningQuery) -> bool:
        """Whether nothing else was in it for as long when it ended; asked by each that was before it leaves."""
        if self.oldest_at is None:
            gone_on = [one for one in self.stopped if not one.answer.done() or one.answer.exception() is not None]
            self.oldest_at = min(one.taken_at for one in [*gone_on, *self.running])
        return query.taken_at <= self.oldest_at


class _Moved(Exception):
    """A process that is clear was found for a query that waits behind another."""


class QueryProcesses:
    """Answers questions in query processes."""

    def __init__(self, allowance: Allowance, most: int, program: Sequence[str] = PROGRAM) -> None:
        self.allowance = allowance
        self._most = most
        self._program = program
        self._changed = threading.Condition()
        self._processes: list[_Process] = []
        self._tending: threading.Thread | None = None
        self._failed_at = 0.0
        self._failures = 0
        self._trouble_at: float | None = None
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
            return [process.child.pid for process in self._processes]

    def processor_seconds(self) -> float:
        """How much of the processor those have had so far."""
        with self._changed:
            return sum(process.child.processor_seconds() for process in self._processes)

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
            query = self._enter(alone, stop)
            try:
                message = self._ask(query, question, stop, may_move=not (alone or moved))
                if "error" in message.head:
                    raise error_from_json(message.head["error"])
                return read(message)
            except _Moved:
                moved = True
            except (WireBroken, KeyError):
                # It is not to be believed any more.
                query.process.child.kill("disbelieved")
            except ProcessLost as gone:
                if gone.ending == "memory" and (alone or gone.alone):
                    raise too_much_memory() from None
                if gone.ending == "unknown" and alone:
                    raise lost() from None
                if gone.ending in ("memory", "unknown"):
                    with self._changed:
                        alone = alone or lost_before or query.process.is_suspect(query)
                    lost_before = True
            finally:
                self._leave(query)
        raise not_run()

    def _enter(self, alone: bool, stop: Stop) -> _RunningQuery:
        """A part in a process; waits until there is one."""
        with self._changed:
            self._tend()
            while True:
                stop.refuse()
                if self._closed:
                    raise closed()
                process = self._free_alone() if alone else self._free()
                if process is not None:
                    query = _RunningQuery(process, alone)
                    process.running.append(query)
                    return query
                if self._failures >= _FAILURES and not self._processes:
                    raise not_run()
                self._changed.wait(_LOOK_SECONDS)

    def _free(self) -> _Process | None:
        """The process that a query may go into now: the one with fewest, among those that are clear if any is."""
        shared = [process for process in self._processes if process.open]
        return min(shared, key=lambda process: (not process.clear, len(process.running)), default=None)

    def _free_alone(self) -> _Process | None:
        """The process that a query may have for itself, and not the only one that others can go into."""
        empty = next((process for process in self._processes if process.clear and not process.running), None)
        others = any(process.open for process in self._processes if process is not empty)
        return empty if others or self._most == 1 or self._failures else None

    def _ask(self, query: _RunningQuery, question: Question, stop: Stop, *, may_move: bool) -> Message:
        child = query.process.child
        number, answer = child.ask(question)
        awaited: list[Future[Any]] = [answer, stop.wanted]
        while not answer.done():
            wait(awaited, _LOOK_SECONDS, FIRST_COMPLETED)
            if answer.done():
                break
            if stop.wanted.done():
                self._stop(query, number, answer)
                raise stopped()
            if may_move and time.monotonic() - query.taken_at > _BESIDE_SECONDS and self._better(query):
                self._stop(query, number, answer)
                raise _Moved
        return answer.result()

    def _better(self, query: _RunningQuery) -> bool:
        """Whether a query waits behind an older one, and there is a process where it would not."""
        with self._changed:
            behind = any(other.taken_at < query.taken_at for other in query.process.running)
            return behind and any(process.clear for process in self._processes if process is not query.process)

    def _stop(self, query: _RunningQuery, number: int, answer: Future[Message]) -> None:
        """Have a query stopped, for which nobody waits any more."""
        with self._changed:
            process = query.process
            process.stopped = [one for one in process.stopped if not one.answer.done()]
            process.stopped.append(_Stopped(answer, query.taken_at))
        process.child.stop(number)

    def _leave(self, query: _RunningQuery) -> None:
        with self._changed:
            query.process.running.remove(query)
            query.process.left_at = time.monotonic()
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
        for process in self._processes:
            process.child.kill("closed")
        for process in self._processes:
            process.child.ended.wait()

    def _look_after(self) -> bool:
        """Let go of processes that have ended, end those that are to end, and tell whether another is to be started."""
        now = time.monotonic()
        with self._changed:
            troubled = self._trouble_at is not None and now - self._trouble_at < _TROUBLE_SECONDS
            kept = 2 if troubled else 1
            for process in list(self._processes):
                if process.child.ended.is_set():
                    self._processes.remove(process)
                    if not process.child.ready.is_set():
                        self._failed_at = now
                        self._failures += 1
                    elif process.child.ending in ("memory", "unknown", "stopped"):
                        self._trouble_at = now
                elif process.ready:
                    # Only by what has come since: one that was there before says nothing about the next.
                    self._failures = self._failures if process.has_started else 0
                    process.has_started = True
                    idle = len(self._processes) > kept and not process.running and now - process.left_at > _IDLE_SECONDS
                    if process.drained and (not process.running or (process.stopping_for or 0.0) > _DRAIN_SECONDS):
                        process.child.kill("stopped")
                    elif idle:
                        process.child.kill("idle")
            resting = self._failures >= _FAILURES and now - self._failed_at < _START_AGAIN_SECONDS
            # One that starts counts as well.
            free = sum(not process.crowded for process in self._processes)
            return len(self._processes) < self._most and free < kept and not resting

    def _start(self) -> None:
        """Start another process, while nobody who asks waits for that alone."""
        try:
            process = _Process(Child(self.allowance, self._program))
        except (OSError, RuntimeError):
            # Out of processes, threads, memory or files: whoever waits hears it now, and it is tried again later.
            self._failed_at = time.monotonic()
            self._failures = max(_FAILURES, self._failures + 1)
            _log.exception("a query process could not be started")
        else:
            with self._changed:
                self._processes.append(process)
