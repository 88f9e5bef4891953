"""The state of a feed in Redis, and the names under which Redis has it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from headrace.feeds.batch import Mark
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.progress import further
from headrace.feeds.sink import Target

# The beginning of the names of all that Redis keeps of a feed.
STATE = "headrace:feed:"


@dataclass(frozen=True)
class State:
    """The state of a feed in Redis."""

    fence: int = 0
    mark: Mark | None = None
    told: DeliveredSequences = field(default_factory=DeliveredSequences)
    scanning: bool = False
    # Whether the hash of parked events may have any.
    has_parked: bool = False

    def at(self, mark: Mark) -> State:
        """Return the state at a mark, or at its own if that is further."""
        return self if self.mark is not None and not further(mark, self.mark) else replace(self, mark=mark)


def prefix_of(target: Target) -> bytes:
    """Return the beginning of the names of a feed's hashes, before the key."""
    return f"{target.options.get('key_prefix', '')}{target.table}:".encode()


def state_key(target: Target) -> str:
    """Return the name of a feed's state."""
    return f"{STATE}{target.feed_id}"


def owner_key(target: Target) -> bytes:
    """Return the name of the record of the feed that owns the hashes of a prefix."""
    return b"headrace:owner:" + prefix_of(target)


def state_json(state: State) -> bytes:
    """Return the text of a state."""
    mark = None if state.mark is None else state.mark.stored_fields
    kept = {"fence": state.fence, "mark": mark, "told": state.told.as_json(), "scanning": state.scanning}
    return json.dumps({**kept, "has_parked": state.has_parked}).encode()


def read_state(kept: bytes | None) -> State:
    """Return the state of a text; that of a new feed if there is none."""
    if kept is None:
        return State()
    read = json.loads(kept)
    mark = None if read["mark"] is None else Mark.stored(**read["mark"])
    told = DeliveredSequences.from_json(read["told"])
    # Earlier releases kept no parked events apart.
    return State(read["fence"], mark, told, read["scanning"], read.get("has_parked", False))
