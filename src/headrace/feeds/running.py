"""The changefeeds of a home: which are at work, and what SHOW CHANGEFEEDS tells of them."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.catalog.catalog import Feed
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.errors import FeedError, HeadraceError
from headrace.feeds.kept import reader_name
from headrace.feeds.options import read_options
from headrace.feeds.progress import ProgressFiles
from headrace.feeds.runner import Runner, State, Status
from headrace.feeds.sinks import SINKS
from headrace.feeds.target import shown_location, target_of, told_without_secrets
from headrace.ledger.readers import Readers

_log = logging.getLogger("headrace.feeds")


class Feeds:
    """Runs the feeds of one home, each in a thread of its own; a fence of 0 is that of one who only reads."""

    def __init__(self, loop: Loop, readers: Readers, fence: int) -> None:
        self._loop = loop
        self._readers = readers
        self._fence = fence
        self._runners: dict[str, Runner] = {}
        self._stopping: dict[str, Runner] = {}
        # Those that cannot even begin, as they are defined, and why.
        self._unable: dict[str, tuple[Feed, str]] = {}
        self._lock = threading.Lock()
        self._closed = False
        # By feed and kind, what happened since this process began.
        self.totals: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def begin_to_own(self, fence: int) -> None:
        """Deliver from now on, as the owner of this number."""
        with self._lock:
            self._fence = fence

    def reconcile(self) -> None:
        """Run what the newest epoch has as running, as it is defined there, and nothing else."""
        with self._lock:
            if self._closed or not self._fence:
                return
            wanted = {one.name: one for one in self._loop.core.catalog.feeds.values() if one.state == "Running"}
            for name, runner in list(self._runners.items()):
                if wanted.get(name) != runner.feed:
                    # Not waited for: a definition may be under way, whose turn the runner waits for.
                    runner.stop(wait=False)
                    self._stopping[name] = self._runners.pop(name)
            self._unable.clear()
            for name, feed in wanted.items():
                if name not in self._runners:
                    self._begin(feed)

    def _begin(self, feed: Feed) -> None:
        """Run a feed; one that cannot begin says why, and is in nobody else's way."""
        try:
            sink = SINKS.get(feed.sink)
            if sink is None:
                raise FeedError(f"there is no sink {feed.sink.upper()} in this release")
            options = read_options(feed.options, sink)
        except HeadraceError as error:
            self._unable[feed.name] = feed, " ".join(part for part in (error.message, error.detail) if part)
            _log.error(
                "changefeed %s cannot begin: %s", feed.name, self._unable[feed.name][1], extra={"feed": feed.name}
            )
            return
        before = self._stopping.pop(feed.name, None)
        totals = self.totals[feed.name]
        runner = Runner(self._loop, feed, sink, options, self._readers, self._fence, before, totals)
        self._runners[feed.name] = runner
        runner.start()

    def wait_for_stopped(self) -> None:
        """Wait until those that were paused or dropped have ended; not while it is one's turn to make epochs."""
        with self._lock:
            stopping = dict(self._stopping)
        for runner in stopping.values():
            runner.stop()
        with self._lock:
            # One whose sink does not answer is still waited for by the next of its name.
            for name, runner in stopping.items():
                if runner.has_ended and self._stopping.get(name) is runner:
                    del self._stopping[name]

    def restart(self, name: str) -> None:
        """Begin anew with a feed, where it is; it may have stopped by itself."""
        with self._lock:
            runner = self._runners.pop(name, None)
            if runner is not None:
                runner.stop(wait=False)
                self._stopping[name] = runner
        self.reconcile()

    def close(self) -> None:
        """Finish the batches under way, and tell no further."""
        with self._lock:
            self._closed = True
            runners = [*self._runners.values(), *self._stopping.values()]
        for runner in runners:
            runner.stop(wait=False)
        for runner in runners:
            runner.stop()

    def forget(self, feed: Feed) -> None:
        """Remove what is kept for a feed that was dropped, here and at its sink."""
        self.wait_for_stopped()
        self._readers.forget(reader_name(feed.id))
        ProgressFiles(self._loop.core.path, feed.id).forget()
        self.totals.pop(feed.name, None)
        sink, catalog = SINKS.get(feed.sink), self._loop.core.catalog
        if sink is None:
            return
        target = None
        try:
            target = target_of(feed, sink, catalog.relations.get(feed.table), self._fence)
            sink.forget(target)
        except Exception as error:
            # It is dropped; what its sink still has of it is in nobody's way.
            told = told_without_secrets(str(error), feed, target)
            _log.warning(
                "the sink of changefeed %s was not told that it is dropped: %s",
                feed.name,
                told,
                extra={"feed": feed.name},
            )

    def replay(self, name: str, rows: Sequence[Mapping[str, Any]], seconds: float = 60.0) -> dict[int, str]:
        """Have a feed's sink take parked events after all; by sequence, why some are refused again."""
        with self._lock:
            runner = self._runners.get(name)
        if runner is None or runner.status.state != "Running":
            raise FeedError(
                f"changefeed {name} is not at work, so its parked events cannot be sent",
                hint="RESUME CHANGEFEED first, in a process that stays, such as headrace serve",
            )
        return runner.replay(rows, seconds)

    def status_of(self, feed: Feed) -> Status:
        """How a feed fares; one whose position cannot be read keeps nobody from the others'."""
        try:
            return self._status_of(feed)
        except HeadraceError as error:
            return Status("Error", error=error.in_a_line())

    def _status_of(self, feed: Feed) -> Status:
        runner = self._runners.get(feed.name)
        if runner is not None and runner.feed == feed:
            return runner.status
        known, error = self._unable.get(feed.name, (None, ""))
        progress = ProgressFiles(self._loop.core.path, feed.id).read()
        state: State = "Paused" if feed.state == "Paused" else "Error" if feed.state == "Error" else "Running"
        if known == feed:
            state = "Error"
        error = error or feed.error or None
        if progress is None:
            return Status(state, error=error)
        if progress.done and state == "Running":
            state = "Done"
        lag = progress.lag(self._loop.core.epoch)
        return Status(state, progress.mark, progress.delivered, progress.parked, lag, error)


def shown(core: Core, feeds: Feeds) -> pa.Table:
    """What SHOW CHANGEFEEDS answers."""
    told = [_row(one, feeds.status_of(one)) for one in core.catalog.feeds.values()]
    return pa.Table.from_pylist(told, schema=_SHOWN)


_SHOWN = pa.schema(
    [
        ("name", pa.string()),
        ("table", pa.string()),
        ("state", pa.string()),
        ("last_sequence", pa.int64()),
        ("events_delivered", pa.int64()),
        ("lag", pa.int64()),
        ("error", pa.string()),
        ("created", pa.timestamp("us", "UTC")),
        ("sink", pa.string()),
        ("location", pa.string()),
        ("options", pa.string()),
        ("epoch", pa.int64()),
        ("waiting", pa.int64()),
        ("parked", pa.int64()),
        ("id", pa.string()),
    ]
)


def _row(feed: Feed, status: Status) -> dict[str, Any]:
    return {
        "name": feed.name,
        "table": feed.table,
        "state": status.state,
        "last_sequence": status.mark.sequence,
        "events_delivered": status.delivered,
        "lag": status.lag,
        "error": status.error,
        "created": datetime.fromisoformat(feed.created),
        "sink": feed.sink,
        "location": shown_location(feed),
        "options": json.dumps(dict(feed.options), sort_keys=True),
        "epoch": status.mark.epoch,
        "waiting": status.waiting,
        "parked": status.parked,
        "id": feed.id,
    }
