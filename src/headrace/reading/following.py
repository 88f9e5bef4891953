"""Following a relation: what happens to it after an epoch, step by step, and who is woken when there is more.

A step is *changes* (what some epochs changed, epoch by epoch), a *reset* (the relation is another now, has other
columns, or repeats rows too often to be told change by change: here is what it holds), *dropped*, or mere *progress*
(epochs passed that changed nothing here). Each names the position after it. A position is a relation's name and an
epoch, and so can be kept anywhere and gone on from later, by another process too: the ledger knows which relation had
the name then, and with which columns.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql.types import StructType

from headrace.catalog.catalog import Relation
from headrace.catalog.columns import ColumnHistory, Columns
from headrace.errors import RelationNameError, ResultTooLarge
from headrace.ledger.ledger import Entry, Ledger
from headrace.reading.held_rows import HeldRows
from headrace.reading.history import EpochChanges, epoch_changes, refuse_expired, refuse_unreadable
from headrace.reading.recent import Recent
from headrace.state.delta import Delta
from headrace.state.state import State

# A step ends with the epoch that brings it to so many rows, or after so many epochs.
ROWS = 100_000
EPOCHS = 100
_log = logging.getLogger("headrace.following")
_readings = itertools.count()


@dataclass(frozen=True)
class Position:
    """How far a follower is: it has all that a relation was at the end of an epoch; before the first step, nothing."""

    relation: str
    epoch: int | None = None
    columns: Columns | None = None


@dataclass(frozen=True, eq=False)
class Changes:
    """What the epochs after one position, up to another, changed; an epoch that changed nothing is not among them."""

    position: Position
    epochs: tuple[EpochChanges, ...]


@dataclass(frozen=True, eq=False)
class Reset:
    """What a relation holds, to be taken in place of all that was told before.

    `reading` tells one such reading from the next: the same rows may come in another order.
    """

    position: Position
    columns: StructType
    content: HeldRows
    reading: int


@dataclass(frozen=True)
class Dropped:
    """The relation is gone since an epoch; nothing follows."""

    relation: str
    epoch: int


@dataclass(frozen=True)
class Progress:
    """The relation is as it was, up to a later epoch or the same."""

    position: Position


Step = Changes | Reset | Dropped | Progress


@dataclass(frozen=True, eq=False)
class Newest:
    """What a home knows of one relation at its newest epoch, all of the same moment."""

    epoch: int
    history: ColumnHistory
    relation: Relation | None
    content: State | None
    changed_at: int


class Following:
    """The one way to follow the relations of a home."""

    def __init__(self, ledger: Ledger, epoch: int, newest: Callable[[str], Newest]) -> None:
        self._ledger = ledger
        self._epoch = epoch
        self._newest = newest
        self._recent = Recent(epoch)
        self._moved = threading.Condition()
        self._listeners: dict[int, Callable[[], None]] = {}
        self.ended = False

    def add(self, epoch: int, committed_at: datetime, deltas: Mapping[str, Delta]) -> None:
        """Take what a commit brought, in the moment in which it becomes visible."""
        self._recent.add(epoch, committed_at, deltas)
        self._epoch = epoch

    def wake(self) -> None:
        """Wake all who wait for a commit; whatever becomes of them is not the committer's trouble."""
        with self._moved:
            self._moved.notify_all()
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener()
            except Exception:
                _log.exception("a listener failed, and the others go on")

    def end(self) -> None:
        """Wake everyone for the last time: the home moves no more."""
        self.ended = True
        self.wake()

    def wait(self, after: int, seconds: float | None = None) -> bool:
        """Wait for a commit later than an epoch; whether there is one, which is not said of a home that ended."""
        with self._moved:
            self._moved.wait_for(lambda: self._epoch > after or self.ended, seconds)
            return self._epoch > after

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a listener at every commit and at the end, in the committing thread; how to have it stop."""
        number = next(_readings)
        with self._moved:
            self._listeners[number] = listener

        def forget() -> None:
            with self._moved:
                self._listeners.pop(number, None)

        return forget

    def first_change(self, relation: str, after: int, *, reads: bool = True) -> datetime | None:
        """Return when a relation first changed after an epoch.

        None if it did not, or, with `reads = False`, if only the ledger could say.
        """
        newest = self._newest(relation)
        if newest.changed_at <= after:
            return None
        recent = self._recent.between(relation, after, newest.epoch)
        if recent is not None:
            return recent[0].committed_at if recent else None
        return self._ledger.first_commit(relation, after) if reads else None

    def begin(self, relation: str, after: int | None = None) -> Position:
        """The position of one who has a relation as it was at an epoch; without one, of one who has nothing."""
        relation = relation.lower()
        newest = self._newest(relation)
        then = None if after is None else newest.history.at(relation, after)
        if newest.relation is None and then is None:
            raise RelationNameError(
                f"there is no table or view {relation}", hint="SHOW TABLES and SHOW VIEWS list what there is"
            )
        if after is not None:
            refuse_unreadable(self._ledger, after, newest.epoch)
        return Position(relation, after, then)

    def step(self, position: Position, until: int | None = None) -> Step:
        """The next that happens after a position, up to and including an epoch; progress if that is nothing.

        Only a reset may go beyond `until`: it always is what the relation holds now.
        """
        newest = self._newest(position.relation)
        present = newest.history.at(position.relation, newest.epoch)
        if newest.relation is None or newest.content is None or present is None:
            return Dropped(position.relation, newest.history.dropped_at(position.relation, newest.epoch))
        if position.epoch is not None:
            refuse_unreadable(self._ledger, position.epoch, newest.epoch)
        # Who has what there was before the relation was first made has nothing that could be another now.
        if position.epoch is None or not (position.columns or present).goes_on_as(present):
            return _reset(newest, newest.relation, newest.content, present)
        self._recent.ask_for(position.relation, newest.epoch)
        last = min(newest.epoch, position.epoch + EPOCHS, newest.epoch if until is None else until)
        if last <= position.epoch:
            return Progress(position)
        entries, reached = self._entries(newest, position.relation, max(position.epoch, present.born - 1), last)
        try:
            epochs = [epoch_changes(entry, newest.relation) for entry in newest.history.under(entries, present)]
        except ResultTooLarge:
            # Its content is told piece by piece.
            return _reset(newest, newest.relation, newest.content, present)
        told = tuple(one for one in epochs if one.rows.num_rows)
        after = Position(position.relation, reached, present)
        return Changes(after, told) if told else Progress(after)

    def _entries(self, newest: Newest, relation: str, after: int, until: int) -> tuple[list[Entry], int]:
        """A relation's log after an epoch, and how far it was read: no further than what makes a step."""
        recent = self._recent.between(relation, after, until)
        if recent is not None:
            return recent, until
        if newest.changed_at <= after:
            return [], until
        entries: list[Entry] = []
        rows = 0
        try:
            for entry in self._ledger.entries(relation, after, until):
                entries.append(entry)
                rows += len(entry.weights)
                if rows >= ROWS:
                    return entries, entry.epoch
            return entries, until
        finally:
            # What expires while it is read may be missing from what was read.
            refuse_expired(self._ledger, after)


def _reset(newest: Newest, relation: Relation, content: State, columns: Columns) -> Reset:
    held = HeldRows(content, relation.schema.names)
    return Reset(Position(relation.name, newest.epoch, columns), relation.schema, held, next(_readings))
