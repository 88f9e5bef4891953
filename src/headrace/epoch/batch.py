"""The calls of one epoch so far: each is checked on top of those accepted before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from headrace.catalog.catalog import Catalog, Table
from headrace.epoch.bulk import Bulk, bulk_delta
from headrace.epoch.column_changes import ColumnChanges, Held, take_columns
from headrace.epoch.emptied import emptied_deltas
from headrace.epoch.pending import Pending
from headrace.epoch.work import Work
from headrace.errors import ChangesRejected, Rejection
from headrace.intake.overlay import Taken
from headrace.intake.positions import Captured, Emptied
from headrace.state.delta import Delta, concat
from headrace.state.state import State

Changes = Mapping[str, Sequence[object] | Bulk | ColumnChanges]
Counts = dict[str, int]
_Accepted = Mapping[str, tuple[State, tuple[Delta, ...]]]
_Mark = tuple[_Accepted, Pending | None, int]
BatchMark = Mapping[str, tuple["_TableSoFar", _Mark]]


@dataclass(frozen=True)
class Verdicts:
    """What became of one call's changes: how many of each table were applied, or were stale, and those rejected."""

    applied: Counts
    stale: Counts
    rejections: tuple[Rejection, ...] = ()

    @property
    def dead(self) -> Counts:
        """How many of each table were rejected."""
        return {**dict.fromkeys(self.applied, 0), **Counter(one.table for one in self.rejections)}


@dataclass(frozen=True)
class WorkedOut:
    """What a call comes to change when its turn has come, given all that was accepted before it.

    The receipt tells what is `told`; calls that come later in the same epoch find what is `noted`.
    """

    changes: Changes
    told: Mapping[str, Any]
    noted: Mapping[tuple[str, ...], object]


class Batch:
    """What the accepted calls of one epoch change, and what every relation holds after them."""

    def __init__(self, catalog: Catalog, work: Work, now: datetime, retention: timedelta) -> None:
        self._catalog = catalog
        self._work = work
        self._now = now
        self._retention = retention
        self._tables: dict[str, _TableSoFar] = {}
        # What accepted calls have left for those after them, which need not look it up among the pending changes.
        self.notes: dict[tuple[str, ...], object] = {}

    @property
    def now(self) -> datetime:
        """The time of the epoch."""
        return self._now

    @property
    def catalog(self) -> Catalog:
        """The relations that calls may change."""
        return self._catalog

    def before(self, store: str) -> State:
        """What a store held before the epoch."""
        return self._work.before(store)

    def take(self, changes: Changes, *, each: bool = False) -> Verdicts:
        """Take one call's changes, or none of them if any is rejected; with `each`, all but those that are."""
        applied: Counts = {}
        stale: Counts = {}
        rejections: list[Rejection] = []
        marks: list[tuple[_TableSoFar, _Mark]] = []
        try:
            for name, listed in changes.items():
                table = self._so_far(self._catalog.table(name))
                marks.append((table, table.mark()))
                try:
                    taken = table.take(listed, each)
                except ChangesRejected as error:
                    rejections.extend(error.rejections)
                    continue
                rejections.extend(taken.rejections)
                applied[table.name] = applied.get(table.name, 0) + taken.applied
                stale[table.name] = stale.get(table.name, 0) + taken.stale
            if rejections and not each:
                raise ChangesRejected(rejections)
        except BaseException:
            for table, mark in reversed(marks):
                table.rollback(mark)
            raise
        return Verdicts(applied, stale, tuple(rejections))

    def mark(self) -> BatchMark:
        """A mark of what is accepted so far."""
        return {name: (table, table.mark()) for name, table in self._tables.items()}

    def rollback(self, mark: BatchMark) -> None:
        """Undo everything taken since the mark."""
        for name, table in list(self._tables.items()):
            if name in mark:
                table.rollback(mark[name][1])
            else:
                del self._tables[name]

    def changes(self, name: str) -> bool:
        """Whether the accepted calls change what a relation holds, or may change it as far as can be told by now."""
        relation = self._catalog.relations[name]
        moved = [name for name, table in self._tables.items() if table.changed()]
        return name in moved or any(relation in self._catalog.dependents(one) for one in moved)

    def deltas(self) -> dict[str, Delta]:
        """The net change of all accepted calls: of the tables, and of what is remembered of their keys."""
        return {name: delta for table in self._tables.values() for name, delta in table.deltas().items()}

    def _so_far(self, table: Table) -> _TableSoFar:
        found = self._tables.get(table.name)
        if found is None:
            found = self._tables[table.name] = _TableSoFar(table, self._work, self._now, self._retention)
        return found


