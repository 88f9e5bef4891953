"""Records as they were polled, many at once: one list for each part of them, and no object for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from headrace.capture.connector import Arrival, Position
from headrace.capture.record import Record, moment_of


@dataclass(frozen=True)
class Records:
    """Bytes with where they were, in the order in which they are to be taken; `advance` is where it goes on after."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    topics: Sequence[str]
    partitions: Sequence[int]
    offsets: Sequence[int]
    # Milliseconds since 1970, 0 or less where there are none.
    timestamps: Sequence[int]
    advance: Position = field(default_factory=dict[str, Any])

    def __len__(self) -> int:
        return len(self.values)

    def record(self, index: int) -> Record:
        """One of them by itself."""
        return Record(
            self.values[index],
            self.keys[index],
            (),
            self.topics[index],
            self.partitions[index],
            self.offsets[index],
            moment_of(self.timestamps[index]),
        )

    def arrival(self, index: int) -> Arrival:
        """One of them as the way of single records takes it."""
        record = self.record(index)
        name = f"{record.topic}:{record.partition}"
        # What is no offset of a partition holds for all of them.
        others = {one: value for one, value in self.advance.items() if ":" not in one}
        return Arrival(record, {name: record.offset + 1, **others})


@runtime_checkable
class RecordsReading(Protocol):
    """A source that is open at a position, and brings records without an object for each."""

    def poll_records(self, most: int, large: int, seconds: float) -> Records:
        """The records that follow, so many at most; where there are that many, a little longer is waited for more."""
        ...
