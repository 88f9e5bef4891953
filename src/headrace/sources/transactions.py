"""Which of the records that have come may be committed, so that no transaction of the source is ever split.

A record of Debezium names its transaction, and the end of a transaction, in a topic of its own, tells how many records
it has of each table. Records come from many partitions, of each in its order, and a position is an offset in each: so
what is committed is a first part of each partition, such that every transaction is in it with all that it has or not at
all. The ends come in the order of the commits, which is therefore the order in which transactions are committed here.
"""

from __future__ import annotations

import logging
import re
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.capture.connector import Arrival
from headrace.capture.messages import Message, RowChange, TransactionBoundary, Truncation, Undecodable

_log = logging.getLogger("headrace.sources")
# After the end of a transaction was read, and then all that there was for so long, what is missing never comes.
_MISSING_SECONDS = 10.0
_ENDED_KEPT = 10_000
# So many records are held back at the most.
MOST_HELD = 1_000_000
_POSTGRES_ID = re.compile(r"(\d+):\d+", re.ASCII)


@dataclass(frozen=True)
class Piece:
    """A record that waits: its partition, the transaction that it belongs to, if to one, and how much it changes."""

    arrival: Arrival
    partition: tuple[str, int]
    transaction: str = ""
    changes: int = 0


@dataclass
class _Progress:
    """What has come of a transaction: its records by their number in it, and how many it has, once that is known."""

    seen: set[int] = field(default_factory=set[int])
    expected: int | None = None
    ended_at: float = 0.0
    told: bool = False

    @property
    def is_whole(self) -> bool:
        return self.expected is not None and len(self.seen) >= self.expected


class Transactions:
    """The records of one source that wait for the rest of their transactions."""

    def __init__(
        self,
        reads_topic: Callable[[str], bool],
        most: int,
        source: str = "",
        changes_of: Callable[[Message], int] = lambda message: len(message.changes),
    ) -> None:
        self._reads_topic = reads_topic
        self._changes_of = changes_of
        self._fields = {"source": source}
        self._most = most
        self._held: list[Piece] = []
        self._open: dict[str, _Progress] = {}
        # A connector that was restarted may send a part of a transaction again.
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def held(self) -> int:
        """How many changes wait; a record that cannot be read is one."""
        return sum(piece.changes for piece in self._held)

    def add(self, arrivals: Sequence[Arrival], read: Callable[[Arrival], Message]) -> None:
        """Have records wait, of which `read` tells what they say, or `Undecodable`."""
        for arrival in arrivals:
            try:
                message = read(arrival)
                transaction, changes = self._note(arrival, message), self._changes_of(message)
            except Undecodable:
                transaction, changes = "", 1
            record = arrival.record
            self._held.append(Piece(arrival, (record.topic, record.partition), transaction, changes))

    def take(self, *, at_head: bool = False) -> list[Arrival]:
        """The records that may be committed, in the order of their coming; `at_head` if hardly more is there by now."""
        if not self._held:
            return []
        whole = {name for name, one in self._open.items() if one.is_whole}
        if at_head:
            whole |= self._given_up()
        taken = whole_part(self._held, whole)
        if not any(taken) and len(self._held) >= self._most:
            _log.warning(
                "%d records wait for the end of their transaction, the first of %s: they are committed in parts",
                len(self._held),
                next((one.transaction for one in self._held if one.transaction), ""),
                extra=self._fields,
            )
            taken = [True] * len(self._held)
        ready = [piece for piece, now in zip(self._held, taken, strict=True) if now]
        self._held = [piece for piece, now in zip(self._held, taken, strict=True) if not now]
        left = {piece.transaction for piece in self._held}
        for name in {piece.transaction for piece in ready} - left:
            if self._open.pop(name, None) is not None:
                self._ended[name] = None
        while len(self._ended) > _ENDED_KEPT:
            self._ended.popitem(last=False)
        return _marked(ready)

    def _note(self, arrival: Arrival, message: Message) -> str:
        """The transaction that a message belongs to, of which it is noted what it tells; empty for none."""
        if isinstance(message, TransactionBoundary):
            name = _name(message.id)
            if name in self._ended:
                return ""
            progress = self._open.setdefault(name, _Progress())
            if message.status == "END":
                progress.expected = self._expected(arrival.record.topic, message)
                progress.ended_at = time.monotonic()
            return name
        transaction = message.origin.transaction if isinstance(message, (RowChange, Truncation)) else None
        # One without its number is known by the source's own id only, which no end names.
        if transaction is None or transaction.order is None or (name := _name(transaction.id)) in self._ended:
            return ""
        self._open.setdefault(name, _Progress()).seen.add(transaction.order)
        return name

    def _expected(self, topic: str, end: TransactionBoundary) -> int:
        """How many records of a transaction are to come, of the tables that this source reads."""
        prefix = topic.rpartition(".")[0]
        counts: Mapping[str, int] = end.events_by_table
        return sum(n for table, n in counts.items() if self._reads_topic(f"{prefix}.{table}" if prefix else table))

    def _given_up(self) -> set[str]:
        """Transactions that have ended and of which nothing more comes: parts that were sent again, or lost."""
        before = time.monotonic() - _MISSING_SECONDS
        given_up = {name for name, one in self._open.items() if one.expected is not None and one.ended_at < before}
        for name in given_up:
            one = self._open[name]
            if not one.is_whole and not one.told:
                one.told = True
                _log.warning(
                    "of transaction %s, %d of %s records have come; the rest is no longer waited for",
                    name,
                    len(one.seen),
                    one.expected,
                    extra=self._fields,
                )
        return given_up


