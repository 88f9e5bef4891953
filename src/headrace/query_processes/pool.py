"""The query processes of a server: one query at a time in each, and a queue for the queries that wait for a process.

A process is starting, free, busy or ended. A process whose query is stopped stays busy until it answers that nothing of
the query runs any more; it is killed if the answer takes too long. Since a query is alone in its process, a process
that runs out of memory says which query needed too much.

The first process is started by the first query. Another one is started when a query runs or waits for long and no
process is free, so that the next query finds one; a process that ends is replaced, and one that is left over for long
is ended. No asker has all processes: however much one asks, the others find one.

Nothing but a start that fails by itself makes the queue refuse a query: a slow start, and one that is killed, only make
it wait until it is stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
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
# A query that has run or waited for so long lets the pool grow.
_LONG_SECONDS = 1.0
# A query that has used so much of the processor gives way to others; the first query of a process uses three seconds.
_HEAVY_PROCESSOR_SECONDS = 5.0
# A process is killed that has not stopped its query within so much of the processor's time, or so long: on a busy
# machine to stop takes longer, and so does a start.
_STOP_PROCESSOR_SECONDS = 2.0
_STOP_SECONDS = 5.0
_IDLE_SECONDS = 60.0
# A process that is not ready after so long hangs: on a machine with ten times the load a start takes two minutes.
_LONGEST_START_SECONDS = 600.0
# The pause after a start that failed; each further one doubles it.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 10.0
# So many processes in a row that end by themselves before they are ready tell of a broken installation.
_FAILED_STARTS = 3
T = TypeVar("T")
_log = logging.getLogger("headrace.reading")


class Stop:
    """The wish of an asker that its query be stopped; those who name no asker count as one."""

    def __init__(self, asker: str = "") -> None:
        self.asker = asker
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
class _Waiting:
    """A place in the queue."""

    asker: str
    since: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class _Process:
    """A process, and when the query in it came, or the last one went.

    `asker` has, or last had, a query in it, or in the process that it replaces; None if nobody had. `used` is how much
    of the processor the process had used when the query came, or was stopped.
    """

    child: Child
    asker: str | None = None
    busy: bool = False
    # Its end was noted, and it waits for the process that replaces it.
    over: bool = False
    since: float = field(default_factory=time.monotonic)
    used: float = 0.0
    stopped_at: float | None = None
    has_started: bool = False
    is_warm: bool = False
    # Whether it gives way to others: to come back from that is not allowed to everybody.
    slow: bool = False

    @property
    def starting(self) -> bool:
        return not self.child.ready.is_set() and self.child.ending is None

    @property
    def ready(self) -> bool:
        return self.child.ready.is_set() and self.child.ending is None

    @property
    def free(self) -> bool:
        return self.ready and not self.busy


class QueryProcesses:
    """Answers questions in at most so many query processes."""

    def __init__(self, allowance: Allowance, most: int, program: Sequence[str] = PROGRAM) -> None:
        self.allowance = allowance
        self._most = most
        self._program = program
        self._changed = threading.Condition()
        self._queue: list[_Waiting] = []
        self._processes: list[_Process] = []
        # How many processes there should be.
        self._wanted = 1
        self._tending: threading.Thread | None = None
        self._closed = False
        # The starts in a row that failed by themselves, and why the last of them did.
        self._failures = 0
        self._reason = ""
        # When the next start may be, if the last one failed or was killed.
        self._start_at: float | None = None
        self._pause = _PAUSE_SECONDS

    def rows(self, question: Question, stop: Stop) -> pa.Table:
        """Return the rows of a question."""
        return self._answered(question, stop, answer_rows)

    def plan(self, question: Question, stop: Stop) -> str:
        """Return Spark's plan of a question."""
        return self._answered(question, stop, lambda message: str(message.head["plan"]))

    def pids(self) -> list[int]:
        """Return the numbers of the processes."""
        with self._changed:
            return [process.child.pid for process in self._processes if not process.over]

    def processor_seconds(self) -> float:
        """Return the seconds of the processor that those processes have used."""
        with self._changed:
            return sum(process.child.processor_seconds() for process in self._processes if not process.over)

    def close(self) -> None:
        """End all processes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._tending is not None:
            self._tending.join()

    def _answered(self, question: Question, stop: Stop, read: Callable[[Message], T]) -> T:
        """Ask a question; once more if its process ends for a reason that is not the query's."""
        losses = 0
        while losses < 2:
            process = self._take(stop)
            try:
                message = self._ask(process, question, stop)
                if "error" in message.head:
                    raise error_from_json(message.head["error"])
                return read(message)
            except (WireBroken, KeyError):
                process.child.kill("disbelieved")
                losses += 1
            except ProcessLost as loss:
                if loss.ending == "memory":
                    raise too_much_memory() from None
                # A process that ended before it was asked, or by the pool, says nothing about the query.
                losses += loss.ending == "unknown"
        raise lost()

    def _take(self, stop: Stop) -> _Process:
        """Wait for a free process, and make it busy."""
        waiting = _Waiting(stop.asker)
        with self._changed:
            self._tend()
            self._queue.append(waiting)
            self._changed.notify_all()
            try:
                while True:
                    stop.refuse()
                    self._refuse()
                    next_, process = self._next() or (None, None)
                    if next_ is waiting and process is not None:
                        process.asker, process.busy, process.since = stop.asker, True, time.monotonic()
                        process.used, process.is_warm = process.child.processor_seconds(), True
                        return process
                    self._changed.wait(_LOOK_SECONDS)
            finally:
                self._queue.remove(waiting)
                self._changed.notify_all()

    def _next(self) -> tuple[_Waiting, _Process] | None:
        """Return the next in the queue that may have a process, and which: the first of the askers with the fewest."""
        counts = Counter(process.asker for process in self._processes if not process.free)
        for waiting in sorted(self._queue, key=lambda waiting: counts[waiting.asker]):
            process = self._process_for(waiting.asker, counts[waiting.asker])
            if process is not None:
                return waiting, process
        return None

    def _process_for(self, asker: str, count: int) -> _Process | None:
        """Return the free process that suits an asker best, if the asker may have a further one.

        An asker has the processes that its queries are in, and those that start in place of processes that its queries
        ended. It never has all that there may be, and only an asker that has none takes a process that was another's.
        Its own suits best, then one that nobody had. Of these it is the one that was used last: that one is warm, and
        the others may become idle.
        """
        if count and count >= self._most - 1:
            return None
        free = [process for process in self._processes if process.free]
        allowed = [process for process in free if not count or process.asker in (asker, None)]

        def suits(process: _Process) -> tuple[bool, bool, bool, bool, float]:
            is_own, is_nobodys = process.asker == asker, process.asker is None
            return is_own, is_nobodys, not process.slow, process.is_warm, process.since

        return max(allowed, key=suits, default=None)

    def _refuse(self) -> None:
        """Raise if no process is there, and none will be."""
        if self._closed:
            raise closed()
        is_broken = self._failures >= _FAILED_STARTS and not self._living
        if is_broken and self._start_at is not None and time.monotonic() < self._start_at:
            raise not_run(self._reason)

    def _ask(self, process: _Process, question: Question, stop: Stop) -> Message:
        """Return the answer of a process, which is free again once it has given one, whoever still waits for it."""
        try:
            answer = process.child.ask(question)
        except BaseException:
            self._release(process)
            raise
        try:
            awaited: list[Future[Any]] = [answer, stop.wanted]
            wait(awaited, return_when=FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            with self._changed:
                process.used, process.stopped_at = process.child.processor_seconds(), time.monotonic()
            process.child.stop()
            raise stopped()
        finally:
            answer.add_done_callback(lambda _: self._release(process))

    def _release(self, process: _Process) -> None:
        with self._changed:
            # A process that has ended with its query is not free again.
            process.busy = process.child.ending is not None
            process.since, process.stopped_at = time.monotonic(), None
            self._changed.notify_all()

    def _tend(self) -> None:
        if self._tending is None:
            tending = threading.Thread(target=self._tend_on, name="headrace-query-processes", daemon=True)
            tending.start()
            self._tending = tending

    def _tend_on(self) -> None:
        """Keep as many processes as are wanted."""
        while not self._closed:
            try:
                with self._changed:
                    self._look_after()
                    wants_one = self._wants_one()
                if wants_one:
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

    def _look_after(self) -> None:
        """Let go of processes that have ended, and end those that do not stop or are left over."""
        now = time.monotonic()
        for process in list(self._processes):
            if process.over:
                continue
            if process.child.ended.is_set():
                self._note_end(process)
            elif not process.child.ready.is_set():
                if now - process.since > _LONGEST_START_SECONDS:
                    process.child.kill("stopped")
            else:
                if not process.has_started:
                    process.has_started, process.since = True, now
                    self._failures, self._pause, self._start_at = 0, _PAUSE_SECONDS, None
                if process.busy or process.slow:
                    self._look_after_query(process, now)
        free = sorted((process for process in self._processes if process.free), key=lambda one: one.since)
        if len(free) > 1 and now - free[0].since > _IDLE_SECONDS:
            free[0].child.kill("idle")
            self._wanted -= 1

    @property
    def _living(self) -> int:
        return sum(not process.over for process in self._processes)

    def _note_end(self, process: _Process) -> None:
        process.over = True
        if not process.child.ready.is_set():
            self._note_failed_start(process.child.exit_code)
        elif not process.busy:
            process.asker = None
        if len(self._processes) > self._wanted:
            self._processes.remove(process)

    def _look_after_query(self, process: _Process, now: float) -> None:
        """Have a heavy query give way, and end a process that does not stop its query."""
        used = process.child.processor_seconds() - process.used
        is_heavy = process.busy and process.stopped_at is None and used > _HEAVY_PROCESSOR_SECONDS
        if is_heavy != process.slow:
            process.slow = not process.child.give_way(is_heavy) or is_heavy
        if process.slow and process.free:
            # Without the right to come back it would answer the next query as slowly.
            process.child.kill("idle")
        if process.stopped_at is not None:
            is_late = now - process.stopped_at > _STOP_SECONDS
            if is_late or used > _STOP_PROCESSOR_SECONDS:
                process.child.kill("stopped")

    def _wants_one(self) -> bool:
        """Return whether another process is to be started now."""
        now = time.monotonic()
        living = self._living
        if living == self._wanted < self._most:
            # Where a process is free, and the next may not have it, another one is wanted as well.
            can_be_served = not self._queue or self._next() is not None
            is_next_served = any(process.starting or (process.free and can_be_served) for process in self._processes)
            begun = [process.since for process in self._processes if process.busy and not process.over]
            is_long = any(now - since > _LONG_SECONDS for since in (*begun, *(one.since for one in self._queue)))
            self._wanted += is_long and not is_next_served
        # After a start that failed the next one is for those who wait.
        is_due = self._start_at is None or (bool(self._queue) and now >= self._start_at)
        return living < self._wanted and is_due

    def _start(self) -> None:
        """Start another process, while nobody who asks waits for that alone."""
        try:
            child = Child(self.allowance, self._program)
        except (OSError, RuntimeError) as error:
            # Out of processes, threads, memory or files: queries that wait hear of it now, and it is tried again later.
            _log.exception("a query process could not be started")
            with self._changed:
                self._note_failed_start(None, getattr(error, "strerror", None) or str(error))
        else:
            with self._changed:
                ended = next((process for process in self._processes if process.over), None)
                if ended is not None:
                    self._processes.remove(ended)
                self._processes.append(_Process(child, None if ended is None else ended.asker))

    def _note_failed_start(self, code: int | None, reason: str = "") -> None:
        """Have the next start wait, and count a start that failed by itself; a process that was killed did not."""
        self._start_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        if code is None:
            self._failures, self._reason = _FAILED_STARTS, reason
        elif code >= 0:
            self._failures, self._reason = self._failures + 1, f"it ended with {code} before it was ready"
