"""Running a planned query of one partition at once, in the calling thread, without a Spark job.

A job takes four times as long as its work when that work is a thousand rows: it is announced, scheduled, serialized,
and its result is sent through a socket. The driver of any Spark has all that an executor runs a plan with, so the same
operators can be asked for their rows directly. What they need of a task is made for them: a context with the session's
settings, and memory of their own.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import Java

_SOURCE = files("headrace.plans").joinpath("direct.java").read_text()


class DirectRun:
    """One executed plan, asked for its rows as often as wanted; by one thread at a time."""

    def __init__(self, catalyst: Catalyst, executed: Java, rows: Java, path: Path) -> None:
        self._run = catalyst.compiled("Direct", _SOURCE)
        self._path = str(path)
        self._given = catalyst.array(
            [rows, executed.schema(), catalyst.task_settings, catalyst.no_resources, self._path]
        )
        self._none: pa.Table = pa.ipc.open_stream(catalyst.empty_batch(executed.schema())).read_all()

    def rows(self) -> pa.Table:
        """What the plan gives now."""
        if int(self._run.run(self._given)) == 0:
            return self._none
        with pa.OSFile(self._path) as file:
            return pa.ipc.open_stream(file.read_buffer()).read_all()


def directly(catalyst: Catalyst, executed: Java, path: Path) -> DirectRun | None:
    """The plan run without jobs, or None where it has not just one partition."""
    rows: Any = executed.execute()
    return DirectRun(catalyst, executed, rows, path) if int(rows.getNumPartitions()) == 1 else None