class Unfinished:
    """Records of a transaction of which its source has not brought the end yet, in their order."""

    def __init__(self, changes_of: Callable[[Arrival], int]) -> None:
        self._changes_of = changes_of
        self.arrivals: list[Arrival] = []
        # How many changes wait.
        self.held = 0

    def take(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """The records that may be committed, of those that wait and of others that follow them; the rest waits."""
        waiting = [*self.arrivals, *arrivals]
        whole = committable(waiting)
        ready, self.arrivals = waiting[:whole], waiting[whole:]
        # Each is counted once: if some go, all that wait before them go too.
        known, new = (0, self.arrivals) if whole else (self.held, arrivals)
        self.held = known + sum(map(self._changes_of, new))
        return ready


def _marked(pieces: Sequence[Piece]) -> list[Arrival]:
    """The records, each with whether a transaction goes on behind it."""
    last = {piece.transaction: index for index, piece in enumerate(pieces) if piece.transaction}
    marked: list[Arrival] = []
    until = -1
    for index, piece in enumerate(pieces):
        until = max(until, last.get(piece.transaction, -1))
        marked.append(piece.arrival if until <= index else replace(piece.arrival, whole=False))
    return marked


def _name(transaction: str) -> str:
    """What is the same in all records of a transaction: of PostgreSQL, what comes before the LSN of each."""
    found = _POSTGRES_ID.fullmatch(transaction)
    return transaction if found is None else found[1]


def whole_part(pieces: Sequence[Piece], whole: set[str]) -> list[bool]:
    """Which records may be committed: the most of them, so that each partition's are a first part of what it has, and
    that of every transaction either all are among them, and it is whole, or none."""
    by_partition: dict[tuple[str, int], list[int]] = defaultdict(list)
    by_transaction: dict[str, list[int]] = defaultdict(list)
    for index, piece in enumerate(pieces):
        by_partition[piece.partition].append(index)
        if piece.transaction:
            by_transaction[piece.transaction].append(index)
    # How many of each partition are taken so far; it only ever becomes less.
    ends = {partition: len(indexes) for partition, indexes in by_partition.items()}
    places = {index: place for indexes in by_partition.values() for place, index in enumerate(indexes)}
    left = {name for name in by_transaction if name not in whole}
    waiting = list(left)
    while waiting:
        for index in by_transaction[waiting.pop()]:
            partition = pieces[index].partition
            cut = by_partition[partition][places[index] : ends[partition]]
            ends[partition] = min(ends[partition], places[index])
            for later in cut:
                name = pieces[later].transaction
                if name and name not in left:
                    left.add(name)
                    waiting.append(name)
    return [places[index] < ends[piece.partition] for index, piece in enumerate(pieces)]


def committable(held: Sequence[Arrival]) -> int:
    """How many of the records may be committed: none that a transaction follows which has not come whole.

    One that is larger than all that is ever held is committed in parts, rather than never.
    """
    if len(held) >= MOST_HELD:
        return len(held)
    return next((index + 1 for index in range(len(held) - 1, -1, -1) if held[index].whole), 0)
