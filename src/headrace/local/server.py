"""One server as a process: started under a guard, ready when it answers, killed or stopped, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import SetupError
from headrace.spark.jvm import Account, Guard, end, has_ended

# A busy machine of two cores takes half a minute.
_START_SECONDS = 180.0
# What a server that was killed a moment ago still holds is free by then.
_RELEASE_SECONDS = 20.0
_END_SECONDS = 20.0
_LOOK_SECONDS = 0.05
_LONGEST_LOG = 10 * 1024 * 1024
_TOLD_LINES = 12


@dataclass(frozen=True)
class Program:
    """What a server is: how it is prepared, started, asked and told to end."""

    name: str
    address: str
    port: int
    command: Sequence[str]
    answers: Callable[[], bool]
    prepare: Callable[[], None] = lambda: None
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    account: Account | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    # What the guard sends if this process ends first.
    farewell: str = "KILL"
    # Words of its log by which it says that an earlier process has not let go of everything yet.
    held: tuple[str, ...] = ()


class Server:
    """A server of this process: it ends with it, however that is."""

    def __init__(self, program: Program, log: Path) -> None:
        self.program = program
        self.log = log
        self.seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._begun_at = 0.0
        self._log_begun = 0

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def address(self) -> str:
        """Where it is reached: host:port or a URL."""
        return self.program.address

    @property
    def pid(self) -> int | None:
        """The number of its process; none while there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def is_running(self) -> bool:
        """Whether its process is there, whether or not it answers yet."""
        return self.pid is not None

    def start(self) -> None:
        """Start it, on the same port and data as before, and wait until it answers."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it, and do not wait."""
        if self.is_running:
            return
        self._let_go()
        self.program.prepare()
        self._begun_at = time.monotonic()
        self._launch()

    def wait(self) -> None:
        """Wait until it answers."""
        while not self.is_ready():
            time.sleep(_LOOK_SECONDS)

    def is_ready(self) -> bool:
        """Whether it answers, having begun; one that ends instead, or takes too long, is an error that says why."""
        since = time.monotonic() - self._begun_at
        if not self.is_running:
            told = self._told()
            if since > _RELEASE_SECONDS or not any(words in told for words in self.program.held):
                raise self._failed("ended while it was started", told)
            self._let_go()
            self._launch()
            return False
        if self.program.answers():
            self.seconds = since
            return True
        if since > _START_SECONDS:
            raise self._failed(f"gave no answer within {_START_SECONDS:.0f} seconds", self._told())
        return False

    def kill(self) -> None:
        """End it at once, as kill -9 does: it has no chance to write anything more."""
        if self._process is not None:
            end(self._process)
        self._let_go()

    def discard(self) -> None:
        """End it at once, but so that nothing of it is left beside its data, such as shared memory."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.Signals[f"SIG{self.program.farewell}"])
            has_ended(self._process, _END_SECONDS)
        self.kill()

    def stop(self) -> None:
        """End it in good order; if that takes too long, at once."""
        if self._process is not None and self.is_running:
            self._process.send_signal(self.program.stop_signal)
            has_ended(self._process, _END_SECONDS)
        self.kill()

    def restart(self) -> None:
        """Kill it and start it again, on the same port and data."""
        self.kill()
        self.start()

    def _launch(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LONGEST_LOG:
            os.replace(self.log, self.log.with_suffix(".log.old"))
        self._guard = Guard(self.program.farewell)
        with open(self.log, "ab") as output:
            self._log_begun = output.tell()
            self._process = self._guard.start(
                self.program.command, self.program.environment, output=output, account=self.program.account
            )

    def _let_go(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._guard is not None:
            self._guard.close()
        self._process = self._guard = None

    def _told(self) -> str:
        """The last lines of what it said since it was launched."""
        with open(self.log, "rb") as said:
            said.seek(self._log_begun)
            lines = said.read(_LONGEST_LOG).decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-_TOLD_LINES:])

    def _failed(self, how: str, told: str) -> SetupError:
        return SetupError(
            f"{self.name} {how}",
            detail=f"The last it said:\n{told}" if told else "It said nothing.",
            hint=f"everything it said is in {self.log}",
        )
