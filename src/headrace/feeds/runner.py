"""A running feed, in a thread of its own: its sink is opened, and opened again with growing pauses when that fails.

Nothing waits for it: it follows the log as any reader does, and holds no lock while it talks to its sink.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import Any, Literal

from headrace.catalog.catalog import Feed, feed_definition
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.errors import (
    FeedError,
    FeedUnavailable,
    HeadraceError,
    HomeBroken,
    HomeClosed,
    OwnerLost,
    RelationNameError,
)
from headrace.feeds.batch import NOWHERE, Mark
from headrace.feeds.blocked import Blocked, GivenUp
from headrace.feeds.checkpoint import FeedCheckpoint
from headrace.feeds.delivery_loop import Again, DeliveryLoop, RunnerParts
from headrace.feeds.filter import RowFilter
from headrace.feeds.home_id import home_id
from headrace.feeds.open_feed import OpenFeed
from headrace.feeds.options import read_options
from headrace.feeds.parked import park
from headrace.feeds.progress import ProgressFiles
from headrace.feeds.replay import ReplayRequests
from headrace.feeds.retry import Retry, Stopped
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable, Target
from headrace.feeds.sinks import SINKS
from headrace.feeds.target import secrets_hidden, target_of, told_without_secrets
from headrace.ledger.readers import Readers

State = Literal["Running", "Paused", "Error", "Done"]

_log = logging.getLogger("headrace.feeds")
_JOIN_SECONDS = 10.0
_REPLAY_SECONDS = 60.0


@dataclass(frozen=True)
class Status:
    """The state of a feed; `lag` counts the epochs that are not delivered whole."""

    state: State
    mark: Mark = NOWHERE
    delivered: int = 0
    parked: int = 0
    lag: int | None = None
    error: str | None = None
    waiting: int = 0
    # Failed attempts since the sink last did what it was asked.
    retries: int = 0


class Runner:
    """Runs one feed until it is stopped."""

    def __init__(
        self,
        loop: Loop,
        readers: Readers,
        fence: int,
        feed: Feed,
        before: Runner | None,
        totals: defaultdict[str, Counter[str]],
    ) -> None:
        sink = SINKS.get(feed.sink)
        if sink is None:
            raise FeedError(f"there is no sink {feed.sink.upper()} in this release")
        self.feed = feed
        self._loop = loop
        self._core = loop.core
        self._sink = sink
        self._options = options = read_options(feed.options, sink)
        self._fence = fence
        self._before = before
        self._totals = totals[feed.name]
        self._files = files = ProgressFiles(self._core.path, feed.id, fence)
        self._checkpoint = FeedCheckpoint(files, readers, options.retention_epochs, self._is_wanted)
        self._blocked = Blocked(options.max_retries)
        self._stopped = threading.Event()
        self._wake = threading.Event()
        # Calls of the open delivery, and openings of the sink.
        self._retry = Retry(self._stopped, self._note_failure, self._note_success)
        self._reopening = Retry(self._stopped, self._note_failure, self._note_success)
        self._replays = ReplayRequests()
        self._target: Target | None = None
        self._state: State = "Running"
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"headrace-feed-{feed.name}", daemon=True)

    def start(self) -> None:
        """Start the thread, which resumes at the position of the feed."""
        self._thread.start()

    def stop(self, wait: bool = True) -> None:
        """Stop the delivery; a batch under way is waited for, but not for long."""
        self._stopped.set()
        self._wake.set()
        if wait:
            self._join(_JOIN_SECONDS)

    @property
    def runs(self) -> Feed:
        """The feed that is delivered."""
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
        """The fields of a line of the log."""
        return {"feed": self.feed.name, "relation": self.feed.table, "epoch": self._core.epoch}

    @property
    def status(self) -> Status:
        """How it fares now."""
        # Before it has begun, what those before it have noted.
        progress = self._checkpoint.progress or self._files.read()
        if progress is None:
            # If the sink was never reached, nothing is delivered, the rows of a scan included.
            lag = max(1, self._core.epoch - self.feed.begins_after + 1)
            return Status(self._state, lag=lag, error=self._error, retries=self._retries)
        lag, waiting, retries = progress.lag(self._core.epoch), self._blocked.count, self._retries
        return Status(
            self._state, progress.mark, progress.delivered, progress.parked, lag, self._error, waiting, retries
        )

    @property
    def _retries(self) -> int:
        return (self._retry.attempts + self._reopening.attempts) if self._state == "Running" else 0

    def replay(self, row: Mapping[str, Any]) -> str | None:
        """Deliver a parked event; return the reason if the sink refuses it again."""
        if self._retries:
            raise self._unavailable()
        refusal = self._replays.put(row)
        self._wake.set()
        wait([refusal], _REPLAY_SECONDS)
        if refusal.cancel():
            raise self._unavailable()
        # Under way, a delivery ends by itself: an event that arrives is not parked any more.
        with secrets_hidden(self.feed, self._target):
            reason = refusal.result()
        return None if reason is None else self._without_secrets(reason)

    def _unavailable(self) -> FeedUnavailable:
        return FeedUnavailable(
            f"changefeed {self.feed.name} cannot deliver its parked events now",
            detail=self._error or "It is busy with other events.",
            hint="try again later; SHOW CHANGEFEEDS lists the state of the feed, and what was not delivered is still "
            "parked",
        )

    def _run(self) -> None:
        if self._before is not None:
            # However long its batch takes: two at once would write one file, and the position would go back.
            self._before.stop(wait=False)
            self._error = "it waits for the end of a batch that was under way before"
            self._before._join(None)
            self._before = self._error = None
        while not self._stopped.is_set():
            try:
                self._deliver()
                self._state, self._error = "Done", None
                return
            except Stopped:
                return
            except Again:
                continue
            except (OwnerLost, HomeBroken, HomeClosed) as error:
                self._state, self._error = "Error", self._reason(error)
                _log.error("changefeed %s has stopped: %s", self.feed.name, self._error, extra=self._fields)
                return
            except Exception as error:
                try:
                    self._reopening.pause(error)
                except Stopped:
                    return
                except Exception as permanent:
                    self._halt(permanent)
                    return

    def _note_failure(self, error: Exception, pause: float) -> None:
        self._totals["retries"] += 1
        self._error = self._reason(error)
        _log.warning(
            "changefeed %s is tried again in %.1f seconds: %s", self.feed.name, pause, self._error, extra=self._fields
        )

    def _note_success(self) -> None:
        self._error = None

    def _deliver(self) -> None:
        """Open the sink and deliver to it, until the feed has delivered all that it is to, is stopped or fails."""
        core, feed = self._core, self.feed
        core.refuse_closed()
        if feed.table not in core.catalog:
            raise RelationNameError(
                f"{feed.table} was dropped, and with it what changefeed {feed.name} delivers",
                hint="DROP CHANGEFEED, or create the relation again and RESUME CHANGEFEED",
            )
        relation = core.catalog.get(feed.table)
        self._target = target = target_of(feed, self._sink, relation, self._fence, home_id(core.path))
        self._blocked.clear()
        core.check_owner()
        # Before the sink is reached for the first time: what it is to have must not expire meanwhile.
        self._checkpoint.protect_from(feed.begins_after)
        delivery = self._sink.open(target)
        row_filter: RowFilter | None = None
        try:
            if self._options.filter:
                row_filter = RowFilter(core, feed.name, relation, self._options.filter)
                self._loop.between_epochs(row_filter.compile)
            parts = RunnerParts(
                core, self._wake, self._retry, self._replays, self._park, self._count, self._reopening.succeed
            )
            opened = OpenFeed(feed, self._options, target, relation, row_filter)
            DeliveryLoop(parts, opened, delivery, self._checkpoint, self._blocked).run()
        finally:
            try:
                self._checkpoint.close()
            finally:
                delivery.close()
                if row_filter is not None:
                    row_filter.close()

    def _is_wanted(self) -> bool:
        """Whether this process owns the home, and the feed was not dropped."""
        try:
            self._core.check_owner()
        except HeadraceError:
            return False
        return any(one.id == self.feed.id for one in self._core.catalog.feeds.values())

    def _park(self, events: Sequence[GivenUp]) -> None:
        """Store refused events as parked; a receiver's answer may repeat the path of its URL, which is a secret."""
        park(self._loop, self.feed.id, [replace(one, reason=self._without_secrets(one.reason)) for one in events])

    def _count(self, events: int) -> None:
        self._reopening.succeed()
        self._totals["delivered"] += events
        self._totals["batches"] += 1

    def _halt(self, error: BaseException) -> None:
        """Stop until somebody has mended the cause; the home remembers why."""
        reason = self._reason(error)
        state: State = "Paused" if self._options.on_error == "pause" else "Error"
        self._state, self._error = state, reason
        self._totals["failures"] += 1
        unforeseen = not isinstance(error, HeadraceError | SinkEnded | EventsRefused)
        _log.error("changefeed %s has stopped: %s", self.feed.name, reason, extra=self._fields)
        if unforeseen:
            _log.error("%s", self._without_secrets("".join(traceback.format_exception(error))), extra=self._fields)
        core, feed = self._core, self.feed

        def work_out() -> Call:
            # It may have been altered or dropped meanwhile: then it is no matter of this runner.
            if self._stopped.is_set() or core.catalog.feeds.get(feed.name) != feed:
                return Call({}, quiet=True)
            return Call({}, head={"feeds": [feed_definition(replace(feed, state=state, error=reason))]})

        try:
            self._loop.change_alone(work_out)
        except Exception as failed:
            _log.warning("that changefeed %s has stopped was not noted: %s", feed.name, failed, extra=self._fields)

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, HeadraceError):
            said = error.in_a_line()
        elif isinstance(error, SinkUnavailable | SinkEnded):
            said = str(error)
        elif isinstance(error, EventsRefused):
            # Any other event would wait, or be parked.
            said = f"the sink refuses the RESET: {next(iter(error.refused.values()), '')}"
        else:
            said = f"{type(error).__name__}: {error}"
        return self._without_secrets(said)

    def _without_secrets(self, text: str) -> str:
        return told_without_secrets(text, self.feed, self._target)
