"""Servers that another process runs: what they are, whether they answer, and their end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headrace.errors import SetupError
from headrace.local.connect import worker_answers
from headrace.local.folder import Claim, is_claimed, read_running
from headrace.local.kafka import broker_answers
from headrace.local.mariadb import mariadb_answers
from headrace.local.ports import listens
from headrace.local.postgres import postgres_answers
from headrace.spark.proc import start_time

_END_SECONDS = 180.0
_LOOK_SECONDS = 0.1
# Each is asked as it is when it is started.
_ANSWERS: Mapping[str, Callable[[str], bool]] = {
    "kafka": lambda bootstrap: listens(int(bootstrap.rpartition(":")[2])) and broker_answers(bootstrap),
    "connect": worker_answers,
    "postgres": postgres_answers,
    "mariadb": lambda dsn: mariadb_answers(int(str(urlsplit(dsn).port))),
}


@dataclass(frozen=True)
class RunningServer:
    """A server as its folder tells of it."""

    name: str
    address: str
    start_seconds: float
    log: str

    def answers(self) -> bool:
        """Whether it answers now."""
        return _ANSWERS[self.name](self.address)


@dataclass(frozen=True)
class Running:
    """What runs in a folder, and the process that has started it."""

    folder: Path
    pid: int
    started_at: str
    servers: tuple[RunningServer, ...]

    def address(self, name: str) -> str | None:
        """Where a server is reached; none if it was not started."""
        return next((server.address for server in self.servers if server.name == name), None)


def running_in(folder: Path) -> Running | None:
    """What runs in a folder; none if nothing does."""
    told = read_running(folder)
    if told is None:
        return None
    servers = tuple(RunningServer(name, **parts) for name, parts in told["servers"].items())
    return Running(folder, told["pid"], told["started_at"], servers)


def end_running(folder: Path) -> bool:
    """End the process that runs servers in a folder, which ends them in good order, and wait until it has ended.

    Return whether there was such a process.
    """
    told = read_running(folder)
    started = None if told is None else start_time(told["pid"])
    # Read again: had the process ended before its start was looked at, that would be another's with the same number.
    if told is None or read_running(folder) != told:
        return False
    pid = told["pid"]
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise SetupError(
            f"process {pid}, which runs the servers in {folder}, is another user's", hint="ask that user"
        ) from None
    until = time.monotonic() + _END_SECONDS
    while (claimed := is_claimed(folder)) or (started and start_time(pid) == started):
        if time.monotonic() > until:
            raise _unended(folder, pid, claimed=claimed)
        time.sleep(_LOOK_SECONDS)
    return True


def _unended(folder: Path, pid: int, *, claimed: bool) -> SetupError:
    asked = f"was asked to end {_END_SECONDS:.0f} seconds ago."
    if claimed:
        return SetupError(
            f"the servers in {folder} do not end",
            detail=f"Process {pid}, which runs them, {asked}",
            hint=f"kill -9 {pid} ends both at once",
        )
    return SetupError(
        f"process {pid}, which ran the servers in {folder}, does not end",
        detail=f"The servers have ended; the process {asked}",
        hint=f"kill -9 {pid} ends it at once",
    )


def remove_data(folder: Path) -> None:
    """Remove everything that servers have left in a folder; what is others' stays."""
    if not folder.exists():
        return
    claim = Claim(folder)
    try:
        for name in ("kafka", "connect", "postgres", "mariadb", "logs"):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / "kept.json").unlink(missing_ok=True)
    finally:
        claim.release()
    (folder / "lock").unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
