"""The changes that one epoch takes for one table, on top of the table's committed state.

Calls are taken in order, each on top of those accepted before it and each as a whole or not at all.
What remains at the end is the net change: what must leave the committed state, and what must enter it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from headrace.errors import Rejection
from headrace.intake.identity import Identity, Row
from headrace.intake.positions import SourcePosition, is_stale, kept_position
from headrace.intake.table import MOST_REASONS, Decoded, TableContract


class Found(NamedTuple):
    """A committed row of a key: how the state knows it, and its sequence if the table has one."""

    handle: object
    sequence: Any = None


class Tombstone(NamedTuple):
    """A deleted key, the sequence of its delete, and when the delete was taken."""

    key: Row
    sequence: Any
    deleted_at: datetime


class KeptCell(NamedTuple):
    """A value of an added row that stays as a committed row has it: its position, and the column's index."""

    row: int
    column: int
    handle: object


@dataclass(frozen=True)
class Taken:
    """What became of one call's changes; with any rejection nothing was applied, unless each stood alone."""

    applied: int
    stale: int = 0
    rejections: tuple[Rejection, ...] = ()


@dataclass(frozen=True)
class Net:
    """The difference between the committed state and the overlay.

    A tombstone that is set takes the place of any that the key had; one that is removed belongs to a key
    that has a row again. Rows come with how many of them leave or enter; the kept cells of added ones are None there.
    A position that is set takes the place of the one that the key had.
    """

    removed_handles: list[object] = field(default_factory=list[object])
    removed_rows: list[tuple[Row, int]] = field(default_factory=list[tuple[Row, int]])
    added_rows: list[tuple[Row, int]] = field(default_factory=list[tuple[Row, int]])
    kept_cells: list[KeptCell] = field(default_factory=list[KeptCell])
    tombstones_set: list[Tombstone] = field(default_factory=list[Tombstone])
    tombstones_removed: list[Row] = field(default_factory=list[Row])
    positions_set: list[tuple[Row, SourcePosition]] = field(default_factory=list[tuple[Row, SourcePosition]])

    def __bool__(self) -> bool:
        return any(vars(self).values())


Lookup = Callable[[list[Row]], Mapping[Identity, Found]]
Tombstones = Callable[[list[Row]], Mapping[Identity, Any]]
Positions = Callable[[list[Row]], Mapping[Identity, SourcePosition]]
Count = Callable[[list[Row]], Mapping[Identity, int]]


class Overlay:
    """One table's accepted changes of one epoch.

    `lookup` finds the committed rows of keys, `tombstones` the sequences of keys deleted earlier, `positions`
    where in their sources the last changes of keys were, `count` how often rows without a key are committed;
    each is asked once a call, for what is not yet known, and answers by identity. A keyed table needs the
    first, one with a sequence also the second, one that takes captured changes the third, one without a key
    the last. `emptied_at` is where in its source all rows of the table last ended: what was before is stale.
    """

    def __init__(
        self,
        contract: TableContract,
        *,
        lookup: Lookup | None = None,
        tombstones: Tombstones | None = None,
        positions: Positions | None = None,
        emptied_at: SourcePosition | None = None,
        count: Count | None = None,
    ) -> None:
        self.contract = contract
        if contract.key:
            if lookup is None or (contract.sequence is not None and tombstones is None):
                raise ValueError(f"table {contract.name} has a key: its committed rows must be found by it")
            self._pending = _Keys(contract, lookup, tombstones, positions, emptied_at)
        else:
            if count is None:
                raise ValueError(f"table {contract.name} has no key: its committed rows must be counted")
            self._pending = _Bag(count)

    def take(
        self,
        changes: Sequence[object],
        now: datetime,
        *,
        each: bool = False,
        positions: Sequence[SourcePosition | None] | None = None,
    ) -> Taken:
        """Apply one call's changes in order, or none of them if any is rejected; with `each`, all but those.

        Captured changes come with their positions in their source; a table without a key has no use for them.
        """
        decoded, reasons = self.contract.decode_all(changes, most=len(changes) if each else None)
        mark = self.checkpoint()
        stale = 0
        if isinstance(self._pending, _Keys):
            # What an update keeps may come from a change that is refused: a rejected call is looked at no further.
            if each or not reasons:
                stale, lacking = self._pending.take(decoded, now, positions)
                reasons.update(lacking)
        else:
            reasons.update(self._pending.take(decoded))
        if not reasons:
            return Taken(len(changes) - stale, stale)
        rejections = (Rejection(self.contract.name, i, reasons[i], changes[i]) for i in sorted(reasons))
        if each:
            return Taken(len(changes) - stale - len(reasons), stale, tuple(rejections))
        self.rollback(mark)
        return Taken(0, 0, tuple(itertools.islice(rejections, MOST_REASONS)))

    def checkpoint(self) -> int:
        """A mark of what is accepted so far."""
        return len(self._pending.journal)

    def rollback(self, mark: int) -> None:
        """Undo everything taken since the mark, at the cost of what was taken."""
        self._pending.rollback(mark)

    def net(self) -> Net:
        """The net change of everything accepted so far."""
        return self._pending.net()


