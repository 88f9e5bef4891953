"""A home goes on when its Spark has ended: with a new one, over which every view's rule is made anew.

State lives in this process, not in Spark, so nothing is computed again. Only what points into the JVM is replaced: the
sessions, the analyzer's names, the plans and rules of views. All of it is made beside the old, while epochs that need
no view go on, and swapped in between two epochs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.engine.catalog import Catalog, View
from headrace.engine.define import make_view
from headrace.engine.files import Files
from headrace.engine.frames import Frames
from headrace.engine.queries import Queries
from headrace.errors import HeadraceError, SparkLost, WorkFailed
from headrace.plans.catalyst import Catalyst
from headrace.session import large_session, process_of, small_session, use_spark
from headrace.sql.one_row import CLOCK, CLOCK_SCHEMA
from headrace.sql.resolve import register

if TYPE_CHECKING:
    from headrace.home import Headrace

_log = logging.getLogger("headrace.spark")
# A call that comes while Spark is started waits for it, but for no longer than a client would.
_WAIT_SECONDS = 5.0
# A process closes its connections a moment before it can be seen to have ended.
_ENDING_SECONDS = 1.0


@dataclass(frozen=True)
class Doors:
    """What of a home points into a JVM, beside its views."""

    catalyst: Catalyst
    frames: Frames
    queries: Queries


def open_doors(spark: SparkSession, files: Files) -> Doors:
    """The sessions of a home in a Spark, with what is made of them."""
    catalyst = Catalyst(small_session(spark))
    frames = Frames(Catalyst(large_session(spark)), files)
    register(catalyst, CLOCK, CLOCK_SCHEMA)
    return Doors(catalyst, frames, Queries(frames))


class Renewal:
    """Knows whether the Spark of a home lives, and brings the home to the next one."""

    def __init__(self, home: Headrace, spark: SparkSession, leaves: Path, files: Files) -> None:
        self._home = home
        self._leaves = leaves
        self._files = files
        self._there = threading.Event()
        self._lost_at = 0.0
        self._begin(spark)
        self._there.set()

    def _begin(self, spark: SparkSession) -> None:
        """Be told when this Spark ends."""
        self._process: Popen[bytes] | None = process_of(spark)
        self._ours = use_spark(spark, self)

    @property
    def under_way(self) -> bool:
        """Whether the home waits for a new Spark."""
        return not self._there.is_set()

    @property
    def process(self) -> Popen[bytes] | None:
        """The process of the home's Spark, where it was started from this one."""
        return self._process

    @property
    def has_ended(self) -> bool:
        """Whether the process of the home's Spark is gone, and nobody starts another."""
        return self._process is not None and self._process.poll() is not None

    @contextmanager
    def working(self, needed: bool = True) -> Generator[None, None, None]:
        """Inside, the end of Spark is told as `SparkLost`; where it is needed, one being started is waited for."""
        if needed:
            self.wait()
        process = self._process
        try:
            yield
        except HeadraceError as error:
            if isinstance(error, WorkFailed) and not isinstance(error, SparkLost) and _has_ended(process):
                raise self._lost() from error
            raise
        except Exception as error:
            if _has_ended(process):
                raise self._lost() from error
            raise

    def lose_spark(self) -> None:
        """From now on calls wait for the next Spark."""
        self._lost_at = time.monotonic()
        self._there.clear()

    def take_spark(self, spark: SparkSession) -> None:
        """Bring the home to a new Spark; where that one ends too, the next is waited for."""
        if self._home.closed:
            return
        try:
            self._begin(spark)
            self._renew(spark)
        except Exception:
            _log.warning("the home %s cannot go on with the new Spark", self._home.path, exc_info=True)
            return
        self._there.set()

    def _renew(self, spark: SparkSession) -> None:
        home = self._home
        doors = open_doors(spark, self._files)
        made: dict[str, View] = {}
        self._make_views(doors, home.catalog, made)

        def swap() -> None:
            if not home.closed:
                # Once more, for what was defined meanwhile; most often that is nothing.
                self._make_views(doors, home.catalog, made)
                home.swap_spark(doors, list(made.values()))

        home.between_epochs(swap)

    def _make_views(self, doors: Doors, catalog: Catalog, made: dict[str, View]) -> None:
        """Make each view of a catalog over the new Spark, with the stores that it has; those made before are kept."""
        new = catalog
        for table in catalog.tables():
            register(doors.catalyst, table.name, table.schema)
        for view in catalog.views():
            known = made.get(view.name)
            if known is None or known.definition != view.definition:
                known = make_view(doors.catalyst, new, self._leaves, view.definition)
            made[view.name] = known = replace(known, store=view.store, hidden=view.hidden)
            new = new.having(known)
            register(doors.catalyst, view.name, view.schema)
        for name in [name for name in made if name not in catalog.relations]:
            del made[name]

    def wait(self) -> None:
        """Wait for the Spark that is being started, if one is, but not for long."""
        if self._there.is_set():
            return
        left = self._lost_at + _WAIT_SECONDS - time.monotonic()
        if not self._there.wait(max(left, 0.0)):
            raise SparkLost(
                "Spark has ended, and another is being started",
                detail="Nothing of this was done.",
                hint="send it again in a few seconds",
            )

    def _lost(self) -> SparkLost:
        return SparkLost(
            "Spark ended while it worked",
            detail="Nothing of this was committed.",
            hint="send it again; if it happens again, give Spark more memory (HEADRACE_SPARK_MEMORY)"
            if self._ours
            else "the Spark was given to headrace.open as spark=: start another, and open the home again with it",
        )


def _has_ended(process: Popen[bytes] | None) -> bool:
    until = time.monotonic() + _ENDING_SECONDS
    while process is not None:
        if process.poll() is not None:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(0.02)
    return False
