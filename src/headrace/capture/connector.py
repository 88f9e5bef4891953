"""What a connector does: it opens a source at a position, reads what follows, and tells how far behind it is.

Everything else (threads, epochs, positions, dead letters, pause, metrics, schema change) is written once, in sources/.
A position is plain JSON, which only its connector understands. It is committed in the epoch that takes the records
before it, so that a record is taken once, however often it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from headrace.capture.messages import Message
from headrace.capture.record import Record

Position = Mapping[str, Any]
# Stands in an advance for what is no longer part of the position.
GONE: Any = object()


def laid_over(position: Position, advance: Position) -> dict[str, Any]:
    """A position after what advances it."""
    return {name: value for name, value in {**position, **advance}.items() if value is not GONE}


@dataclass(frozen=True)
class Arrival:
    """One record, and where its source is read on after it.

    `advance` is laid over the position before it. A connector that knows what a record means brings the message too;
    otherwise the format of the source tells.
    """

    record: Record
    advance: Position
    message: Message | None = None
    # Whether an epoch may end here: the inside of a transaction is no place to stop.
    whole: bool = True


@dataclass(frozen=True)
class Lag:
    """How far a source is ahead of what was read: in records, where that can be known, and since when."""

    records: int | None = None
    oldest_at: datetime | None = None
    # What people should know of it though it is no error, as that there is nothing to read yet.
    note: str | None = None
    # Whether the source itself was heard: one that is still being reached may be polled in vain.
    is_heard: bool = True


class Reading(Protocol):
    """A source that is open at a position. Used by one thread."""

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        """The records that follow, so many at most; none if none came within so many seconds.

        Raises `SourceError`, transient where it may pass by itself.
        """
        ...

    def confirm(self, position: Position) -> None:
        """What is before a position is durable here: the source need not keep it for us."""
        ...

    def lag(self) -> Lag:
        """How far the source is ahead of what was polled."""
        ...

    def close(self) -> None:
        """Let go of the source."""
        ...


@runtime_checkable
class BeginsLate(Protocol):
    """A reading that may begin elsewhere than where its source does: where that is must be known after a restart."""

    def begins_at(self) -> Position:
        """What is to be committed before anything is read; empty where the beginning is found again by itself."""
        ...


@dataclass(frozen=True)
class Description:
    """A source as its statement describes it, with secrets looked up."""

    name: str
    location: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # The table that the source is for, if it is for one.
    table: str = ""


@dataclass(frozen=True)
class Connector:
    """One kind of source: the word of its statement, its options, and how it is opened.

    Options are told by name with what they mean; `check` refuses a description before anything is made of it.
    """

    keyword: str
    options: Mapping[str, str]
    open: Callable[[Description, Position], Reading]
    check: Callable[[Description], object] = lambda _: None
    # Whether records tell which table they are of, so that one source may bring many.
    brings_many: bool = False
    # Whether its records are bytes of a format, and of which if nobody says.
    has_format: bool = False
    format: str = "insert_delete"
    # Which of them are rows of text instead, whose values are of whatever type their column has.
    is_text_row: Callable[[Record], bool] | None = None
    # Takes away what the source has made elsewhere, when it is dropped.
    forget: Callable[[Description], None] = lambda _: None
    # What is laid over the position so that all is read anew, after one that its log no longer has.
    again: Callable[[Description], Position] | None = None
    # Likewise so that it goes on and brings all rows of some tables besides; the text names what is asked for.
    snapshot: Callable[[Description, Sequence[str], str], Position] | None = None
    # Whether offsets order the records of a partition, and one may come again: then the last of each key is remembered.
    ordered: bool = False
    # Whether a source reads a topic, if there is one of that name.
    reads_topic: Callable[[Description, str], bool] = lambda *_: True
