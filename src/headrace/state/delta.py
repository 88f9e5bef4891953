"""A delta: the net change of one relation in one epoch, as rows with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state import mapped
from headrace.state.hashing import Hashes, identity

Weights = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Delta:
    """Distinct rows, each with a weight that is not zero and the 128 bits of its identity."""

    rows: pa.Table
    weights: Weights
    low: Hashes
    high: Hashes

    def __len__(self) -> int:
        return len(self.weights)


def weights_of(values: Sequence[int] | Weights) -> Weights:
    """Weights as the array type that deltas carry."""
    return np.asarray(values, dtype=np.int64)


def empty(schema: pa.Schema) -> Delta:
    """The delta of a relation that did not change."""
    none = np.zeros(0, dtype=np.uint64)
    return Delta(schema.empty_table(), np.zeros(0, dtype=np.int64), none, none)


def consolidate(rows: pa.Table, weights: Weights) -> Delta:
    """Sum the weights of equal rows and drop what comes to zero."""
    if rows.num_rows <= mapped.LARGE and any(column.num_chunks > 1 for column in rows.columns):
        # Rows are gathered by position ever after, which is slow across many chunks.
        rows = rows.combine_chunks()
    low, high = identity(rows.columns, len(weights))
    return combine(rows, weights, low, high)


def combine(rows: pa.Table, weights: Weights, low: Hashes, high: Hashes) -> Delta:
    """Like consolidate, for rows whose identity is known."""
    return combine_with_positions(rows, weights, low, high)[0]


def combine_with_positions(rows: pa.Table, weights: Weights, low: Hashes, high: Hashes) -> tuple[Delta, Positions]:
    """The sum of the rows, and where each row of it first was."""
    kept = surviving(weights, low, high)
    if kept is None:
        return Delta(rows, weights, low, high), np.arange(len(weights))
    positions, sums = kept
    return Delta(gather_rows(rows, positions), sums, low[positions], high[positions]), positions


def surviving(weights: Weights, low: Hashes, high: Hashes) -> tuple[Positions, Weights] | None:
    """Where the rows are, in order, whose summed weight is not zero, and the sums; None if all differ as they are."""
    # Nearly always all rows differ, and to know that takes far less than to bring them into order.
    if all_differ(low) and bool(np.all(weights != 0)):
        return None
    order, fresh = _in_order(low, high)
    starts = np.flatnonzero(fresh)
    sums = np.add.reduceat(weights[order], starts)
    kept = sums != 0
    positions = order[starts][kept]
    in_order = np.argsort(positions, kind="stable")
    return positions[in_order], sums[kept][in_order]


def all_differ(hashes: Hashes) -> bool:
    """Whether no hash comes twice; then nothing that it stands for does."""
    ordered = np.sort(hashes)
    return not bool(np.any(ordered[1:] == ordered[:-1]))


def gather(delta: Delta, positions: Positions) -> Delta:
    """The rows of a delta at these positions."""
    rows = gather_rows(delta.rows, positions)
    return Delta(rows, delta.weights[positions], delta.low[positions], delta.high[positions])


def gather_rows(rows: pa.Table, positions: Positions) -> pa.Table:
    """The rows at these positions; many of a large table, if they rise, stretch by stretch and outside the heap."""
    few = rows.num_rows <= mapped.LARGE or len(positions) <= mapped.LARGE
    if few or bool(np.any(positions[1:] < positions[:-1])):
        return rows.take(pa.array(positions))
    starts = range(0, rows.num_rows, mapped.STRETCH)
    bounds = np.searchsorted(positions, [*starts, rows.num_rows])
    parts = zip(starts, mapped.stretches(rows), bounds[:-1], bounds[1:], strict=True)
    return mapped.rows(rows.schema, (part.take(pa.array(positions[a:b] - start)) for start, part, a, b in parts))


def concat(schema: pa.Schema, deltas: Sequence[Delta]) -> Delta:
    """The sum of several deltas of one relation."""
    parts = [delta for delta in deltas if len(delta)]
    if not parts:
        return empty(schema)
    if len(parts) == 1:
        return parts[0]
    return combine(*end_to_end(parts))


def end_to_end(parts: Sequence[Delta]) -> tuple[pa.Table, Weights, Hashes, Hashes]:
    """The rows of several deltas, one after the other, with what belongs to them; the same row may come twice."""
    rows = pa.concat_tables([part.rows for part in parts])
    return (
        rows.combine_chunks() if rows.num_rows <= mapped.LARGE else rows,
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
    )


def negate(delta: Delta) -> Delta:
    """The delta that undoes this one."""
    return Delta(delta.rows, -delta.weights, delta.low, delta.high)


def number_identities(low: Hashes, high: Hashes) -> tuple[Positions, npt.NDArray[np.int64]]:
    """Number the distinct identities: the first position of each, and each row's number."""
    if len(low) == 0:
        none = np.zeros(0, dtype=np.int64)
        return none, none
    order, fresh = _in_order(low, high)
    numbers = np.empty(len(low), dtype=np.int64)
    numbers[order] = np.cumsum(fresh) - 1
    return order[np.flatnonzero(fresh)], numbers


def _in_order(low: Hashes, high: Hashes) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """The positions that bring identities into order, equal ones as they came, and where each new identity begins."""
    order = np.argsort(low, kind="stable")
    other_low, other_high = (part[order][1:] != part[order][:-1] for part in (low, high))
    if bool(np.any(other_high & ~other_low)):
        # Two identities share their low half: only now does the high half decide.
        order = np.lexsort((high, low))
        other_low, other_high = (part[order][1:] != part[order][:-1] for part in (low, high))
    return order, np.concatenate(([True], other_low | other_high))


def found_among(
    low: Hashes, high: Hashes, sorted_low: Hashes, sorted_high: Hashes
) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """For each identity its position among the sorted ones, and whether it is among them at all."""
    found = np.zeros(len(low), dtype=bool)
    position = np.searchsorted(sorted_low, low, side="left")
    if len(sorted_low) == 0:
        return position, found
    # Equal low halves are so rare that a step or two to the right finds every one.
    while True:
        there = np.minimum(position, len(sorted_low) - 1)
        same = (position < len(sorted_low)) & (sorted_low[there] == low) & ~found
        match = same & (sorted_high[there] == high)
        found |= match
        onward = same & ~match
        if not bool(onward.any()):
            return position, found
        position = np.where(onward, position + 1, position)


def project(delta: Delta, columns: Sequence[int]) -> Delta:
    """Only some columns of a delta, each row still under the identity of the whole row."""
    if list(columns) == list(range(delta.rows.num_columns)):
        return delta
    return Delta(selected(delta.rows, columns), delta.weights, delta.low, delta.high)


def selected(rows: pa.Table, columns: Sequence[int]) -> pa.Table:
    """Some columns of a table, as c0, c1, ..."""
    return rows.select(list(columns)).rename_columns([f"c{i}" for i in range(len(columns))])


def project_and_sum(delta: Delta, columns: Sequence[int]) -> Delta:
    """Only some columns of a delta, summed again: rows that differed elsewhere are now equal."""
    if list(columns) == list(range(delta.rows.num_columns)):
        return delta
    rows = selected(delta.rows, columns)
    low, high = identity(rows.columns, len(delta))
    return combine(rows, delta.weights, low, high)
