"""The owner of a place in a sink, such as a table of DynamoDB: the one feed that writes and removes rows there."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from headrace.errors import FeedError
from headrace.feeds.sink import SinkEnded, SinkUnavailable, Target


@dataclass(frozen=True)
class SinkOwner:
    """A feed of a home, as a sink keeps it beside a place; a home that was restored from a backup is another home."""

    feed: str
    feed_id: str
    home: str

    @staticmethod
    def of(target: Target) -> SinkOwner:
        """Return the owner that the feed of a target is to be."""
        return SinkOwner(target.feed, target.feed_id, target.home)

    @staticmethod
    def from_json(text: str | bytes | None) -> SinkOwner | None:
        """Return the owner that a sink keeps, if it keeps one."""
        return None if text is None else SinkOwner(**json.loads(text))

    def as_json(self) -> str:
        """Return the text that a sink keeps."""
        return json.dumps(asdict(self))

    def is_other(self, than: SinkOwner) -> bool:
        """Return whether this is another feed, or the feed of another home."""
        return (self.feed_id, self.home) != (than.feed_id, than.home)

    def name(self, for_feed: SinkOwner) -> str:
        """Return what an error calls this owner where another feed reads it."""
        return f"changefeed {self.feed}" + (" of another home" if self.home != for_feed.home else "")


def refuse_second(owner: SinkOwner | None, target: Target, place: str) -> bool:
    """Refuse a place that another feed owns, unless the target takes it over; return whether it does."""
    own = SinkOwner.of(target)
    if owner is None or not owner.is_other(own):
        return False
    # An earlier feed of this name and home was dropped, while the sink did not answer.
    was_dropped = (owner.feed, owner.home) == (own.feed, own.home)
    if not was_dropped and not target.options.get("take_over"):
        raise SinkUnavailable(
            f"{owner.name(own)} delivers to {place} already, and each of two feeds would remove the rows of the other: "
            "give this one another place, or drop that one; if it is there no more, give take_over = true"
        )
    return True


def refuse_former(owner: SinkOwner | None, target: Target, place: str) -> None:
    """Refuse to write to a place that another feed has taken over."""
    own = SinkOwner.of(target)
    if owner is not None and owner.is_other(own):
        raise SinkEnded(f"{owner.name(own)} has taken over {place}")


def check_take_over(target: Target) -> None:
    """Refuse a value of the option take_over that is neither true nor false."""
    given = target.options.get("take_over", False)
    if not isinstance(given, bool):
        raise FeedError(f"take_over cannot be {given!r}", hint="write take_over = true or take_over = false")
