"""Inner, cross and theta joins of n inputs.   Δ(R1 ⋈ ... ⋈ Rn) = R1' ⋈ ... ⋈ Rn' − R1 ⋈ ... ⋈ Rn

Only combinations with a changed row differ, and all their other rows are found from it by the join's keys. So each
input gives a slice: its changed rows and the rows reached from changes elsewhere, each with its weight before and
after. One join of the slices gives both products of weights; their difference is the delta. Rows that are in a slice
for another row's sake have equal products and drop out. Of an old row and a new one both products are zero, so that
nothing is ever worked out for rows that were never there together. State: the inputs. Cost: the change times its
fan-out.

An input without equal columns is reached whole, which is not incremental, unless it has one row, or the changed side
is a one-row threshold: then only the rows between the old and the new threshold are read.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.plans.query import Query
from headrace.rules.base import Epoch, check_bound
from headrace.rules.inner_join_thresholds import ThresholdRange
from headrace.rules.inputs import Input, hashes_of, matchable
from headrace.rules.signed import leaf_table
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty, end_to_end, gather


@dataclass(frozen=True)
class Edge:
    """Columns of two inputs of a join that must be equal; NULL equals NULL only where it is null-safe."""

    left: int
    right: int
    left_columns: tuple[int, ...]
    right_columns: tuple[int, ...]
    null_safe: bool


@dataclass(frozen=True, eq=False)
class InnerJoinRule:
    """One query over slices of all inputs."""

    types: tuple[DataType, ...]
    inputs: tuple[Input, ...]
    edges: tuple[Edge, ...]
    singles: frozenset[int]
    ranges: tuple[ThresholdRange, ...]
    query: Query

    def reached_whole(self, start: int) -> list[int]:
        """The inputs that a change of one input reads whole."""
        whole: set[int] = set()
        for first in self._first_steps(start):
            visited = {start, *([first.threshold.input] if first is not None else [])}
            while len(visited) < len(self.inputs):
                step = self._next(visited)
                position = step.right if step is not None else self._unconnected(visited)
                if step is None and position not in self.singles:
                    whole.add(position)
                visited.add(position)
        return sorted(whole)

    def _first_steps(self, start: int) -> list[ThresholdRange | None]:
        """How a change of one input sets out: by each range that its value moves, else by the join's keys."""
        return [r for r in self.ranges if r.threshold.single == start] or [None]

    def _unconnected(self, visited: Container[int]) -> int:
        """The next input when no equal columns lead to one: a one-row input if there is any."""
        rest = [i for i in range(len(self.inputs)) if i not in visited]
        return next((i for i in rest if i in self.singles), rest[0])

    def _next(self, visited: set[int]) -> Edge | None:
        """A way from an input that was visited, on the left, to one that was not."""
        for edge in self.edges:
            if edge.left in visited and edge.right not in visited:
                return edge
            if edge.right in visited and edge.left not in visited:
                return Edge(edge.right, edge.left, edge.right_columns, edge.left_columns, edge.null_safe)
        return None

    def delta(self, epoch: Epoch) -> Delta:
        """The join of the slices, weighed before and after."""
        changes = [one.changed(epoch) for one in self.inputs]
        if all(change is None for change in changes):
            return empty(arrow_schema(self.types))
        found: list[list[Delta]] = [[] for _ in self.inputs]
        for start, change in enumerate(changes):
            if change is not None:
                self._reach(epoch, start, changes, found)
        tables = [_slice(one, change, parts) for one, change, parts in zip(self.inputs, changes, found, strict=True)]
        check_bound(epoch, max(table.num_rows for table in tables))
        result = self.query.run(tables)
        width = len(self.types)
        weights = result.column(width + 1).to_numpy() - result.column(width).to_numpy()
        return consolidate(conform(result.select(list(range(width))), self.types), weights.astype(np.int64))

    def _reach(self, epoch: Epoch, start: int, changes: Sequence[Delta | None], found: list[list[Delta]]) -> None:
        """Add to the slices whatever a change of one input can combine with."""
        own = changes[start]
        assert own is not None
        for first in self._first_steps(start):
            rows: dict[int, list[Delta]] = {start: [own]}
            if first is not None:
                position = first.threshold.input
                self._add(epoch, rows, found, position, first.flipped(epoch), changes[position])
            while len(rows) < len(self.inputs):
                step = self._next(set(rows))
                if step is None:
                    position = self._unconnected(rows)
                    self._add(epoch, rows, found, position, self.inputs[position].all(epoch), changes[position])
                    continue
                position = step.right
                key = self.inputs[step.left].positions(step.left_columns)
                hashes = [matchable(part, key, step.null_safe) for part in rows[step.left]]
                wanted = np.unique(np.concatenate(hashes))
                own_key = self.inputs[position].positions(step.right_columns)
                reached = self.inputs[position].lookup(epoch, own_key, wanted)
                self._add(epoch, rows, found, position, reached, _with_keys(changes[position], own_key, wanted))

    def _add(
        self,
        epoch: Epoch,
        rows: dict[int, list[Delta]],
        found: list[list[Delta]],
        position: int,
        reached: Delta,
        changed: Delta | None,
    ) -> None:
        check_bound(epoch, len(reached))
        found[position].append(reached)
        rows[position] = [reached] if changed is None else [reached, changed]


def _with_keys(change: Delta | None, key: Sequence[int], wanted: np.ndarray) -> Delta | None:
    if change is None:
        return None
    return gather(change, np.flatnonzero(np.isin(hashes_of(change, key), wanted)))


def _slice(one: Input, change: Delta | None, parts: Sequence[Delta]) -> pa.Table:
    """Rows with their weights before and after, once each: what was reached, and the changed rows."""
    reached = [part for part in parts if len(part)]
    together = reached if change is None else [*reached, change]
    if not together:
        none = pa.array([], pa.int64())
        schema = arrow_schema([column.type for column in one.output])
        return leaf_table([*schema.empty_table().columns, none, none])
    rows, weights, low, high = end_to_end(together)
    order = np.lexsort((high, low))
    fresh = np.concatenate(([True], (low[order][1:] != low[order][:-1]) | (high[order][1:] != high[order][:-1])))
    starts = np.flatnonzero(fresh)
    is_change = order >= sum(len(part) for part in reached)
    moves = np.add.reduceat(np.where(is_change, weights[order], 0), starts)
    # A row is reached with its whole weight, however often; of changed rows that were not reached only the change
    # matters, because no other change combines with what was there before.
    held = np.maximum.reduceat(np.where(is_change, 0, weights[order]), starts)
    was_reached = np.logical_or.reduceat(~is_change, starts)
    before = np.where(was_reached, held, np.maximum(-moves, 0))
    return leaf_table([*rows.take(pa.array(order[starts])).columns, pa.array(before), pa.array(before + moves)])
