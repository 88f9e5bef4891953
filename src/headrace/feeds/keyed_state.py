"""The state of a feed, as a sink stores it that holds the newest row of each key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.sink import SinkEnded


@dataclass(frozen=True)
class State:
    """The position of a feed, its owner, and the events that have come."""

    fence: int = 0
    mark: Mark | None = None
    told: DeliveredSequences = field(default_factory=DeliveredSequences)
    # The last sequence before the scan that is under way.
    scan_after: int | None = None
    # Whether there may be parked events.
    has_parked: bool = False
    # Counts the changes, for a sink that compares it before each.
    version: int = 0

    @staticmethod
    def from_json(text: str | bytes | None) -> State:
        """Return the state of a text; that of a new feed if there is none."""
        if text is None:
            return State()
        read = json.loads(text)
        mark = None if read["mark"] is None else Mark.stored(**read["mark"])
        # Earlier releases stored in Redis only whether there is a scan, and kept no parked events apart.
        scan_after = read.get("scan_after", 0 if read.get("scanning") else None)
        told, has_parked = DeliveredSequences.from_json(read["told"]), read.get("has_parked", False)
        return State(read["fence"], mark, told, scan_after, has_parked, read.get("version", 0))

    def as_json(self) -> str:
        """Return the text of the state."""
        mark = None if self.mark is None else self.mark.stored_fields
        stored = {**vars(self), "mark": mark, "told": self.told.as_json()}
        return json.dumps({**stored, "scanning": self.scan_after is not None})

    def at(self, mark: Mark) -> State:
        """Return the state at a mark, or at its own if that is further."""
        return self if self.mark is not None and mark <= self.mark else replace(self, mark=mark)

    def begin_scan(self) -> State:
        """Return the state with a scan under way, which has what came of older events that were refused."""
        told = DeliveredSequences(self.told.highest)
        return replace(self, told=told, scan_after=self.told.highest or 0, has_parked=False)

    def end_scan(self, mark: Mark) -> State:
        """Return the state after a scan."""
        told = self.told if self.told.highest is not None else DeliveredSequences(mark.sequence)
        return replace(self.at(mark), told=told, scan_after=None)

    def refuse_later_owner(self, fence: int) -> None:
        """Refuse to deliver as an owner of the home if a later one does."""
        if self.fence > fence:
            raise SinkEnded(f"another process, with the number {self.fence}, delivers this feed now")

    def refuse_loss(self, batch: Batch, sink: str) -> None:
        """Refuse a batch that follows on events or on a scan that the sink has lost."""
        lost = "the scan under way" if batch.scan else ""
        if len(batch) and self.told.highest is None and batch.sequences[0] > 1:
            lost = "what was delivered"
        if lost and self.scan_after is None:
            raise SinkEnded(f"{sink} no longer has {lost}: RESYNC CHANGEFEED delivers all rows again")
