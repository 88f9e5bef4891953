"""How a source keeps up: how far it is behind in time, how much it takes, and when to warn of it.

Behind is what was committed in the source and is not yet in every view: what waits there, and what is on its way here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.capture.connector import Arrival, Lag
from headrace.capture.messages import RowChange
from headrace.sources.intake import Progress

_log = logging.getLogger("headrace.sources")
# How long throughput looks back.
_MINUTE = 60.0
OUTCOMES = ("applied", "stale", "dead")


class Pace:
    """What one source took and when; written by its thread, read by all."""

    def __init__(
        self,
        source: str,
        warn_after: float | None,
        totals: Counter[str],
        heard_at: dict[str, datetime] | None = None,
    ) -> None:
        self._source = source
        self._warn_after = warn_after
        # By outcome, all changes since this process began, over whoever reads the source one after the other.
        self._totals = totals
        self._lock = threading.Lock()
        self._taken: deque[tuple[float, int]] = deque()
        self._began_at = time.monotonic()
        self._lag = Lag()
        self._behind_since: datetime | None = None
        self._on_its_way_since: datetime | None = None
        self._reached_at: datetime | None = None
        self._warned = False
        # By source, when it was last looked at without a failure, over whoever reads it one after the other.
        self._heard_at: dict[str, datetime] = {} if heard_at is None else heard_at
        self._made_at = datetime.now(UTC)
        self._failing_since: datetime | None = None

    def failed(self) -> None:
        """The source could not be read, and is tried again."""
        if self._failing_since is None:
            self._failing_since = datetime.now(UTC)
        self._warn()

    def succeeded(self) -> None:
        """The source was asked and answered, if only that there is nothing; what it gave is in every view."""
        self._failing_since = None
        self._heard_at[self._source] = datetime.now(UTC)

    @property
    def failing_since(self) -> datetime | None:
        """Since when the source cannot be read; none while it can."""
        return self._failing_since

    def looked(self, lag: Lag) -> None:
        """Take note of how far the source is ahead."""
        self._lag = lag
        if not lag.records:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = self._reached_at or datetime.now(UTC)
        self._warn()

    def began(self, arrivals: Sequence[Arrival]) -> None:
        """Records are on their way into an epoch."""
        self._on_its_way_since = min(map(_committed_at, arrivals), default=None)

    def committed(
        self, arrivals: Sequence[Arrival], before: Progress, after: Progress, count: int | None = None
    ) -> None:
        """They are in every view, or so many of which these are the last."""
        with self._lock:
            self._taken.append((time.monotonic(), len(arrivals) if count is None else count))
            self._forget()
        for name in OUTCOMES:
            self._totals[name] += max(0, getattr(after, name) - getattr(before, name))
        if arrivals:
            told = after.source_at if after.source_at != before.source_at else None
            self._reached_at = told or _committed_at(arrivals[-1])
            if self._behind_since is not None:
                self._behind_since = self._reached_at
        self._on_its_way_since = None

    def rest(self) -> None:
        """Nothing is on its way."""
        self._on_its_way_since = None

    @property
    def lag_seconds(self) -> float | None:
        """For how long the oldest change waits that is not in every view; none if that cannot be known.

        Of a source that cannot be read nobody knows what waits there: it may be something since it was last heard.
        """
        known = self._known_lag
        if self._failing_since is None:
            return known
        return max(seconds_since(self._heard_at.get(self._source, self._made_at)), known or 0.0)

    @property
    def _known_lag(self) -> float | None:
        since = self._on_its_way_since or (self._lag.oldest_at if self._lag.records else None) or self._behind_since
        if since is not None:
            return seconds_since(since)
        return None if self._lag.records is None else 0.0

    @property
    def records_per_second(self) -> float:
        """How many records were taken a second over the last minute, or since the source began."""
        with self._lock:
            self._forget()
            count = sum(one for _, one in self._taken)
        return count / max(1.0, min(_MINUTE, time.monotonic() - self._began_at))

    @property
    def warning(self) -> str | None:
        """That the source is later than it may be, in words."""
        seconds = self.lag_seconds
        if self._warn_after is None or seconds is None or seconds <= self._warn_after:
            return None
        return f"behind by {seconds:.0f} seconds, more than lag_warning = {self._warn_after:g} seconds"

    def _warn(self) -> None:
        """Tell once that the source is late, and once that it no longer is."""
        warning = self.warning
        if warning is not None and not self._warned:
            _log.warning("source %s is %s", self._source, warning, extra={"source": self._source})
        elif warning is None and self._warned:
            _log.info("source %s is no longer behind", self._source, extra={"source": self._source})
        self._warned = warning is not None

    def _forget(self) -> None:
        while self._taken and self._taken[0][0] < time.monotonic() - _MINUTE:
            self._taken.popleft()


def seconds_since(moment: datetime) -> float:
    """How long ago that was; a clock that was set back makes it no less than nothing."""
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


def _committed_at(arrival: Arrival) -> datetime:
    """When a record was committed in its source, as far as it tells; else it is as if that were now."""
    message = arrival.message
    told = message.origin.committed_at if isinstance(message, RowChange) else None
    return told or arrival.record.timestamp or datetime.now(UTC)
