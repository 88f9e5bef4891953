"""Query processes to try, with a process of our own in place of the one that starts Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pyspark.sql.types import LongType, StructField, StructType

import headrace
from headrace.query_processes.pool import QueryProcesses, Stop
from headrace.query_processes.question import Question
from headrace.reading.frames import Content

# Without the face of the package, which brings all of Headrace: tests start many of these, and each would load it.
_RUN = """
import runpy, sys, types
package = sys.modules["headrace"] = types.ModuleType("headrace")
package.__path__ = [sys.argv.pop(1)]
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
PROGRAM = (
    sys.executable,
    "-c",
    _RUN,
    str(Path(headrace.__file__).parent),
    str(Path(__file__).with_name("unit") / "query_child.py"),
)
_NUMBERS = count(1)
ONE = StructType([StructField("a", LongType())])


class Pool(QueryProcesses):
    """Query processes, asked by a line of text; each time by another asker, unless the stop names one."""

    def ask(self, text: str, stop: Stop | None = None, **relations: Content) -> list[str]:
        given = {name: (content, ONE) for name, content in relations.items()}
        stop = stop or Stop(f"asker {next(_NUMBERS)}")
        return self.rows(Question("rows", text, given), stop).column(0).to_pylist()


@contextmanager
def asking(pool: Pool) -> Iterator[ThreadPoolExecutor]:
    """Threads to ask in, which no test that fails waits for: whoever waits then is told that all is over."""
    with ThreadPoolExecutor() as threads:
        try:
            yield threads
        except BaseException:
            pool.close()
            raise


def running(pool: Pool) -> int:
    """Return how many processes are busy."""
    return sum(process.busy for process in pool._processes)


def waiting(pool: Pool) -> int:
    """Return how many queries wait for a process."""
    return len(pool._queue)
