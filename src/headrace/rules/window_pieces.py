"""Which pieces of the touched partitions a window reads, and for which rows of them its result may have changed.

A piece is a range of sort keys of one partition. A change affects the rows that look at it from either side; the
result of an affected row is right when everything that row looks at is in the piece. Both are measured in the rows
before the change and in those after it, and the wider counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.rules.window_reach import FirstRows, FrameReach, WindowReach
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
        positions = np.searchsorted(self.starts, keys, "right") - 1
        if len(self) == 0:
            return positions
        return np.where((positions >= 0) & (keys <= self.ends[positions]), positions, -1)

    def affected(self, keys: SortKeys, numbers: Numbers) -> Flags:
        """Whether the row with a key, in the piece with a number, may have a new result."""
        return (keys >= self.first[numbers]) & (keys <= self.last[numbers])


def find_pieces(reach: WindowReach, before: Arrangement, after: Arrangement, changed: SortKeys) -> Pieces:
    """The pieces that the changed keys (sorted, distinct) call for."""
    owners = starts_of(changed)
    partitions, counts = np.unique(owners, return_counts=True)
    each = reach.first is None and not reach.onward
    large = before.sizes(partitions) > FEW * (counts if each else 1)
    whole = partitions[~large]
    pieces = Pieces(whole, ends_of(whole), whole, ends_of(whole), whole=True)
    if not bool(large.any()):
        return pieces
    if reach.first is not None:
        return _joined([pieces, _first_rows(reach.first, reach, before, after, changed, partitions[large])])
    some = changed[np.isin(owners, partitions[large])]
    if reach.onward:
        # The first changed key of each partition decides.
        some = some[np.unique(starts_of(some), return_index=True)[1]]
    return _joined([pieces, _within_reach(reach, before, after, some)])


def _first_rows(
    first: FirstRows,
    reach: WindowReach,
    before: Arrangement,
    after: Arrangement,
    changed: SortKeys,
    partitions: SortKeys,
) -> Pieces:
    """Each partition from its start to the last row that may be wanted, unless nothing has changed up to there."""

    def up_to(rows: Arrangement) -> SortKeys:
        return rows.ahead(partitions, first.limit, distinct=first.distinct, inclusive=True)

    ends = _later(up_to(before), up_to(after))
    for frames in reversed(reach.frames):
        ends = _ahead(before, after, ends, frames)
    lows = changed[np.searchsorted(changed, partitions, "left")]
    near = lows <= ends
    starts, ends = partitions[near], ends[near]
    return Pieces(starts, ends, starts, ends)


def _within_reach(reach: WindowReach, before: Arrangement, after: Arrangement, changed: SortKeys) -> Pieces:
    first = last = changed
    for frames in reach.frames:
        first = _behind(before, after, first, [_mirrored(frame) for frame in frames])
        if not reach.onward:
            last = _ahead(before, after, last, [_mirrored(frame) for frame in frames])
    if reach.onward:
        last = ends_of(changed)
    starts, ends = first, last
    for frames in reversed(reach.frames):
        starts = _behind(before, after, starts, frames)
        ends = _ahead(before, after, ends, frames)
    return _merged(Pieces(starts, ends, first, last))


def _mirrored(frame: FrameReach) -> FrameReach:
    """Who looks ahead so far is seen by those so far behind."""
    return FrameReach(frame.rows_ahead, frame.rows_behind, frame.ahead, frame.behind)


def _behind(before: Arrangement, after: Arrangement, keys: SortKeys, frames: Sequence[FrameReach]) -> SortKeys:
    rows, distance = max(frame.rows_behind for frame in frames), max(frame.behind for frame in frames)
    keys = moved(keys, -distance) if distance else keys
    return _earlier(before.behind(keys, rows), after.behind(keys, rows)) if rows else keys


def _ahead(before: Arrangement, after: Arrangement, keys: SortKeys, frames: Sequence[FrameReach]) -> SortKeys:
    rows, distance = max(frame.rows_ahead for frame in frames), max(frame.ahead for frame in frames)
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
            last_kept = kept[-1]
            ends[last_kept] = max(ends[last_kept], ends[i])
            first[last_kept] = min(first[last_kept], first[i])
            last[last_kept] = max(last[last_kept], last[i])
        else:
            kept.append(i)
    return Pieces(starts[kept], ends[kept], first[kept], last[kept])
