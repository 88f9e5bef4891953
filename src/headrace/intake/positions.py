"""Where in its source a captured change comes from, and which of two changes of a key is the newer one.

A source may bring a change twice, late or out of order: a connector that was restarted repeats what it sent, a dead
letter is replayed after its key has moved on, a topic was divided anew. What is kept of a key's last change tells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, TimestampType


class SourcePosition(NamedTuple):
    """Of which log and where in it, as texts that sort; of which partition, where in it, and which of its record.

    Logs and partitions are told apart by number. `order` is empty where the record tells no position of its source.
    `read` is a row of a snapshot, which was read and not logged.
    """

    log: int
    order: str
    partition: int
    offset: int
    number: int
    source_at: datetime | None
    read: bool = False


# The columns that keep a position, after those of the key.
POSITION_TYPES: tuple[DataType, ...] = (
    LongType(),
    StringType(),
    LongType(),
    LongType(),
    IntegerType(),
    TimestampType(),
    BooleanType(),
)
# Where among them is the time by which positions are let go.
SOURCE_AT = 5


class Emptied:
    """Among captured changes: all rows of the table are gone."""


class Captured(list[object]):
    """Changes of one table that a source brought, each with its position; None for one that is taken as it arrives."""

    def __init__(self, changes: Sequence[object], positions: Sequence[SourcePosition | None]) -> None:
        super().__init__(changes)
        if len(self) != len(positions):
            raise ValueError("each captured change has its position")
        self.positions = positions

    def part(self, begin: int, end: int) -> Captured:
        """Some of them, in their order."""
        return Captured(self[begin:end], self.positions[begin:end])


def is_stale(new: SourcePosition, known: SourcePosition) -> bool:
    """Whether a change is none but the one that its key has seen last, or an older one.

    In one partition what comes later is newer, but for what is sent again: that has a later offset, and the position
    and time that it had before. So where offset and time agree they decide, also over positions: a log that begins
    anew, as after a restore, counts from the start. Where they do not, the position decides, and the offset between
    equal ones. Rows that were read have no position of their own in the log: between them and logged changes the offset
    decides. Between partitions a change is stale if it has a lower position of the same log, and no later time; a row
    that was read, if it has an earlier time than a logged change. What cannot be compared is taken as it comes: of what
    comes in the order of its source nothing is left out.
    """
    same_log = bool(new.order and known.order) and new.log == known.log
    if new.partition != known.partition:
        if not same_log:
            return False
        earlier = later = False
        if new.source_at is not None and known.source_at is not None:
            earlier, later = new.source_at < known.source_at, new.source_at > known.source_at
        if new.read != known.read:
            return new.read and earlier
        if later:
            return False
        return (new.order, new.offset, new.partition) < (known.order, known.offset, known.partition)
    at, last = (new.offset, new.number), (known.offset, known.number)
    if at == last:
        return True
    if not same_log or new.read != known.read:
        return at < last
    if new.source_at is not None and known.source_at is not None and new.source_at != known.source_at:
        later = new.source_at > known.source_at
        if later == (at > last):
            return not later
    return (new.order, at) < (known.order, last)


def kept_position(new: SourcePosition, known: SourcePosition | None, stale: bool) -> SourcePosition:
    """What is remembered of a key after a change.

    The tombstone of a compacted topic tells no position of its source: it stands for the delete before it, whichever of
    them comes first.
    """
    if known is None or new.partition != known.partition or bool(new.order) == bool(known.order):
        return known if stale and known is not None else new
    told = new if new.order else known
    offset, number = max((new.offset, new.number), (known.offset, known.number))
    return told._replace(offset=offset, number=number)


def sortable(order: Sequence[int]) -> str:
    """Numbers, none of them negative, as a text that sorts as they do."""
    return "".join([f"{len(digits):02x}{digits}" for digits in [f"{max(one, 0):x}" for one in order]])


@lru_cache(maxsize=10_000)
def numbered(name: str) -> int:
    """A number that stands for a name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), signed=True)
