"""What a record turned out to be: a change of a row, the end of all rows, or something said about them.

Each has `changes`, in the form that the intake takes, so that whoever wants these alone need not ask what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from headrace.capture.described import DescribedTable
from headrace.capture.record import Record

Operation = Literal["create", "update", "delete", "read", "truncate"]
Stage = Literal["text", "schema", "envelope", "values", "size"]
Row = Mapping[str, Any]
Change = Mapping[str, Row]


class Undecodable(ValueError):
    """A record of which no change can be made, and at which stage that showed.

    `text`: its bytes are not what its format is written in. `schema`: what describes it is not to be had, or not as it
    must be. `envelope`: it is not built as its format asks. `values`: a value is not one of its column. `size`: it is
    larger than is taken. `line`, from 1, is where in a text of several lines it showed, where that is known.
    """

    line: int | None = None

    def __init__(self, reason: str, stage: Stage = "envelope") -> None:
        super().__init__(reason)
        self.reason = reason
        self.stage: Stage = stage


@dataclass(frozen=True)
class Position:
    """A position in the log of a source: as its people write it, and in numbers that grow with it, if it has some."""

    text: str = ""
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Transaction:
    """The transaction of a change in its source, and which of its changes it is, of all and of its table."""

    id: str
    order: int | None = None
    table_order: int | None = None


@dataclass(frozen=True)
class Origin:
    """Where in its source a change comes from, as far as the record tells; `snapshot` if it was read and not logged.

    Positions of one connector, server and table are of one log, and can be compared.
    """

    connector: str = ""
    table: str = ""
    position: Position = field(default_factory=Position)
    committed_at: datetime | None = None
    transaction: Transaction | None = None
    snapshot: bool = False
    server: str = ""


@dataclass(frozen=True)
class RowChange:
    """A change of one row.

    The images hold what the record has of the row before and after it, by the table's names where the table has such a
    column. `kept` are the columns whose values the record does not have and that stay what they are.
    """

    operation: Operation
    changes: tuple[Change, ...]
    before: Row | None = None
    after: Row | None = None
    kept: frozenset[str] = frozenset()
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True)
class Truncation:
    """All rows of the table are gone."""

    origin: Origin = field(default_factory=Origin)
    operation: Operation = "truncate"
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Tombstone:
    """A key of a compacted topic has no value any more.

    A delete comes before it, but compaction may have taken that away: so it deletes too, where the key names a row.
    """

    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class SchemaChange:
    """Tables have come, have other columns, or have gone."""

    tables: tuple[DescribedTable, ...]
    ddl: str = ""
    origin: Origin = field(default_factory=Origin)
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class TransactionBoundary:
    """A transaction of the source begins, or ends with so many events, in all and of each table."""

    status: Literal["BEGIN", "END"]
    id: str
    at: datetime | None = None
    events: int | None = None
    events_by_table: Mapping[str, int] = field(default_factory=dict[str, int])
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class NoChange:
    """Something that changes no row: what it is, in a word."""

    meaning: Literal["heartbeat", "message", "control", "empty"]
    origin: Origin = field(default_factory=Origin)
    changes: tuple[Change, ...] = ()


Message = RowChange | Truncation | Tombstone | SchemaChange | TransactionBoundary | NoChange
# What a format comes to once its table and options are known: it raises `Undecodable` and nothing else on any record,
# but for a registry that cannot be asked, which says nothing of the record.
Decode = Callable[[Record], Message]
