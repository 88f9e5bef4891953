"""One query process as its owner sees it: started, asked, watched, and killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.query_processes.question import Question, QuestionWriter
from headrace.query_processes.wire import Message, WireBroken, receive, send
from headrace.spark.proc import processor_seconds, resident_bytes, set_niceness

PROGRAM = (sys.executable, "-m", "headrace.query_processes.worker")
_SEND_SECONDS = 10
_WATCH_SECONDS = 0.2
_ANSWER_ROOM = 1024 * 1024
# Epochs come first, then a process that starts or has queries that are soon answered: where they want the processor
# together, each of its threads gets a third of what an epoch's gets. One with a long query gives way to both: a
# thirtieth. Not less: it would never be answered on a machine that has other work.
NICENESS = 5
_MUCH_NICER = 10
# Of the owner's environment only what a program needs to run: a query process has no use for keys and passwords.
_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "LD_LIBRARY_PATH")


# The code that a query process ends with, as its JVM does, when there is no more memory.
OUT_OF_MEMORY = 3
# For want of memory; since a query in it did not stop; since it had nothing to do; since it is not to be believed; with
# all others; or by itself, or by whomever.
Ending = Literal["memory", "stopped", "idle", "disbelieved", "closed", "unknown"]


class ProcessLost(Exception):
    """The query process ended before it answered; `alone` if nothing else in it can have been the cause."""

    def __init__(self, ending: Ending, alone: bool) -> None:
        super().__init__(f"the query process ended: {ending}")
        self.ending = ending
        self.alone = alone


@dataclass(frozen=True)
class Allowance:
    """What a query process may have."""

    memory: str
    bytes: int
    cores: int
    jars: Path
    slots: int = 32
    resident: int = 0

    def begin(self) -> Message:
        """What it is told of that."""
        head = {"memory": self.memory, "bytes": self.bytes, "cores": self.cores, "slots": self.slots}
        return Message({**head, "jars": str(self.jars)})


class Child:
    """A query process; `ready` once it can be asked, `ending` when it ends, `ended` when that is done."""

    def __init__(self, allowance: Allowance, program: Sequence[str] = PROGRAM) -> None:
        self._allowance = allowance
        self._wire, theirs = socket.socketpair()
        self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        self._questions = QuestionWriter()
        self._speaking = threading.Lock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, Future[Message]] = {}
        self._lock = threading.Lock()
        self._jvm: int | None = None
        self._stopped_any = False
        self.ending: Ending | None = None
        self.ready = threading.Event()
        self.ended = threading.Event()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [*program, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(os.environ),
                    # A group of its own, so that its JVM is killed with it; but not a session of its own, in which
                    # Linux would count its niceness against itself alone.
                    process_group=0,
                )
        except BaseException:
            self._wire.close()
            raise
        try:
            threading.Thread(target=self._listen, name="headrace-query-answers", daemon=True).start()
            threading.Thread(target=self._watch, name="headrace-query-watch", daemon=True).start()
        except BaseException:
            # Nobody would hear of it, nor look after it.
            self.kill("unknown")
            self._process.wait()
            self._wire.close()
            raise

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, question: Question) -> tuple[int, Future[Message]]:
        """Put a question; its number, and what will be answered, or `ProcessLost`."""
        number, answer = next(self._numbers), Future[Message]()
        with self._lock:
            self._answers[number] = answer
        if self.ending is not None:
            self._lose(number, ProcessLost("idle", alone=False))
            return number, answer
        try:
            with self._speaking, self._questions.writing(number, question) as message:
                send(self._wire, message)
        except WireBroken:
            self.kill("unknown")
        except BaseException:
            # It was not asked.
            with self._lock:
                self._answers.pop(number, None)
            raise
        return number, answer

    def stop(self, number: int) -> None:
        """Have the process stop working on a question; it may take its time, or never do it."""
        self._stopped_any = True
        try:
            with self._speaking:
                send(self._wire, Message({"stop": number}))
        except WireBroken:
            self.kill("unknown")

    def kill(self, ending: Ending) -> None:
        """Have the process and its JVM end now; whoever waits for an answer hears that it is lost, and why."""
        with self._lock:
            if self.ending is None:
                self.ending = ending
                # Before anybody else can have waited for its end: then its number may be another's.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)

    def give_way(self, much: bool) -> bool:
        """Give way to processes that answer soon, or come back among them; whether the system let it."""
        niceness = os.nice(0) + NICENESS + (_MUCH_NICER if much else 0)
        return all(set_niceness(pid, niceness) for pid in self._pids())

    def processor_seconds(self) -> float:
        """How much of the processor it has had so far."""
        return sum(map(processor_seconds, self._pids()))

    def _pids(self) -> list[int]:
        return [self.pid] if self._jvm is None else [self.pid, self._jvm]

    def _listen(self) -> None:
        try:
            send(self._wire, self._allowance.begin())
            self._jvm = receive(self._wire, 0).head.get("jvm")
            self.ready.set()
            while True:
                message = receive(self._wire, self._allowance.bytes + _ANSWER_ROOM)
                with self._lock:
                    answer = self._answers.pop(message.head.get("answer", 0), None)
                if answer is not None:
                    _set_outcome(lambda answer=answer, message=message: answer.set_result(message))
        except WireBroken:
            pass
        finally:
            self.kill("unknown")
            # One that was ending by itself has said so before it could be killed.
            if self._process.wait() == OUT_OF_MEMORY and self.ending == "unknown":
                self.ending = "memory"
            self._wire.close()
            self.ended.set()
            waiting = list(self._answers)
            for number in waiting:
                alone = len(waiting) == 1 and not self._stopped_any
                self._lose(number, ProcessLost(self.ending or "unknown", alone))

    def _lose(self, number: int, lost: ProcessLost) -> None:
        with self._lock:
            answer = self._answers.pop(number, None)
        if answer is not None:
            _set_outcome(lambda: answer.set_exception(lost))

    def _watch(self) -> None:
        """Kill the process when it takes more of the machine's memory than it may."""
        while self._allowance.resident and not self.ended.wait(_WATCH_SECONDS):
            if sum(map(resident_bytes, self._pids())) > self._allowance.resident:
                self.kill("memory")
                return


def _set_outcome(set_outcome: Callable[[], None]) -> None:
    with contextlib.suppress(InvalidStateError):
        set_outcome()


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in own.items() if name in _ENVIRONMENT}
    # Where the owner found its modules, the process finds them too.
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
