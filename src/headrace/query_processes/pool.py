"""The query processes of a server: started when first needed, kept clear for the next query, replaced when they end.

A query that is asked while another has run for long goes into another process, if there may be one. Into a process in
which something goes on that was stopped nobody else is sent; it is ended when those that are in it have left, or soon,
and who is in it by then is asked again elsewhere. When a process runs out of memory, or ends for a reason unknown,
nobody knows whose fault it was: the query that was in it for longest is the suspect and is asked once more, alone; the
others as before, but alone if it happens to them again. One that is asked alone leaves a process to the others.

How a query went before counts (`standing.py`): one that did harm is asked alone from the start, and for a minute after
a process was lost, queries of which nothing is known leave one to those that were quick.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from headrace.errors import QueryStopped
from headrace.query_processes.child import PROGRAM, Allowance, Child, ProcessLost
from headrace.query_processes.error_forms import error_from_json
from headrace.query_processes.question import Question, answer_rows
from headrace.query_processes.refusals import closed, lost, not_run, too_much_memory
from headrace.query_processes.standing import Standing, Standings
from headrace.query_processes.wire import Message, WireBroken
from headrace.reading.stoppable import stopped

_LOOK_SECONDS = 0.2
# A query that has run for so long may go on for long.
_LONG_SECONDS = 2.0
# One that was quick is not when it takes so long, alone in its process.
_DOUBT_SECONDS = 10.0
# One that is stopped after so long has kept a process busy in vain.
_HARM_SECONDS = 5.0
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
    standing: Standing = "unknown"
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
    # Whether it gives way to those that answer soon, since it has, or had, a long query.
    slow: bool = False
    # When the query came that is suspect of its end, and whether that may be one that was quick before.
    suspect_since: float | None = None
    suspects_quick: bool = False

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

    @property
    def only_quick(self) -> bool:
        """Whether nothing is in it but queries that were quick before, or nothing at all."""
        return self.stopping_for is None and all(query.standing == "quick" for query in self.running)

    def is_suspect(self, query: _RunningQuery) -> bool:
        """Whether nothing else was in it for as long when it ended; asked by each that was before it leaves.

        Those that were quick before are suspect only where nobody else is.
        """
        if self.suspect_since is None:
            gone_on = [one for one in self.stopped if not one.answer.done() or one.answer.exception() is not None]
            known = [one for one in self.running if one.standing == "quick"]
            unknown = [*gone_on, *(one for one in self.running if one.standing != "quick")]
            self.suspect_since = min(one.taken_at for one in unknown or known)
            self.suspects_quick = not unknown
        return query.taken_at <= self.suspect_since and (query.standing != "quick" or self.suspects_quick)


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
        self._quick_at: float | None = None
        # How many wait for a process that they are to have alone.
        self._alone_waiting = 0
        self._standings = Standings()
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
        standing = self._standings.of(question.sql)
        alone, moved, lost_before = standing == "harmful", False, False
        worked = 0.0
        for _ in range(_ATTEMPTS):
            query = self._enter(alone, standing, stop)
            try:
                message = self._ask(query, question, stop, may_move=not (alone or moved))
                self._note_answered(question, query)
                if "error" in message.head:
                    raise error_from_json(message.head["error"])
                return read(message)
            except _Moved:
                moved = True
            except QueryStopped:
                if worked + time.monotonic() - query.taken_at > _HARM_SECONDS:
                    self._standings.note(question.sql, "harmful")
                raise
            except (WireBroken, KeyError):
                # It is not to be believed any more.
                query.process.child.kill("disbelieved")
            except ProcessLost as gone:
                if gone.ending == "memory" and (alone or gone.alone):
                    self._standings.note(question.sql, "harmful")
                    raise too_much_memory() from None
                if gone.ending == "unknown" and alone:
                    raise lost() from None
                if gone.ending in ("memory", "unknown"):
                    with self._changed:
                        suspect = query.process.is_suspect(query) and standing != "quick"
                        alone = alone or lost_before or suspect
                    lost_before = True
                    if alone and gone.ending == "memory":
                        standing = "harmful"
                        self._standings.note(question.sql, standing)
            finally:
                worked += time.monotonic() - query.taken_at
                self._leave(query)
        raise not_run()

    def _note_answered(self, question: Question, query: _RunningQuery) -> None:
        """Keep whether a query was quick; one that was, and took longer in a new process or beside others, still is."""
        seconds = time.monotonic() - query.taken_at
        if seconds < _LONG_SECONDS:
            self._standings.note(question.sql, "quick")
        elif seconds > _DOUBT_SECONDS and len(query.process.running) == 1:
            self._standings.note(question.sql, "unknown")

    def _enter(self, alone: bool, standing: Standing, stop: Stop) -> _RunningQuery:
        """A part in a process; waits until there is one."""
        with self._changed, self._counted(alone):
            self._tend()
            while True:
                if standing == "quick":
                    self._quick_at = time.monotonic()
                stop.refuse()
                if self._closed:
                    raise closed()
                process = self._free_alone() if alone else self._free(standing)
                if process is not None:
                    query = _RunningQuery(process, alone, standing)
                    process.running.append(query)
                    return query
                if self._failures >= _FAILURES and not self._processes:
                    raise not_run()
                self._changed.wait(_LOOK_SECONDS)

    @contextmanager
    def _counted(self, alone: bool) -> Generator[None, None, None]:
        """Inside, somebody waits for a process; one who is to be alone needs another one for the rest."""
        self._alone_waiting += alone
        try:
            yield
        finally:
            self._alone_waiting -= alone

    def _free(self, standing: Standing, but: _Process | None = None) -> _Process | None:
        """The process that a query may go into now: the one with fewest, among those that are clear if any is."""
        shared = [process for process in self._processes if process.open and process is not but]
        if standing != "quick" and self._leaves_one():
            # Where those are that nobody knows, the next may go too: whatever happens, it happens to them.
            left = [process for process in shared if process.only_quick]
            shared = [process for process in shared if not process.only_quick] + left[1:]
        return min(shared, key=lambda process: (not process.clear, process.slow, len(process.running)), default=None)

    def _leaves_one(self) -> bool:
        """Whether a query that may do harm leaves a process to those that are known to be quick."""
        return self._most > 1 and not self._failures and _recent(self._quick_at) and self._wants_two

    @property
    def _wants_two(self) -> bool:
        """Whether one process is for those that are known to be quick and ask these days, and one for the others.

        That is so while a query goes on for long or is to be alone, and for a minute after a process was lost.
        """
        if self._alone_waiting:
            return True
        return self._troubled or (_recent(self._quick_at) and any(process.crowded for process in self._processes))

    def _free_alone(self) -> _Process | None:
        """The process that a query may have for itself, and not the only one that others can go into."""
        empty = [process for process in self._processes if process.clear and not process.running]
        if self._most == 1 or self._failures:
            return next(iter(empty), None)
        # Two are left to the others where there are three: one to the quick, and one to those that nobody knows.
        taken = sum(any(query.alone for query in process.running) for process in self._processes)
        # The one that was used last has what the next quick query needs.
        chosen = min(empty, key=lambda process: process.left_at, default=None)
        others = [process for process in self._processes if process is not chosen]
        is_left = any(one.clear and one.only_quick if self._most > 2 else one.open for one in others)
        return chosen if is_left and taken < max(1, self._most - 2) else None

    @property
    def _troubled(self) -> bool:
        """Whether a process was lost within the last minute."""
        return _recent(self._trouble_at)

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
            found = self._free(query.standing, but=query.process) if behind else None
            return found is not None and found.clear

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
            kept = 2 if self._wants_two else 1
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
                    if process.crowded != process.slow:
                        # To come back is not allowed to everybody.
                        process.slow = not process.child.give_way(process.crowded) or process.crowded
                    needed = len(self._processes) <= kept and not process.slow
                    idle = not needed and not process.running and now - process.left_at > _IDLE_SECONDS
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


def _recent(at: float | None) -> bool:
    return at is not None and time.monotonic() - at < _TROUBLE_SECONDS
