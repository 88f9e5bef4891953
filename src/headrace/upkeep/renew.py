"""A home goes on when its Spark has ended: with a new one, over which every view's rule is made anew.

State lives in this process, not in Spark, so nothing is computed again. Only what points into the JVM is replaced: the
sessions, the analyzer's names, the plans and rules of views. All of it is made beside the old and rehearsed, while
epochs that need no view go on, and swapped in between two epochs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from subprocess import Popen
from typing import Any

from pyspark.sql import SparkSession

from headrace.catalog.catalog import Catalog, View
from headrace.catalog.make import make_view
from headrace.epoch.loop import Loop
from headrace.errors import FeedError, HeadraceError, QueryError, SourceError, SparkLost, WorkFailed
from headrace.plans.failures import FAILURES, is_of_connection
from headrace.reading.files import Files
from headrace.reading.sessions import Sessions, open_sessions
from headrace.spark.jvm import has_ended
from headrace.spark.session import jvm_of, process_of, use_spark
from headrace.sql.resolve import register
from headrace.upkeep.rehearse import rehearse_epoch, rehearse_query

# What Spark's own errors become; those of one that is being stopped look as if the query were to blame.
_MADE_OF_SPARKS = (FeedError, QueryError, SourceError, WorkFailed)
_log = logging.getLogger("headrace.spark")
# A call that comes while Spark is started waits for it, but for no longer than a client would.
_WAIT_SECONDS = 5.0
# A process closes its connections a moment before it can be seen to have ended.
_ENDING_SECONDS = 1.0
# Of very many views the rest is planned when it is first needed.
_REHEARSAL_SECONDS = 30.0


class Renewal:
    """Knows whether the Spark of a home lives, and brings the home to the next one."""

    def __init__(self, loop: Loop, spark: SparkSession, files: Files) -> None:
        self._loop = loop
        self._core = loop.core
        self._files = files
        self._there = threading.Event()
        self._lost_at = 0.0
        # Why the home does not go on yet, if it was tried; it is tried again.
        self.failure: str | None = None
        self._begin(spark)
        self._there.set()

    def _begin(self, spark: SparkSession) -> None:
        """Be told when this Spark ends."""
        self._spark = spark
        self._stopped = False
        self._process: Popen[bytes] | None = process_of(spark)
        self._jvm = jvm_of(spark)
        self._ours = use_spark(spark, self)

    @property
    def under_way(self) -> bool:
        """Whether the home waits for a new Spark, or will in a moment."""
        return not self._there.is_set() or (self._ours and self._is_gone())

    @property
    def process(self) -> Popen[bytes] | None:
        """The process of the home's Spark, where it was started from this one."""
        return self._process

    @property
    def has_ended(self) -> bool:
        """Whether the home's Spark is stopped, or its process is gone and nobody starts another."""
        context: Any = self._spark.sparkContext
        return (not self._ours and self._is_gone()) or self._stopped or context._jsc is None

    def note_stopped(self) -> None:
        """Spark has stopped by itself, as the driver of a cluster does that is put off it; its process lives on."""
        self._stopped = True
        jvm = jvm_of(self._spark)
        if jvm is not None:
            # Who watches it starts another.
            jvm.process.kill()

    def _is_gone(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @contextmanager
    def working(self, needed: bool = True, busy: bool = True) -> Generator[None, None, None]:
        """Inside, the end of Spark is told as `SparkLost`; where it is needed, one being started is waited for.

        Who is not busy waits, for a turn or for others, and has no part in what Spark does meanwhile.
        """
        if needed:
            self.wait()
        spark, process, jvm = self._spark, self._process, self._jvm
        # One that had ended before was ended by others.
        lived = process is not None and process.poll() is None
        # Left only when it is known whether Spark has ended: who comes meanwhile was not alone.
        with jvm.occupants.enter() if busy and jvm is not None else nullcontext(_never) as was_alone:
            try:
                yield
            except Exception as error:
                ours = isinstance(error, HeadraceError)
                told = isinstance(error, SparkLost) or (ours and not isinstance(error, WorkFailed))
                # Whatever else fails while Spark lives is no reason to hold anybody up.
                within = _ENDING_SECONDS if is_of_connection(error) else 0.0
                ended = not told and process is not None and has_ended(process, within)
                if ended or (_may_be_of_stop(error) and _is_stopped(spark)):
                    lost = self._lost()
                    lost.of_memory = jvm is not None and jvm.out_of_memory
                    lost.alone = lived and was_alone()
                    raise lost from error
                raise

    def lose_spark(self) -> None:
        """From now on calls wait for the next Spark."""
        self._lost_at = time.monotonic()
        self._there.clear()

    def take_spark(self, spark: SparkSession) -> None:
        """Bring the home to a new Spark; if that one ends too, the next is waited for."""
        if self._core.closed:
            return
        self._begin(spark)
        self._renew(spark)
        self.failure = None
        # Otherwise it was lost again, and must not count as there.
        if not self._is_gone():
            self._there.set()

    def rehearse(self) -> None:
        """Have the next epoch find what it needs planned and compiled; meanwhile calls wait, as they would for that."""
        with self.working(busy=False):
            self._loop.between_epochs(lambda: self._rehearse_epoch([]))

    def note_failure(self, error: Exception) -> None:
        """Remember why the home still waits."""
        self.failure = str(error) or type(error).__name__

    def _renew(self, spark: SparkSession) -> None:
        core = self._core
        sessions = open_sessions(spark, self._files)
        made: dict[str, View] = {}

        def swap() -> None:
            if not core.closed:
                # Once more, for what was defined meanwhile; most often that is nothing.
                self._make_views(sessions, core.catalog, made)
                before = core.catalog.views()
                core.swap_spark(sessions, list(made.values()))
                _clear(before)

        try:
            self._make_views(sessions, core.catalog, made)
            self._rehearse(sessions, list(made.values()))
            self._loop.between_epochs(swap)
        except BaseException:
            _clear(made.values())
            raise

    def _rehearse(self, sessions: Sessions, views: list[View]) -> None:
        """Plan and compile what the first calls will need: they must not wait for it."""
        self._rehearse_epoch(views)
        try:
            rehearse_query(sessions.queries, self._core.relations())
        except (HeadraceError, *FAILURES) as error:
            _log.info("the first query could not be rehearsed: %s", error)

    def _rehearse_epoch(self, views: list[View]) -> None:
        core = self._core
        catalog = core.catalog.having(*views)
        try:
            work = core.begin(core.tick(), catalog)
            rehearse_epoch(work, [table.name for table in catalog.tables()], catalog.views(), _REHEARSAL_SECONDS)
        except (HeadraceError, *FAILURES) as error:
            _log.info("the first epoch could not be rehearsed: %s", error)

    def _make_views(self, sessions: Sessions, catalog: Catalog, made: dict[str, View]) -> None:
        """Make each view of a catalog over the new Spark, with the stores that it has; those made before are kept."""
        new = catalog
        for table in catalog.tables():
            register(sessions.catalyst, table.name, table.schema)
        for view in catalog.views():
            known = made.get(view.name)
            if known is None or known.definition != view.definition:
                _clear([known] if known is not None else [])
                known = make_view(sessions.catalyst, new, self._core.leaves, view.definition)
            made[view.name] = known = replace(known, store=view.store, hidden=view.hidden)
            new = new.having(known)
            register(sessions.catalyst, view.name, view.schema)
        for name in [name for name in made if name not in catalog.relations]:
            _clear([made.pop(name)])

    def wait(self) -> None:
        """Wait for the Spark that is being started, if one is, but not for long."""
        if self._there.is_set():
            if self.has_ended:
                raise self._lost()
            return
        left = self._lost_at + _WAIT_SECONDS - time.monotonic()
        if not self._there.wait(max(left, 0.0)):
            raise SparkLost(
                "Spark has ended, and another is being started",
                detail="Nothing of this was done."
                + ("" if self.failure is None else f" The last attempt failed: {self.failure}"),
                hint="send it again in a few seconds",
            )

    def _lost(self) -> SparkLost:
        if self._ours:
            return SparkLost(
                "Spark ended while it worked",
                detail="Nothing of this was committed.",
                hint="send it again; if it happens again, give Spark more memory (HEADRACE_SPARK_MEMORY)",
            )
        lost = SparkLost(
            "the Spark that was given to headrace.open has ended",
            detail="Nothing of this was committed. Who gave it has to start another: only a Spark that Headrace starts "
            "is replaced by itself.",
            hint="close the home and open it again, with another spark= or without",
        )
        lost.transient = False
        return lost


def _may_be_of_stop(error: Exception) -> bool:
    """Whether an error may come of Spark's being stopped: what then fails in PySpark and in Java is of any kind."""
    if isinstance(error, SparkLost):
        return False
    return not isinstance(error, HeadraceError) or isinstance(error, _MADE_OF_SPARKS)


def _is_stopped(spark: SparkSession) -> bool:
    """Whether somebody has stopped a Spark, or is about to; its process may live on."""
    context: Any = spark.sparkContext
    java = context._jsc
    # Java knows it as soon as that begins, Python when it is done.
    with suppress(*FAILURES):
        return java is None or java.sc().isStopped()
    return False


def _never() -> bool:
    return False


def _clear(views: Iterable[View]) -> None:
    """Remove the files of views that are followed by others from now on."""
    for view in views:
        view.context.clear()
