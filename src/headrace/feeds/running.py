"""The changefeeds of a home: which are at work, and what SHOW CHANGEFEEDS tells of them."""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.catalog.catalog import Feed
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.runners import Runners
from headrace.errors import FeedUnavailable, HeadraceError
from headrace.feeds.checkpoint import reader_name
from headrace.feeds.home_id import home_id
from headrace.feeds.progress import ProgressFiles
from headrace.feeds.runner import Runner, State, Status
from headrace.feeds.sinks import SINKS
from headrace.feeds.target import shown_location, target_of, told_without_secrets, warning_of
from headrace.ledger.readers import Readers

_log = logging.getLogger("headrace.feeds")


class Feeds:
    """Runs the feeds of one home, each in a thread of its own; a fence of 0 is that of one who only reads."""

    def __init__(self, loop: Loop, readers: Readers, fence: int) -> None:
        self._loop = loop
        self._readers = readers
        self._fence = fence
        self._runners: Runners[Feed, Runner] = Runners(self._wanted, self._made, _say_unable)
        self.reconcile = self._runners.reconcile
        self.restart = self._runners.restart
        self.wait_for_stopped = self._runners.wait_for_stopped
        self.close = self._runners.close
        # By feed and kind, what happened since this process began.
        self.totals: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def begin_to_own(self, fence: int) -> None:
        """Deliver from now on, as the owner of this number."""
        self._fence = fence

    def _wanted(self) -> dict[str, Feed]:
        if not self._fence:
            return {}
        return {one.name: one for one in self._loop.core.catalog.feeds.values() if one.state == "Running"}

    def _made(self, feed: Feed, before: Runner | None) -> Runner:
        return Runner(self._loop, self._readers, self._fence, feed, before, self.totals)

    def forget(self, feed: Feed) -> None:
        """Remove what is kept for a feed that was dropped, here and at its sink."""
        self.wait_for_stopped()
        self._readers.forget(reader_name(feed.id))
        ProgressFiles(self._loop.core.path, feed.id).forget()
        self.totals.pop(feed.name, None)
        sink = SINKS.get(feed.sink)
        if sink is None:
            return
        target = None
        try:
            own_id = home_id(self._loop.core.path)
            target = target_of(feed, sink, None, self._fence, own_id)
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

    def replay(self, name: str, row: Mapping[str, Any]) -> str | None:
        """Deliver a parked event of a feed; return the reason if it is refused again."""
        runner = self._runners.get(name)
        if runner is None or runner.status.state != "Running":
            raise FeedUnavailable(
                f"changefeed {name} is not running, so its parked events cannot be delivered",
                hint="RESUME CHANGEFEED first, in a process that stays, such as headrace serve",
            )
        return runner.replay(row)

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
        unable = self._runners.unable(feed.name, feed)
        progress = ProgressFiles(self._loop.core.path, feed.id).read()
        state: State = "Paused" if feed.state == "Paused" else "Error" if feed.state == "Error" else "Running"
        if unable is not None:
            state = "Error"
        error = unable or feed.error or None
        if progress is None:
            return Status(state, error=error)
        if progress.done and state == "Running":
            state = "Done"
        lag = progress.lag(self._loop.core.epoch)
        return Status(state, progress.mark, progress.delivered, progress.parked, lag, error)


def _say_unable(name: str, reason: str) -> None:
    _log.error("changefeed %s cannot begin: %s", name, reason, extra={"feed": name})


def shown(core: Core, feeds: Feeds) -> pa.Table:
    """What SHOW CHANGEFEEDS answers."""
    told = [_row(core, one, feeds.status_of(one)) for one in core.catalog.feeds.values()]
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
        ("retries", pa.int64()),
        ("id", pa.string()),
        ("warning", pa.string()),
    ]
)


def _row(core: Core, feed: Feed, status: Status) -> dict[str, Any]:
    relation = core.catalog.relations.get(feed.table)
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
        "retries": status.retries,
        "id": feed.id,
        "warning": warning_of(feed, relation) if relation is not None else None,
    }
