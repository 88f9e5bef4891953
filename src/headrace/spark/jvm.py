"""The JVM that runs Spark: it never outlives this process, and one that no longer answers is ended.

Two things watch it. A guard, which is a process of its own, kills it when this process ends, however that is: it reads
from a pipe that only this process holds open, and is there before the JVM begins. A thread asks the JVM how it fares on
a connection of its own; while there is no answer, it looks at the process. Whoever else waits for the JVM then finds
the connection closed, and need not watch.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO
from weakref import WeakSet

from headrace.spark.occupants import Occupants
from headrace.spark.proc import is_stopped, processor_seconds
from headrace.spark.pulse import Pulse

_log = logging.getLogger("headrace.spark")

# How a JVM ends that was told to do so when its memory is used up.
OUT_OF_MEMORY = 3
_PING_SECONDS = 0.25
_LOOK_SECONDS = 0.25
# However little of the processor it got: a JVM that is silent for so many times as long as it may be is stuck.
_STARVED = 6.0
# What the heap of a JVM with the default settings takes to be looked through twice on a slow machine.
_HEAP_BYTES = 4 * 2**30
# The part of its patience for which a JVM may do little else than collect garbage, if it still answers.
_SUFFOCATING = 0.6

# The guard hears the number of the process that it is to guard, then nothing more until its keeper has gone. It knows
# that process by the time of its start too, so that it never kills another that got the same number. One that ends in
# good order, with this process or at a signal that the guard is given for it, has a moment to do so.
_GUARD = """
begun() {
  if [ -r "/proc/$1/stat" ]; then read -r line < "/proc/$1/stat" && set -- ${line##*) } && echo "${20}"
  else ps -o lstart= -p "$1"; fi
} 2>/dev/null
read -r guarded || exit 0
at=$(begun "$guarded")
[ -n "$at" ] || exit 0
read -r _
[ -z "$1" ] || [ "$(begun "$guarded")" != "$at" ] || kill -s "$1" "$guarded"
tries=0
while [ "$tries" -lt 10 ] && [ "$(begun "$guarded")" = "$at" ]; do sleep 0.2; tries=$((tries + 1)); done
[ "$(begun "$guarded")" != "$at" ] || kill -9 "$guarded"
"""

# What is to be guarded waits until it is, and ends if nobody is left to tell it so. No code of Python's may do this
# between a fork and the command (preexec_fn): the fork lets go of what belongs to other threads, and with that shuts
# down the very connections by which they are talking to Spark. Ctrl-C is for this process, which may want to go on.
_BEGIN = 'trap "" INT; read -r _ || exit 1; exec "$@"'


@dataclass(frozen=True)
class Gateway:
    """Where a JVM listens for commands, the secret that it wants to hear first, and who in it tells how it fares."""

    address: str
    port: int
    token: str
    pulse: str = ""


def patience(silence: float, memory: str) -> float:
    """Seconds of the processor that a JVM of so much memory may use without an answer: it may be collecting garbage."""
    return silence * max(1.0, heap_bytes(memory) / _HEAP_BYTES)


def heap_bytes(notation: str) -> int:
    """The bytes that the JVM's notation of a heap stands for, such as 512m."""
    return int(notation[:-1]) * 1024 ** (1 + "kmgt".index(notation[-1].lower()))


@dataclass(frozen=True)
class Account:
    """Whom a process runs as."""

    user: int
    group: int


class Guard:
    """A process that kills another, which it saw begin, once this one has ended or has let go of it.

    Without a `farewell`, the name of a signal, it only waits for a moment before it does so.
    """

    def __init__(self, farewell: str = "") -> None:
        # Signals of a terminal are for this process: the guard must outlive it.
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "headrace-guard", farewell],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        _guards.add(self)

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        output: IO[bytes] | int | None = None,
        errors: int = subprocess.STDOUT,
        account: Account | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the process that is guarded: it becomes the command once the guard has heard its number.

        With `output`, that is where it says everything, or all but `errors`, and it has a session of its own, which no
        signal of a terminal reaches. With `account`, it runs as that user.
        """
        assert self._process.stdin is not None
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        # Until it ignores Ctrl-C, that is kept from it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _BEGIN, "headrace-begin", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=None if output is None else errors,
                env=environment,
                start_new_session=output is not None,
                user=None if account is None else account.user,
                group=None if account is None else account.group,
                extra_groups=None if account is None else (),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            assert process.stdin is not None
            self._process.stdin.write(b"%d\n" % process.pid)
            self._process.stdin.flush()
            process.stdin.write(b"\n")
            process.stdin.flush()
        except BaseException:
            end(process)
            raise
        return process

    def let_go(self) -> None:
        """Let the guard end soon; what it guards is killed if it is still there."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def close(self) -> None:
        """Let go, and wait until the guard has ended."""
        self.let_go()
        self._process.wait()


