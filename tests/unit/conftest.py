"""What tests without Spark share."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.query_processes.child import Allowance
from tests.command_line import StandInHome
from tests.query_pool import PROGRAM, Pool
from tests.small_homes import make_home

_allowed = True


def _refuse_java(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or _allowed:
        return
    words = list(arguments[1])
    # A process that is guarded waits in a shell before it becomes what it is to be.
    program = str(words[words.index("headrace-begin") + 1] if "headrace-begin" in words else arguments[0])
    if _is_java(program):
        raise RuntimeError(f"a test that is not marked with java starts {program}")


def _is_java(program: str) -> bool:
    found = Path(shutil.which(program) or program)
    if found.name == "java":
        # Some tests make a script of that name.
        return found.is_file() and not found.read_bytes().startswith(b"#!")
    return found.name.startswith("spark-submit") and "pyspark" in found.parts


sys.addaudithook(_refuse_java)


@pytest.fixture(autouse=True)
def no_java(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test starts a JVM only where it says so, so that those without one stay fast."""
    global _allowed
    _allowed = request.node.get_closest_marker("java") is not None
    yield
    _allowed = True


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the run, so nothing waits for the disk; that syncs happen has a test of its own."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as in a program on a terminal: what is started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInHome:
    """The home that verbs find, which needs no Spark."""
    stand_in = StandInHome()

    def opened(home: str, **options: Any) -> StandInHome:
        stand_in.opened_with = options
        return stand_in

    monkeypatch.setattr(headrace, "open", opened)
    make_home(tmp_path, 0)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    return stand_in


@pytest.fixture
def pool_of() -> Iterator[Callable[..., Pool]]:
    """Makes query processes of the stand-in; none of them is left when a test is over."""
    made: list[Pool] = []

    def make(most: int = 2, resident: int = 0, program: tuple[str, ...] = PROGRAM) -> Pool:
        made.append(Pool(Allowance("64m", 1_000_000, 1, Path("/nowhere"), resident=resident), most, program))
        return made[-1]

    yield make
    for pool in made:
        pids = pool.pids()
        pool.close()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