_NOTHING_TO_KEEP = "there is no row of this key whose other columns the update could keep"
# An accepted change of a key, the rank of its sequence, and when it was taken.
_Taken = tuple[Decoded, Any, datetime]
# A key, and where in its source its last change was.
_Moved = tuple[Row, SourcePosition]


class _Keys:
    """Accepted changes by key: the last one of a key stands for all of them."""

    def __init__(
        self,
        contract: TableContract,
        lookup: Lookup,
        tombstones: Tombstones | None,
        positions: Positions | None,
        emptied_at: SourcePosition | None,
    ) -> None:
        self._lookup = lookup
        self._positions = positions
        self._emptied_at = emptied_at
        self._tombstones = tombstones if contract.sequence is not None else None
        self._rank = contract.sequence_rank
        self._found: dict[Identity, Found | None] = {}
        self._buried: dict[Identity, Any] = {}
        self._floor: dict[Identity, Any] = {}
        self._latest: dict[Identity, _Taken] = {}
        # Where in their sources the last changes of keys were: the committed ones, and those accepted since.
        self._known: dict[Identity, SourcePosition | None] = {}
        self._moved: dict[Identity, _Moved] = {}
        self.journal: list[tuple[Identity, _Taken | None, _Moved | None]] = []

    def take(
        self,
        changes: Sequence[Decoded | None],
        now: datetime,
        positions: Sequence[SourcePosition | None] | None = None,
    ) -> tuple[int, dict[int, str]]:
        """Take the changes in order; the number of stale ones, and the reasons against those that must be rejected."""
        self._learn(changes)
        if positions is not None:
            self._learn_positions(changes, positions)
        latest, floors, rank_of, journal = self._latest, self._floor, self._rank, self.journal
        moved = self._moved
        rank = None
        stale = 0
        reasons: dict[int, str] = {}
        for index, change in enumerate(changes):
            if change is None:
                continue
            mark = change.identity
            before = latest.get(mark)
            # Whether nothing but positions can tell which of two changes of the key is the newer one.
            tied = True
            if rank_of is not None:
                rank = rank_of(change.sequence)
                floor = before[1] if before is not None else floors.get(mark)
                if floor is not None and rank < floor:
                    stale += 1
                    continue
                tied = floor is not None and rank == floor
            position = None if positions is None else positions[index]
            if position is not None:
                if self._emptied_at is not None and rank_of is None and is_stale(position, self._emptied_at):
                    stale += 1
                    continue
                known = moved[mark][1] if mark in moved else self._known[mark]
                if tied and known is not None and is_stale(position, known):
                    stale += 1
                    kept = kept_position(position, known, stale=True)
                    if kept != known:
                        journal.append((mark, before, moved.get(mark)))
                        moved[mark] = change.key, kept
                    continue
                position = kept_position(position, known if tied else None, stale=False)
            if change.kept:
                whole = self._completed(change, None if before is None else before[0])
                if whole is None:
                    reasons[index] = _NOTHING_TO_KEEP
                    continue
                change = whole
            journal.append((mark, before, moved.get(mark)))
            latest[mark] = (change, rank, now)
            if position is not None:
                moved[mark] = change.key, position
        return stale, reasons

    def _completed(self, change: Decoded, before: Decoded | None) -> Decoded | None:
        """An update with what it keeps of an accepted change; it still keeps what that one keeps of the committed row.

        None if the key has no row to keep anything of.
        """
        if before is None:
            return None if self._found[change.identity] is None else change
        if before.row is None:
            return None
        row = list(change.row or ())
        for column in change.kept:
            row[column] = before.row[column]
        return change._replace(row=tuple(row), kept=tuple(set(change.kept).intersection(before.kept)))

    def _learn(self, changes: Sequence[Decoded | None]) -> None:
        """Find the committed rows and tombstones of keys not asked for before."""
        unknown = {one.identity: one.key for one in changes if one is not None and one.identity not in self._found}
        if not unknown:
            return
        found = self._lookup(list(unknown.values()))
        absent = {mark: key for mark, key in unknown.items() if mark not in found}
        if self._rank is not None and self._tombstones is not None:
            buried = self._tombstones(list(absent.values())) if absent else {}
            # Both answers are there before anything is remembered, so that a failure leaves no half of it.
            self._buried.update(buried)
            self._floor.update((mark, self._rank(sequence)) for mark, sequence in buried.items())
            self._floor.update((mark, self._rank(row.sequence)) for mark, row in found.items())
        self._found.update(dict.fromkeys(absent))
        self._found.update(found)

    def _learn_positions(self, changes: Sequence[Decoded | None], positions: Sequence[SourcePosition | None]) -> None:
        """Find the committed positions of keys not asked for before."""
        if self._positions is None:
            raise ValueError("captured changes need the positions of those before them")
        unknown = {
            one.identity: one.key
            for one, position in zip(changes, positions, strict=True)
            if one is not None and position is not None and one.identity not in self._known
        }
        if unknown:
            found = self._positions(list(unknown.values()))
            self._known.update((mark, found.get(mark)) for mark in unknown)

    def rollback(self, mark: int) -> None:
        while len(self.journal) > mark:
            identity, before, moved = self.journal.pop()
            if before is None:
                self._latest.pop(identity, None)
            else:
                self._latest[identity] = before
            if moved is None:
                self._moved.pop(identity, None)
            else:
                self._moved[identity] = moved

    def net(self) -> Net:
        net = Net()
        for mark, (change, rank, taken_at) in self._latest.items():
            found = self._found[mark]
            if found is not None:
                net.removed_handles.append(found.handle)
            if change.row is not None:
                for column in change.kept:
                    assert found is not None, "only of a row that is there is anything kept"
                    net.kept_cells.append(KeptCell(len(net.added_rows), column, found.handle))
                net.added_rows.append((change.row, 1))
                if mark in self._buried:
                    net.tombstones_removed.append(change.key)
            elif self._rank is not None and (mark not in self._buried or self._floor[mark] != rank):
                net.tombstones_set.append(Tombstone(change.key, change.sequence, taken_at))
        net.positions_set.extend(self._moved.values())
        return net


