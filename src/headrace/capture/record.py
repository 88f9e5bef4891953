"""One record as it was read from a topic, a file or a request, before anybody knows what it means."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Record:
    """Bytes, and where they were: a topic and a partition, or a file, and where in it.

    A value that is None is a tombstone of a compacted topic: the key has no value any more.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp: datetime | None = None

    @property
    def event_id(self) -> str:
        """What names the record among all others of its source, also when it is read again."""
        return f"{self.topic}-{self.partition}-{self.offset}"


def moment_of(millis: int) -> datetime | None:
    """The time of a record by its milliseconds since 1970; none where it tells none, or one that no clock shows."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC) if millis > 0 else None
    except (OverflowError, ValueError, OSError):
        return None


# Where a value comes alone, as over HTTP.
NO_RECORD = Record(None)