class _TableSoFar:
    """One table's accepted changes: deltas of those that are flushed, and on top of them what is still pending.

    Changes row by row stay pending as long as they can, since one lookup serves them all; they are flushed when a
    statement reads the table or changes it by whole columns.
    """

    def __init__(self, table: Table, work: Work, now: datetime, retention: timedelta) -> None:
        self.name = table.name
        self._table = table
        self._now = now
        self._retention = retention
        stores = table.stores
        # Of each store, what it holds by now, and the deltas that brought it there.
        self._accepted: _Accepted = {store.name: (work.before(store.name), ()) for store in stores}
        self._pending: Pending | None = None

    def take(self, listed: Sequence[object] | Bulk | ColumnChanges, each: bool) -> Taken:
        """Take changes of this table, all or none of them, or each by itself."""
        if isinstance(listed, Bulk):
            self._add({self.name: bulk_delta(self._table, self.snapshot(), listed)})
            return Taken(len(listed))
        if isinstance(listed, ColumnChanges):
            return self._take_columns(listed, each)
        if isinstance(listed, Captured) and any(isinstance(one, Emptied) for one in listed):
            return self._take_parts(listed, each)
        if self._pending is None:
            held = (
                None if one is None else self._after(one.name)
                for one in (self._table.tombstones, self._table.positions)
            )
            self._pending = Pending(self._table, self._after(self.name), *held)
        positions = listed.positions if isinstance(listed, Captured) and self._table.contract.key else None
        taken = self._pending.overlay.take(listed, self._now, each=each, positions=positions)
        if taken.rejections and not each:
            raise ChangesRejected(taken.rejections)
        return taken

    def _take_parts(self, listed: Captured, each: bool) -> Taken:
        """Take changes among which all rows of the table end, which counts as a change itself."""
        ends = [index for index, one in enumerate(listed) if isinstance(one, Emptied)]
        applied, stale = len(ends), 0
        rejections: list[Rejection] = []
        begin = 0
        for end in (*ends, len(listed)):
            if end > begin:
                taken = self.take(listed.part(begin, end), each)
                applied, stale = applied + taken.applied, stale + taken.stale
                rejections += [replace(one, index=begin + one.index) for one in taken.rejections]
            if end < len(listed):
                rows = self.snapshot()
                positions = None if self._table.positions is None else self._after(self._table.positions.name)
                self._add(emptied_deltas(self._table, rows, positions, listed.positions[end]))
            begin = end + 1
        return Taken(applied, stale, tuple(rejections))

    def _take_columns(self, listed: ColumnChanges, each: bool) -> Taken:
        """Take changes by whole columns, and after them those of other keys, one by one."""
        self._flush()
        stores = (self._table.store, self._table.tombstones, self._table.positions)
        rows, *remembered = (None if one is None else self._after(one.name) for one in stores)
        assert rows is not None
        deltas, taken, left = take_columns(self._table, Held(rows, *remembered), listed, self._now, self._retention)
        if taken.rejections and not each:
            raise ChangesRejected(taken.rejections)
        self._add(deltas)
        for others in (listed.others, left):
            if others:
                more = self.take(others, each)
                rejections = (*taken.rejections, *more.rejections)
                taken = Taken(taken.applied + more.applied, taken.stale + more.stale, rejections)
        return taken

    def mark(self) -> _Mark:
        """A mark of what is accepted so far."""
        return self._accepted, self._pending, 0 if self._pending is None else self._pending.overlay.checkpoint()

    def rollback(self, mark: _Mark) -> None:
        """Undo everything taken since the mark."""
        self._accepted, self._pending, taken = mark
        if self._pending is not None:
            self._pending.overlay.rollback(taken)

    def snapshot(self) -> State:
        """What the table holds after its accepted changes."""
        self._flush()
        return self._after(self.name)

    def changed(self) -> bool:
        """Whether anything is accepted that may have changed the table."""
        self._flush()
        return bool(self._accepted[self.name][1])

    def deltas(self) -> dict[str, Delta]:
        """The net change of the table, and of what is remembered of its keys."""
        self._flush()
        return {name: concat(state.schema, deltas) for name, (state, deltas) in self._accepted.items()}

    def _flush(self) -> None:
        if self._pending is not None:
            self._add(self._pending.deltas(self._now, self._retention))
            self._pending = None

    def _add(self, deltas: Mapping[str, Delta]) -> None:
        accepted = dict(self._accepted)
        for name, delta in deltas.items():
            if len(delta):
                state, before = accepted[name]
                accepted[name] = state.plus(delta), (*before, delta)
        self._accepted = accepted

    def _after(self, store: str) -> State:
        return self._accepted[store][0]
