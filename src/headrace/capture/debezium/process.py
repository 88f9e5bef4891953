"""The process that runs a connector of Debezium, as this process sees it: started, read, told what is durable, ended.

It writes into a pipe, and so it waits whenever more has come than is taken: never is more held here than a few batches.
It ends with this process, however that ends, and when its standard input is closed.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import struct
import subprocess
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from headrace.errors import SourceUnavailable
from headrace.spark.java import quick_start_command
from headrace.spark.jvm import Guard, end, has_ended
from headrace.storage.scratch import Scratch

_log = logging.getLogger("headrace.capture.debezium")
_SOURCE = files("headrace.capture.debezium").joinpath("engine.java").read_text()
_STOP_SECONDS = 5.0
_LAST_LINES = 20
_HELD_BATCHES = 4
_HEAD = struct.Struct(">cI")
# What it says is read here, line by line: what is worth a warning, as text.
_LOGGING = """
rootLogger.level = {level}
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %p %c{1}: %m%n
"""


@dataclass(frozen=True)
class Cause:
    """One of the exceptions that a connector ended with, the outermost first."""

    classes: tuple[str, ...]
    message: str
    state: str | None = None


class EngineFailed(Exception):
    """A connector ended by itself, and why."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        super().__init__("; ".join(one.message for one in causes))
        self.causes = tuple(causes)


class Engine:
    """A running connector."""

    def __init__(
        self, name: str, class_path: Sequence[Path], told: Mapping[str, Any], scratch: Scratch, memory: str = "256m"
    ) -> None:
        # For what it is started with; removed with it.
        self._scratch = scratch
        self._guard = Guard()
        self._name = name
        self._said: deque[str] = deque(maxlen=_LAST_LINES)
        self._batches: queue.Queue[bytes | Exception] = queue.Queue(_HELD_BATCHES)
        self._closed = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        try:
            self._process = self._guard.start(
                self._command(class_path, memory),
                dict(os.environ),
                output=subprocess.PIPE,
                errors=subprocess.PIPE,
            )
            self.tell(told)
        except BaseException:
            self.close()
            raise
        for work, pipe in ((self._listen, self._process.stdout), (self._hear, self._process.stderr)):
            thread = threading.Thread(target=work, args=(pipe,), name=f"headrace-debezium-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def pid(self) -> int | None:
        """The number of its process; none once that has ended."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send it a message; one that has ended tells why when it is read."""
        line = None if self._process is None else self._process.stdin
        assert line is not None
        content = json.dumps(message).encode()
        with suppress(OSError):
            line.write(struct.pack(">I", len(content)) + content)
            line.flush()

    def batch(self, seconds: float) -> bytes | None:
        """The next batch of records as it was sent, or None if none came within so many seconds."""
        try:
            found = self._batches.get(timeout=seconds) if seconds else self._batches.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            # Whoever asks once more is told once more.
            with suppress(queue.Full):
                self._batches.put_nowait(found)
            raise found
        return found

    def close(self) -> None:
        """End it: in good order if that is quick."""
        self._closed.set()
        if self._process is not None:
            with suppress(OSError):
                if self._process.stdin is not None:
                    self._process.stdin.close()
            # Nobody waits for a full queue any more.
            while not self._batches.empty():
                with suppress(queue.Empty):
                    self._batches.get_nowait()
            has_ended(self._process, _STOP_SECONDS)
            end(self._process)
            # Its pipes are at their end now.
            for thread in self._threads:
                thread.join()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
        self._guard.close()
        self._scratch.close()

    def _command(self, class_path: Sequence[Path], memory: str) -> list[str]:
        folder = self._scratch.path
        source, logging_settings = folder / "Engine.java", folder / "log4j2.properties"
        source.write_text(_SOURCE)
        logging_settings.write_text(_LOGGING.replace("{level}", "info" if _log.isEnabledFor(logging.INFO) else "warn"))
        program = "org.codehaus.janino.SimpleCompiler", str(source), "Engine"
        return quick_start_command(memory, logging_settings, class_path, *program)

    def _listen(self, pipe: IO[bytes]) -> None:
        """Take what it sends, a batch at a time, until it has ended."""
        try:
            while True:
                head = _read(pipe, _HEAD.size)
                kind, length = _HEAD.unpack(head)
                content = _read(pipe, length)
                if kind == b"E":
                    told = json.loads(content)
                    raise EngineFailed([Cause(tuple(one["classes"]), one["message"], one.get("state")) for one in told])
                self._put(content)
        except EngineFailed as failed:
            self._put(failed)
        except (EOFError, OSError, ValueError):
            code = None if self._process is None else self._process.wait()
            said = "\n".join(self._said)
            self._put(
                SourceUnavailable(
                    f"the process that reads source {self._name} has ended",
                    detail=f"It ended with {code}." + (f" The last it said:\n{said}" if said else ""),
                    hint="it is started again by itself",
                )
            )

    def _put(self, batch: bytes | Exception) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._batches.put(batch, timeout=0.2)
                return

    def _hear(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            text = line.decode("utf-8", "replace").rstrip()
            self._said.append(text)
            _log.info("%s: %s", self._name, text, extra={"source": self._name})


def _read(pipe: IO[bytes], length: int) -> bytes:
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content
