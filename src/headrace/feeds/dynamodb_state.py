"""The state of a feed in DynamoDB, and the keys of what the table of all feeds has."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.feeds.batch import Mark
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.progress import further

# Where all feeds of an account and region keep how far they are, which table is whose, and parked events.
FEEDS = "headrace_feeds"
FEED_KEY = "feed_id"


@dataclass(frozen=True)
class State:
    """The state of a feed in DynamoDB; each change has the next version."""

    version: int = 0
    fence: int = 0
    mark: Mark | None = None
    told: DeliveredSequences = field(default_factory=DeliveredSequences)
    # Items up to this sequence were written before the scan that is under way.
    scan_after: int | None = None
    # Whether there may be items of parked events.
    has_parked: bool = False

    def as_json(self) -> str:
        """Return the text of the state."""
        mark = None if self.mark is None else self.mark.stored_fields
        kept = {"version": self.version, "fence": self.fence, "mark": mark, "told": self.told.as_json()}
        return json.dumps({**kept, "scan_after": self.scan_after, "has_parked": self.has_parked})

    @staticmethod
    def from_json(text: str) -> State:
        """Return the state of a text."""
        read = json.loads(text)
        mark = None if read["mark"] is None else Mark.stored(**read["mark"])
        told = DeliveredSequences.from_json(read["told"])
        # Earlier releases kept no parked events apart.
        has_parked = read.get("has_parked", False)
        return State(read["version"], read["fence"], mark, told, read["scan_after"], has_parked)

    def at(self, mark: Mark) -> State:
        """Return the state at a mark, or at its own if that is further."""
        return self if self.mark is not None and not further(mark, self.mark) else replace(self, mark=mark)


def given_up(sequences: Collection[int]) -> Callable[[State], State]:
    """Return what moves parked events out of a state."""
    return lambda state: replace(state, told=state.told.give_up(sequences), has_parked=True)


def number_set(sequences: Sequence[int]) -> dict[str, Any]:
    """Return sequences as a set of numbers of DynamoDB."""
    return {"NS": [str(one) for one in sequences]}


def parked_prefix(feed_id: str) -> str:
    """Return the beginning of the keys of a feed\'s parked events."""
    return f"{feed_id}:parked:"


def owner_key(table: str) -> dict[str, Any]:
    """Return the key of the record of the feed that owns a table."""
    return {FEED_KEY: {"S": f"table:{table}"}}
