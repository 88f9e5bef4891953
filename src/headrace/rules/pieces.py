"""Which pieces of the touched partitions a window reads, and for which rows of them its result may have changed.

A piece is a range of sort keys of one partition. A change is felt as far as windows look at it from either side; the
result of a row that feels it is right when everything that row looks at is in the piece. Both are measured in the rows
before the change and in those after it, and the wider counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.rules.ways import FirstRows, Look, Way
from headrace.state.arranged import Arrangement, SortKeys, ends_of, moved, starts_of

# Partitions with fewer rows for each changed one are read whole: that is cheaper than to look for their pieces.
FEW = 256

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Disjoint ranges of sort keys in rising order; from `first` to `last` a row may have a new result.

    Where all are `whole` partitions, no row needs to know its piece.
    """

    starts: SortKeys
    ends: SortKeys
    first: SortKeys
    last: SortKeys
    whole: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    def numbers(self, keys: SortKeys) -> Numbers:
        """The piece that each key lies in, or -1."""
        places = np.searchsorted(self.starts, keys, "right") - 1
        if len(self) == 0:
            return places
        return np.where((places >= 0) & (keys <= self.ends[places]), places, -1)

    def felt(self, keys: SortKeys, numbers: Numbers) -> Flags:
        """Whether the row with a key, in the piece with a number, may have a new result."""
        return (keys >= self.first[numbers]) & (keys <= self.last[numbers])


def find_pieces(way: Way, before: Arrangement, after: Arrangement, changed: SortKeys) -> Pieces:
    """The pieces that the changed keys (sorted, distinct) call for."""
    owners = starts_of(changed)
    partitions, counts = np.unique(owners, return_counts=True)
    each = way.first is None and not way.onward
    large = before.sizes(partitions) > FEW * (counts if each else 1)
    whole = partitions[~large]
    pieces = Pieces(whole, ends_of(whole), whole, ends_of(whole), whole=True)
    if not bool(large.any()):
        return pieces
    if way.first is not None:
        return _joined([pieces, _first_rows(way.first, way, before, after, changed, partitions[large])])
    some = changed[np.isin(owners, partitions[large])]
    if way.onward:
        # The first changed key of each partition decides.
        some = some[np.unique(starts_of(some), return_index=True)[1]]
    return _joined([pieces, _within_reach(way, before, after, some)])


def _first_rows(
    first: FirstRows, way: Way, before: Arrangement, after: Arrangement, changed: SortKeys, partitions: SortKeys
) -> Pieces:
    """Each partition from its start to the last row that may be wanted, unless nothing has changed up to there."""

    def up_to(rows: Arrangement) -> SortKeys:
        return rows.ahead(partitions, first.limit, distinct=first.distinct, inclusive=True)

    ends = _later(up_to(before), up_to(after))
    for looks in reversed(way.looks):
        ends = _ahead(before, after, ends, looks)
    lows = changed[np.searchsorted(changed, partitions, "left")]
    near = lows <= ends
    starts, ends = partitions[near], ends[near]
    return Pieces(starts, ends, starts, ends)


def _within_reach(way: Way, before: Arrangement, after: Arrangement, changed: SortKeys) -> Pieces:
    first = last = changed
    for looks in way.looks:
        first = _behind(before, after, first, [_turned(look) for look in looks])
        if not way.onward:
            last = _ahead(before, after, last, [_turned(look) for look in looks])
    if way.onward:
        last = ends_of(changed)
    starts, ends = first, last
    for looks in reversed(way.looks):
        starts = _behind(before, after, starts, looks)
        ends = _ahead(before, after, ends, looks)
    return _merged(Pieces(starts, ends, first, last))


def _turned(look: Look) -> Look:
    """Who looks ahead so far is seen by those so far behind."""
    return Look(look.rows_ahead, look.rows_behind, look.ahead, look.behind)


def _behind(before: Arrangement, after: Arrangement, keys: SortKeys, looks: Sequence[Look]) -> SortKeys:
    rows, distance = max(look.rows_behind for look in looks), max(look.behind for look in looks)
    keys = moved(keys, -distance) if distance else keys
    return _earlier(before.behind(keys, rows), after.behind(keys, rows)) if rows else keys


def _ahead(before: Arrangement, after: Arrangement, keys: SortKeys, looks: Sequence[Look]) -> SortKeys:
    rows, distance = max(look.rows_ahead for look in looks), max(look.ahead for look in looks)
    keys = moved(keys, distance) if distance else keys
    return _later(before.ahead(keys, rows), after.ahead(keys, rows)) if rows else keys


def _earlier(left: SortKeys, right: SortKeys) -> SortKeys:
    return np.where(left < right, left, right)


def _later(left: SortKeys, right: SortKeys) -> SortKeys:
    return np.where(left > right, left, right)


def _joined(parts: Sequence[Pieces]) -> Pieces:
    starts, ends, first, last = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("starts", "ends", "first", "last")
    )
    order = np.argsort(starts, kind="stable")
    return Pieces(starts[order], ends[order], first[order], last[order])


def _merged(pieces: Pieces) -> Pieces:
    """Pieces that overlap as one."""
    order = np.argsort(pieces.starts, kind="stable")
    starts, ends = pieces.starts[order], pieces.ends[order]
    first, last = pieces.first[order], pieces.last[order]
    kept: list[int] = []
    for i in range(len(starts)):
        if kept and starts[i] <= ends[kept[-1]]:
            place = kept[-1]
            ends[place] = max(ends[place], ends[i])
            first[place] = min(first[place], first[i])
            last[place] = max(last[place], last[i])
        else:
            kept.append(i)
    return Pieces(starts[kept], ends[kept], first[kept], last[kept])
