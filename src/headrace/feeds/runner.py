"""One feed at work, in a thread of its own: opened, told, tried again less and less often, stopped.

Nothing waits for it: it follows the log as any reader does, and holds no lock while it talks to its sink.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from headrace.catalog.catalog import Feed, feed_definition
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.errors import FeedError, HeadraceError, HomeBroken, HomeClosed, OwnerLost, RelationNameError
from headrace.feeds.batch import NOWHERE, Mark
from headrace.feeds.blocked import Blocked, pause_after
from headrace.feeds.filter import RowFilter
from headrace.feeds.kept import Kept, reader_name
from headrace.feeds.options import FeedOptions
from headrace.feeds.parked import batch_of, park
from headrace.feeds.progress import ProgressFiles
from headrace.feeds.sink import EventsRefused, Sink, SinkEnded, SinkUnavailable, Target
from headrace.feeds.target import target_of, told_without_secrets
from headrace.feeds.telling import Again, Stopped, Telling, Ways
from headrace.ledger.readers import Readers

State = Literal["Running", "Paused", "Error", "Done"]

_log = logging.getLogger("headrace.feeds")
# One that worked for so long begins with short pauses.
_SETTLED_SECONDS = 30.0
_LONGEST_PAUSE = 3_600.0
_JOIN_SECONDS = 10.0


@dataclass(frozen=True)
class Status:
    """How a feed fares; `lag` counts the epochs that it has not told yet."""

    state: State
    mark: Mark = NOWHERE
    delivered: int = 0
    parked: int = 0
    lag: int | None = None
    error: str | None = None
    waiting: int = 0


@dataclass(frozen=True, eq=False)
class _Again:
    """Parked events that are to be sent after all, and who waits for what becomes of them."""

    rows: Sequence[Mapping[str, Any]]
    told: Future[dict[int, str]] = field(default_factory=Future[dict[int, str]])


class Runner:
    """Runs one feed until it is stopped."""

    def __init__(
        self,
        loop: Loop,
        feed: Feed,
        sink: Sink,
        options: FeedOptions,
        readers: Readers,
        fence: int,
        before: Runner | None,
        totals: Counter[str],
    ) -> None:
        self.feed = feed
        self._loop = loop
        self._core = loop.core
        self._sink = sink
        self._options = options
        self._fence = fence
        self._before = before
        self._totals = totals
        self._files = files = ProgressFiles(self._core.path, feed.id, fence)
        self._kept = Kept(files, readers, options.retention_epochs, reader_name(feed.id), self._is_wanted)
        self._blocked = Blocked(options.max_retries)
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._asked: queue.SimpleQueue[_Again] = queue.SimpleQueue()
        self._target: Target | None = None
        self._filter: RowFilter | None = None
        self._state: State = "Running"
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"headrace-feed-{feed.name}", daemon=True)

    def start(self) -> None:
        """Begin to tell, where the feed is."""
        self._thread.start()

    def stop(self, wait: bool = True) -> None:
        """Tell no further; a batch under way is waited for, but not for long."""
        self._stopped.set()
        self._wake.set()
        if wait:
            self._join(_JOIN_SECONDS)

    @property
    def runs(self) -> Feed:
        """The feed that it tells."""
        return self.feed

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is under way any more."""
        return not self._thread.is_alive()

    def _join(self, seconds: float | None) -> None:
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join(seconds)

    @property
    def _fields(self) -> dict[str, object]:
        """What a line of the log carries: whose it is, what it tells of, and the epoch after which it is written."""
        return {"feed": self.feed.name, "relation": self.feed.table, "epoch": self._core.epoch}

    @property
    def status(self) -> Status:
        """How it fares now."""
        # Before it has begun, what those before it have noted.
        progress = self._kept.progress or self._files.read()
        if progress is None:
            # A sink that was never reached is behind by all that there is to tell, the rows of a scan included.
            lag = max(1, self._core.epoch - self.feed.begins_after + 1)
            return Status(self._state, lag=lag, error=self._error)
        lag, waiting = progress.lag(self._core.epoch), self._blocked.count
        return Status(
            self._state, progress.mark, progress.delivered, progress.parked, lag, self._error, waiting=waiting
        )

    def replay(self, rows: Sequence[Mapping[str, Any]], seconds: float) -> dict[int, str]:
        """Have the sink take parked events after all; by sequence, why those that it refuses again are refused."""
        asked = _Again(rows)
        self._asked.put(asked)
        self._wake.set()
        try:
            return asked.told.result(seconds)
        except TimeoutError:
            asked.told.cancel()
            raise FeedError(
                f"changefeed {self.feed.name} did not come to its parked events in time",
                detail=self._error or "",
                hint="SHOW CHANGEFEEDS tells how it fares; they are still parked",
            ) from None

    def _run(self) -> None:
        if self._before is not None:
            # However long its batch takes: two at once would write one file, and the position would go back.
            self._before.stop(wait=False)
            self._error = "it waits for the end of a batch that was under way before"
            self._before._join(None)
            self._before = self._error = None
        attempts = 0
        while not self._stopped.is_set():
            began_at = time.monotonic()
            try:
                self._tell()
                self._state, self._error = "Done", None
                return
            except Stopped:
                return
            except Again:
                continue
            except (OwnerLost, HomeBroken, HomeClosed) as error:
                self._state, self._error = "Error", self._told(error)
                _log.error("changefeed %s has stopped: %s", self.feed.name, self._error, extra=self._fields)
                return
            except Exception as error:
                if self._stopped.is_set():
                    return
                if not _may_pass(error):
                    self._halt(error)
                    return
                attempts = 1 if time.monotonic() - began_at > _SETTLED_SECONDS else attempts + 1
                self._totals["retries"] += 1
                self._error = self._told(error)
                after = error.retry_after if isinstance(error, SinkUnavailable) else None
                # Not all at once, where a server names the same instant to many.
                pause = pause_after(attempts) if after is None else min(after, _LONGEST_PAUSE) * random.uniform(1, 1.1)
                _log.warning(
                    "changefeed %s is tried again in %.1f seconds: %s",
                    self.feed.name,
                    pause,
                    self._error,
                    extra=self._fields,
                )
                self._stopped.wait(pause)

    def _tell(self) -> None:
        """One stretch of work with an open sink."""
        core, feed = self._core, self.feed
        core.refuse_closed()
        if feed.table not in core.catalog:
            raise RelationNameError(
                f"{feed.table} was dropped, and with it what changefeed {feed.name} tells of",
                hint="DROP CHANGEFEED, or create the relation again and RESUME CHANGEFEED",
            )
        relation = core.catalog.get(feed.table)
        self._target = target = target_of(feed, self._sink, relation, self._fence)
        if self._options.filter:
            self._filter = RowFilter(core, feed.name, relation, self._options.filter)
            self._loop.between_epochs(self._filter.compile)
        self._blocked.keys.clear()
        core.check_owner()
        delivery = self._sink.open(target)
        try:
            ways = Ways(core, self._stopped, self._wake, partial(park, self._loop, feed.id), self._serve, self._count)
            options = self._options
            Telling(ways, feed, options, target, relation, delivery, self._kept, self._blocked, self._filter).run()
        finally:
            try:
                self._kept.close()
            finally:
                delivery.close()
                if self._filter is not None:
                    self._filter.close()

    def _is_wanted(self) -> bool:
        """Whether this process owns the home, and the feed was not dropped."""
        try:
            self._core.check_owner()
        except HeadraceError:
            return False
        return any(one.id == self.feed.id for one in self._core.catalog.feeds.values())

    def _count(self, events: int) -> None:
        self._error = None
        self._totals["delivered"] += events
        self._totals["batches"] += 1

    def _serve(self, telling: Telling) -> None:
        """Send parked events after all that somebody asked for."""
        while not self._asked.empty():
            asked = self._asked.get()
            if not asked.told.set_running_or_notify_cancel():
                continue
            try:
                asked.told.set_result(self._sent_again(telling, asked.rows))
            except BaseException as error:
                asked.told.set_exception(error if isinstance(error, HeadraceError) else FeedError(self._told(error)))
                raise

    def _sent_again(self, telling: Telling, rows: Sequence[Mapping[str, Any]]) -> dict[int, str]:
        assert self._target is not None
        refused: dict[int, str] = {}
        for row in rows:
            try:
                batch = batch_of(row, self._target, self._options.envelope, self._options.include_old_values)
                telling.send_again(batch)
            except FeedError as error:
                refused[row["sequence"]] = f"{error.message}. {error.detail}"
            except EventsRefused as again:
                refused[row["sequence"]] = next(iter(again.refused.values()), "it was refused again")
        return refused

    def _halt(self, error: BaseException) -> None:
        """Stop until somebody has mended the cause; the home remembers why."""
        told = self._told(error)
        state: State = "Paused" if self._options.on_error == "pause" else "Error"
        self._state, self._error = state, told
        self._totals["failures"] += 1
        unforeseen = not isinstance(error, HeadraceError | SinkEnded | EventsRefused)
        _log.error("changefeed %s has stopped: %s", self.feed.name, told, extra=self._fields)
        if unforeseen:
            _log.error("%s", self._without_secrets("".join(traceback.format_exception(error))), extra=self._fields)
        core, feed = self._core, self.feed

        def work_out() -> Call:
            # It may have been altered or dropped meanwhile: then it is no matter of this runner.
            if self._stopped.is_set() or core.catalog.feeds.get(feed.name) != feed:
                return Call({}, quiet=True)
            return Call({}, head={"feeds": [feed_definition(replace(feed, state=state, error=told))]})

        try:
            self._loop.change_alone(work_out)
        except Exception as failed:
            _log.warning("that changefeed %s has stopped was not noted: %s", feed.name, failed, extra=self._fields)

    def _told(self, error: BaseException) -> str:
        if isinstance(error, HeadraceError):
            said = error.in_a_line()
        elif isinstance(error, SinkUnavailable | SinkEnded):
            said = str(error)
        elif isinstance(error, EventsRefused):
            # Any other event would wait, or be parked.
            said = f"the sink refuses that all is told anew: {next(iter(error.refused.values()), '')}"
        else:
            said = f"{type(error).__name__}: {error}"
        return self._without_secrets(said)

    def _without_secrets(self, text: str) -> str:
        return told_without_secrets(text, self.feed, self._target)


def _may_pass(error: Exception) -> bool:
    if isinstance(error, HeadraceError):
        return error.transient
    return isinstance(error, SinkUnavailable | OSError | TimeoutError)
