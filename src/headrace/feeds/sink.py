"""What a sink is: where a feed's events go, and how it says that they have arrived.

One file per system. Threads, positions, retries, parked events, pause and metrics are written once, in the runner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql.types import StructType

from headrace.feeds.batch import Batch, Mark


@dataclass(frozen=True)
class Target:
    """What a statement says of a sink, secrets looked up, and the relation that goes there."""

    feed: str
    # Never used by another feed, also one of the same name that was made anew.
    feed_id: str
    location: str
    options: Mapping[str, Any]
    table: str
    columns: StructType
    # All columns where the relation has no key.
    key: tuple[str, ...]
    has_key: bool
    # The number of the owner of the home: higher than that of all before it.
    fence: int = 0
    # The id of the home; one that was restored from a backup has another.
    home: str = ""


class SinkUnavailable(Exception):
    """The sink did not take a batch, and may take it later; nothing or any part of it may have arrived."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class SinkEnded(Exception):
    """The sink will never take anything from this feed, for the reason given: the feed stops in state Error."""


@dataclass(eq=False)
class EventsRefused(Exception):
    """Events that the sink takes for faults of their own, by their index in the batch, each with the reason.

    All others of the batch have arrived, but for later ones of the same keys, which are in `held`.
    """

    refused: Mapping[int, str]
    held: frozenset[int] = field(default_factory=frozenset[int])

    @property
    def undelivered(self) -> list[int]:
        """Return the indexes of the events that have not arrived, in order."""
        return sorted({*self.refused, *self.held})


class Delivery(Protocol):
    """An open sink of one feed, used by one thread.

    It stays open while its sink is unavailable: after `SinkUnavailable` the same call is repeated with the same
    arguments, so a delivery connects again by itself, and may remember which part of a batch has arrived.

    """

    # Whether it is given batches of a single RESET, as a log has them; for any other, `begin_scan` says as much.
    tells_resets: bool
    # Whether the position after a batch is stored with the batch. If a later delivery finds an older position than one
    # that was confirmed, the sink was restored from a copy, and the feed ends with an error.
    keeps_marks: bool
    # Whether readers see its rows as they are between two batches, so that a batch should end with an epoch.
    keeps_epochs_whole: bool

    def known_mark(self) -> Mark | None:
        """How far the sink itself knows the feed to be, if it keeps that with what it holds; it comes before ours."""
        ...

    def deliver(self, batch: Batch) -> None:
        """Return when every event has arrived for good; else `SinkUnavailable`, `EventsRefused` or `SinkEnded`."""
        ...

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        """Say that all up to a mark was told, where the sink has a form for it and the feed's options ask for it."""
        ...

    def begin_scan(self, columns: StructType) -> None:
        """What comes next is all that the relation holds, in place of what was told before: begin anew.

        Once for each scan, the first one too, before its first batch; again only if nothing of it was confirmed. A scan
        that a restart cut short goes on where it was, in a delivery that was never told of its beginning.
        """
        ...

    def end_scan(self, mark: Mark) -> None:
        """All of the scan has been delivered: what the sink held before and was not told again is gone from now on.

        After a crash in just this moment it may come again.
        """
        ...

    def give_up(self, sequences: Sequence[int]) -> None:
        """Note that refused events are parked: they may be delivered later, after newer events of their keys."""
        ...

    def close(self) -> None:
        """Let go of connections; what was confirmed stays."""
        ...


class LogDelivery:
    """The parts that deliveries to logs share: a log keeps all events, and a RESET is an event of its own."""

    tells_resets = True
    keeps_epochs_whole = False

    def begin_scan(self, columns: StructType) -> None:
        """Nothing, for a RESET has come before."""

    def end_scan(self, mark: Mark) -> None:
        """Nothing is taken away from a log."""

    def give_up(self, sequences: Sequence[int]) -> None:
        """A log keeps no list of missing events, or one whose next version has the mark behind these."""


class Sink(Protocol):
    """One kind of place that events can go to."""

    # As it stands after INTO.
    keyword: str
    # The options that it has beside those of every feed, each with a sentence about it.
    options: Mapping[str, str]
    # Those whose values are secrets: written by reference (env:NAME, file:/path), never kept or shown.
    secrets: frozenset[str]

    def check(self, target: Target) -> None:
        """Refuse what can be known to be wrong without asking the sink (`FeedError` with a hint)."""
        ...

    def look_up(self, location: str, options: Mapping[str, Any]) -> None:
        """Refuse what only other machines know to be wrong, such as the address of a name.

        It may take seconds, so it is called before a feed is made or altered, while epochs go on.
        """
        ...

    def open(self, target: Target) -> Delivery:
        """Begin to deliver; `SinkUnavailable` or `SinkEnded` if it cannot."""
        ...

    def forget(self, target: Target) -> None:
        """Take away what the sink keeps about a feed that was dropped; what was delivered stays.

        The relation may be gone by then: the target has no columns.
        """
        ...
