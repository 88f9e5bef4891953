"""One query process as its owner sees it: started, asked, watched, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
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
# Epochs come first, then a process that starts or has a query that is soon answered: where they want the processor
# together, each of its threads gets a third of what an epoch's gets. One with a long query gives way to both: a
# thirtieth. Not less: it would never be answered on a machine that has other work.
NICENESS = 5
_MUCH_NICER = 10
# Of the owner's environment only what a program needs to run: a query process has no use for keys and passwords.
_ENVIRONMENT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "LD_LIBRARY_PATH")


# The code that a query process ends with, as its JVM does, when there is no more memory.
OUT_OF_MEMORY = 3
# For want of memory; since its query did not stop; since it had nothing to do; since it is not to be believed; with all
# others; or by itself, or by whomever.
Ending = Literal["memory", "stopped", "idle", "disbelieved", "closed", "unknown"]


class ProcessLost(Exception):
    """The query process ended before it answered, or before it was asked."""

    def __init__(self, ending: Ending | Literal["unasked"]) -> None:
        super().__init__(f"the query process ended: {ending}")
        self.ending = ending


@dataclass(frozen=True)
class Allowance:
    """What a query process may have."""

    memory: str
    bytes: int
    cores: int
    jars: Path
    resident: int = 0

    def begin(self) -> Message:
        """Return the first message to the process."""
        return Message({"memory": self.memory, "bytes": self.bytes, "cores": self.cores, "jars": str(self.jars)})


class Child:
    """A query process; `ready` once it can be asked, `ending` when it ends, `ended` when it has.

    It is asked one question at a time.
    """

    def __init__(self, allowance: Allowance, program: Sequence[str] = PROGRAM) -> None:
        self._allowance = allowance
        self._wire, theirs = socket.socketpair()
        self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        self._questions = QuestionWriter()
        self._answer: Future[Message] | None = None
        self._lock = threading.Lock()
        self._jvm: int | None = None
        self.ending: Ending | None = None
        # Less than zero if a signal ended it.
        self.exit_code = 0
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

    def ask(self, question: Question) -> Future[Message]:
        """Put a question; its answer, or `ProcessLost`, comes once the process works on nothing any more."""
        answer = self._answer = Future[Message]()
        if self.ending is not None:
            self._settle(ProcessLost("unasked"))
            return answer
        try:
            with self._questions.writing(question) as message:
                send(self._wire, message)
        except WireBroken:
            self._settle(ProcessLost("unasked"))
            self.kill("unknown")
        except BaseException:
            # It was not asked.
            self._answer = None
            raise
        return answer

    def stop(self) -> None:
        """Have the process stop working on its question; it may take its time, or never do it."""
        try:
            send(self._wire, Message({"stop": True}))
        except WireBroken:
            self.kill("unknown")

    def kill(self, ending: Ending) -> None:
        """Have the process and its JVM end now; the answer that is waited for is lost, for this reason."""
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
                self._settle(receive(self._wire, self._allowance.bytes + _ANSWER_ROOM))
        except WireBroken:
            pass
        finally:
            self.kill("unknown")
            # One that was ending by itself has said so before it could be killed.
            self.exit_code = self._process.wait()
            if self.exit_code == OUT_OF_MEMORY and self.ending == "unknown":
                self.ending = "memory"
            self._wire.close()
            self.ended.set()
            self._settle(ProcessLost(self.ending or "unknown"))

    def _settle(self, outcome: Message | ProcessLost) -> None:
        """Give the answer that is waited for its outcome, unless it has one."""
        with self._lock:
            answer, self._answer = self._answer, None
        if answer is None:
            return
        if isinstance(outcome, ProcessLost):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _watch(self) -> None:
        """Kill the process when it takes more of the machine's memory than it may."""
        while self._allowance.resident and not self.ended.wait(_WATCH_SECONDS):
            if sum(map(resident_bytes, self._pids())) > self._allowance.resident:
                self.kill("memory")
                return


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in own.items() if name in _ENVIRONMENT}
    # Where the owner found its modules, the process finds them too.
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