_guards: WeakSet[Guard] = WeakSet()


def _let_go() -> None:
    for guard in list(_guards):
        guard.let_go()


# A child that is forked off would hold the pipe open for as long as it lives.
os.register_at_fork(after_in_child=_let_go)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process now, and let go of it."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()


def has_ended(process: subprocess.Popen[bytes], within: float = 0.0) -> bool:
    """Whether a process is gone, or will be within so many seconds."""
    until = time.monotonic() + within
    while process.poll() is None:
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)
    return True


class Silent(Exception):
    """A JVM that will give no answer, and why."""


class Jvm:
    """One JVM that this process has started."""

    def __init__(
        self, process: subprocess.Popen[bytes], guard: Guard, gateway: Gateway, silence: float, memory: str
    ) -> None:
        self.process = process
        self._guard = guard
        self._gateway = gateway
        self._silence = silence
        self._patience = patience(silence, memory)
        self._suffocating = _SUFFOCATING * self._patience
        self.why = ""
        # Whether it had no memory left to work with, and was ended for that.
        self.suffocated = False
        self.occupants = Occupants()

    @property
    def out_of_memory(self) -> bool:
        """Whether it has ended for want of memory, by itself or because nothing else was left to do."""
        return self.suffocated or self.process.returncode == OUT_OF_MEMORY

    def watch(self, ended: Callable[[], None]) -> None:
        """Watch from now on; `ended` is called once, by the watching thread, when the JVM has gone."""
        thread = threading.Thread(target=self._watch, args=(ended,), name="headrace-spark-watch", daemon=True)
        thread.start()

    def _watch(self, ended: Callable[[], None]) -> None:
        try:
            self.why = self._silent()
        except Silent as silent:
            self.why = str(silent)
        except Exception as error:
            self.why = f"it cannot be watched: {error!r}"
        _log.warning("Spark has ended: %s", self.why)
        end(self.process)
        self._guard.close()
        ended()

    def _silent(self) -> str:
        """Ask again and again; why it is of no use any more, as soon as that is known."""
        with socket.create_connection((self._gateway.address, self._gateway.port), self._silence) as connection:
            connection.settimeout(_LOOK_SECONDS)
            self._ask(connection, f"A\n{self._gateway.token}\n")
            pulse = Pulse(self._suffocating)
            while True:
                answer = self._ask(connection, f"c\n{self._gateway.pulse}\ngenerate\nn\ne\n")
                if pulse.suffocates(answer, time.monotonic()):
                    self.suffocated = True
                    return f"it did nothing but collect garbage for {self._suffocating:.1f} seconds, in vain"
                if has_ended(self.process, _PING_SECONDS):
                    return f"its process ended with {self.process.returncode}"

    def _ask(self, connection: socket.socket, command: str) -> bytes:
        """Send a command and wait for the line that answers it."""
        asked_at, used = time.monotonic(), processor_seconds(self.process.pid)
        with suppress(OSError):
            connection.sendall(command.encode())
        answer = b""
        while True:
            try:
                part = connection.recv(4096)
                answer += part
            except TimeoutError:
                part = None
            except OSError:
                part = b""
            if has_ended(self.process, 0.5 if part == b"" else 0.0):
                raise Silent(f"its process ended with {self.process.returncode}")
            if part == b"":
                raise Silent("it closed its connection")
            if answer.endswith(b"\n"):
                return answer
            silent = time.monotonic() - asked_at
            if silent < self._silence:
                continue
            if is_stopped(self.process.pid):
                raise Silent(f"its process was stopped, and was silent for {silent:.1f} seconds")
            busy = processor_seconds(self.process.pid) - used
            # One that gets no processor is not stuck; one that gets it and does not answer collects garbage for ever.
            if busy >= self._patience:
                self.suffocated = True
                raise Silent(f"it was silent for {silent:.1f} seconds, {busy:.1f} of the processor")
            if silent >= _STARVED * self._silence:
                raise Silent(f"it was silent for {silent:.1f} seconds")