class _Tally:
    """One row of a bag: how many came or went, and, once asked, how many are committed."""

    __slots__ = ("committed", "row", "weight")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.weight = 0
        self.committed: int | None = None


class _Bag:
    """Accepted changes of a table without a key: how many of each row came or went."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._tallies: dict[Identity, _Tally] = {}
        self.journal: list[tuple[_Tally, int]] = []

    def take(self, changes: Sequence[Decoded | None]) -> dict[int, str]:
        """Take the changes in order; the reasons against those that must be rejected, by position."""
        reasons: dict[int, str] = {}
        for index, (change, tally) in enumerate(zip(changes, self._tallied(changes), strict=True)):
            if change is None or tally is None:
                continue
            before = tally.weight
            if not change.delete:
                tally.weight = before + 1
            elif (tally.committed or 0) + before > 0:
                tally.weight = before - 1
            else:
                reasons[index] = "the row to delete is not in the table"
                continue
            self.journal.append((tally, before))
        return reasons

    def _tallied(self, changes: Sequence[Decoded | None]) -> list[_Tally | None]:
        """The tally of each change; those of deletes know how often their row is committed."""
        # Hashing a wide row costs more than taking it: each is looked up once here and never again.
        tallies: list[_Tally | None] = []
        unknown: dict[Identity, _Tally] = {}
        for change in changes:
            if change is None or change.row is None:
                tallies.append(None)
                continue
            tally = self._tallies.get(change.identity)
            if tally is None:
                tally = self._tallies[change.identity] = _Tally(change.row)
            if change.delete and tally.committed is None:
                unknown[change.identity] = tally
            tallies.append(tally)
        if unknown:
            counts = self._count([tally.row for tally in unknown.values()])
            for mark, tally in unknown.items():
                tally.committed = counts.get(mark, 0)
        return tallies

    def rollback(self, mark: int) -> None:
        while len(self.journal) > mark:
            tally, before = self.journal.pop()
            tally.weight = before

    def net(self) -> Net:
        net = Net()
        for tally in self._tallies.values():
            if tally.weight > 0:
                net.added_rows.append((tally.row, tally.weight))
            elif tally.weight < 0:
                net.removed_rows.append((tally.row, -tally.weight))
        return net
