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
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BooleanType, DataType

from headrace.ir.nodes import Edge, InnerJoin, Threshold
from headrace.plans.catalyst import Catalyst
from headrace.plans.query import Leaf
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, children, expressions_of, kind_of, references
from headrace.rules.base import Epoch, RuleContext, check_bound, named, types_of
from headrace.rules.inner_join_thresholds import ThresholdRange
from headrace.rules.inputs import Input, hashes_of, make_input, matchable, read_leaf, shape_of
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty, gather


class InnerJoinRule:
    """One query over slices of all inputs."""

    def __init__(
        self, context: RuleContext, node: InnerJoin, steps: Sequence[Java], top: object, build: object
    ) -> None:
        self.types: tuple[DataType, ...] = types_of(top)  # pyright: ignore[reportArgumentType]
        keys = [
            sorted(
                {
                    i
                    for e in node.edges
                    for i in (
                        *(e.left_columns if e.left == place else ()),
                        *(e.right_columns if e.right == place else ()),
                    )
                }
                | {t.column for t in node.thresholds if t.input == place}
            )
            for place in range(len(node.inputs))
        ]
        self._inputs = [make_input(context, one, own, build) for one, own in zip(node.inputs, keys, strict=True)]
        self._edges = node.edges
        self._singles = node.singles
        self._ranges = [
            ThresholdRange(context, t, self._inputs[t.single], self._inputs[t.input])
            for t in _usable_thresholds(node, steps)
        ]
        self._explain(context, node)
        shapes = [shape_of(one, "before", "after") for one in self._inputs]
        catalyst = context.catalyst
        order = _join_order(len(self._inputs), node.edges)

        def build_query(leaves: list[Leaf]) -> Java:
            parts = [
                read_leaf(catalyst, one, leaf, [leaf.extra["before"], leaf.extra["after"]])
                for one, leaf in zip(self._inputs, leaves, strict=True)
            ]
            joined = {a.id for a in node.inputs[order[0]].output}
            plan = parts[order[0]]
            waiting = list(node.conditions)
            for place in order[1:]:
                joined |= {a.id for a in node.inputs[place].output}
                ready = [c for c in waiting if references(c) <= joined]
                waiting = [c for c in waiting if not references(c) <= joined]
                so_far = [leaves[one] for one in order[: order.index(place) + 1]]
                if not all(_compares_columns(c) for c in ready):
                    ready.insert(0, _were_together(catalyst, so_far))
                plan = catalyst.join(plan, parts[place], catalyst.inner(), catalyst.both(ready))
                plan = catalyst.one_partition(plan)
            if waiting:
                plan = catalyst.filter(catalyst.both([_were_together(catalyst, leaves), *waiting]), plan)
            weights = _products(catalyst, leaves)
            aliases = [catalyst.alias(w, side) for w, side in zip(weights, ("before", "after"), strict=True)]
            carried = [alias.toAttribute() for alias in aliases]
            plan = catalyst.project([*(a.java for a in node.output), *aliases], plan)
            differs = catalyst.expression_class("Not")(catalyst.binary("EqualTo", *carried))
            plan = catalyst.filter(differs, plan)
            plan = apply_steps(catalyst, steps, plan, carried)
            return named(catalyst, plan, [*(a.java for a in top.output), *carried])  # pyright: ignore

        self._query = context.query(shapes, build_query)

    def _explain(self, context: RuleContext, node: InnerJoin) -> None:
        for start in range(len(self._inputs)):
            if start in self._singles and all(isinstance(a.type, BooleanType) for a in node.inputs[start].output):
                # It turns seldom, and when it does, all rows turn with it.
                continue
            for place in self._reached_whole(start):
                reason = (
                    f"join: a change of {_name(node, start)} reads all of {_name(node, place)}, because no equal "
                    "columns connect them"
                )
                if reason not in context.reasons:
                    context.reasons.append(reason)

    def _reached_whole(self, start: int) -> list[int]:
        """The inputs that a change of one input reads whole."""
        whole: set[int] = set()
        for first in self._first_steps(start):
            visited = {start, *([first.threshold.input] if first is not None else [])}
            while len(visited) < len(self._inputs):
                step = self._next(visited)
                place = step.right if step is not None else self._unconnected(visited)
                if step is None and place not in self._singles:
                    whole.add(place)
                visited.add(place)
        return sorted(whole)

    def _first_steps(self, start: int) -> list[ThresholdRange | None]:
        """How a change of one input sets out: by each range that its value moves, else by the join's keys."""
        return [r for r in self._ranges if r.threshold.single == start] or [None]

    def _unconnected(self, visited: Container[int]) -> int:
        """The next input when no equal columns lead to one: a one-row input if there is any."""
        rest = [i for i in range(len(self._inputs)) if i not in visited]
        return next((i for i in rest if i in self._singles), rest[0])

    def _next(self, visited: set[int]) -> Edge | None:
        """A way from an input that was visited, on the left, to one that was not."""
        for edge in self._edges:
            if edge.left in visited and edge.right not in visited:
                return edge
            if edge.right in visited and edge.left not in visited:
                return Edge(edge.right, edge.left, edge.right_columns, edge.left_columns, edge.null_safe)
        return None

    def delta(self, epoch: Epoch) -> Delta:
        """The join of the slices, weighed before and after."""
        changes = [one.changed(epoch) for one in self._inputs]
        if all(change is None for change in changes):
            return empty(arrow_schema(self.types))
        found: list[list[Delta]] = [[] for _ in self._inputs]
        for start, change in enumerate(changes):
            if change is not None:
                self._reach(epoch, start, changes, found)
        tables = [_slice(one, change, parts) for one, change, parts in zip(self._inputs, changes, found, strict=True)]
        check_bound(epoch, max(table.num_rows for table in tables))
        result = self._query.run(tables)
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
                place = first.threshold.input
                self._add(epoch, rows, found, place, first.flipped(epoch), changes[place])
            while len(rows) < len(self._inputs):
                step = self._next(set(rows))
                if step is None:
                    place = self._unconnected(rows)
                    self._add(epoch, rows, found, place, self._inputs[place].all(epoch), changes[place])
                    continue
                place = step.right
                key = self._inputs[step.left].places(step.left_columns)
                hashes = [matchable(part, key, step.null_safe) for part in rows[step.left]]
                wanted = np.unique(np.concatenate(hashes))
                own_key = self._inputs[place].places(step.right_columns)
                reached = self._inputs[place].lookup(epoch, own_key, wanted)
                self._add(epoch, rows, found, place, reached, _with_keys(changes[place], own_key, wanted))

    def _add(
        self,
        epoch: Epoch,
        rows: dict[int, list[Delta]],
        found: list[list[Delta]],
        place: int,
        reached: Delta,
        changed: Delta | None,
    ) -> None:
        check_bound(epoch, len(reached))
        found[place].append(reached)
        rows[place] = [reached] if changed is None else [reached, changed]


def _usable_thresholds(node: InnerJoin, steps: Sequence[Java]) -> list[Threshold]:
    """The thresholds whose one-row value shows nowhere else: then a row changes only if a comparison flips."""
    shown = _shown(node, steps)
    usable: list[Threshold] = []
    for single in node.singles:
        own = {a.id for a in node.inputs[single].output}
        thresholds = [t for t in node.thresholds if t.single == single]
        reading = [c for c in node.conditions if references(c) & own]
        covered = all(any(t.condition.fastEquals(c) for t in thresholds) for c in reading)
        if covered and not own & shown:
            usable.extend(thresholds)
    return usable


def _shown(node: InnerJoin, steps: Sequence[Java]) -> set[int]:
    """The columns of a join that the steps above it read."""
    shown: set[int] = set()
    for step in steps:
        for expression in expressions_of(step):
            shown |= references(expression)
        if kind_of(step) == "Project":
            return shown
    return shown | {a.id for a in node.output}


def _name(node: InnerJoin, place: int) -> str:
    one = node.inputs[place]
    while not hasattr(one, "relation"):
        below = getattr(one, "child", None)
        if below is None:
            return f"input {place + 1}"
        one = below
    return str(one.relation)  # pyright: ignore[reportAttributeAccessIssue]


def _with_keys(change: Delta | None, key: Sequence[int], wanted: np.ndarray) -> Delta | None:
    if change is None:
        return None
    return gather(change, np.flatnonzero(np.isin(hashes_of(change, key), wanted)))


def _slice(one: Input, change: Delta | None, parts: Sequence[Delta]) -> pa.Table:
    """Rows with their weights before and after, once each: what was reached, and the changed rows."""
    schema = arrow_schema([a.type for a in one.attributes])
    reached = [part for part in parts if len(part)]
    changed = [change] if change is not None else []
    if not reached and not changed:
        rows, before, after = schema.empty_table(), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    else:
        together = [*reached, *changed]
        rows = pa.concat_tables([pa.table(part.rows.columns, schema=schema) for part in together])
        weights = np.concatenate([part.weights for part in together])
        low = np.concatenate([part.low for part in together])
        high = np.concatenate([part.high for part in together])
        first_changed = sum(len(part) for part in reached)
        order = np.lexsort((high, low))
        fresh = np.concatenate(([True], (low[order][1:] != low[order][:-1]) | (high[order][1:] != high[order][:-1])))
        starts = np.flatnonzero(fresh)
        is_change = order >= first_changed
        moves = np.add.reduceat(np.where(is_change, weights[order], 0), starts)
        # A row is reached with its whole weight, however often; of changed rows that were not reached only the change
        # matters, because no other change combines with what was there before.
        held = np.maximum.reduceat(np.where(is_change, 0, weights[order]), starts)
        was_reached = np.logical_or.reduceat(~is_change, starts)
        before = np.where(was_reached, held, np.maximum(-moves, 0))
        after = before + moves
        rows = rows.take(pa.array(order[starts]))
    columns = [*rows.columns, pa.chunked_array([pa.array(before)]), pa.chunked_array([pa.array(after)])]
    return pa.table(columns, names=[f"x{i}" for i in range(len(columns))])


def _products(catalyst: Catalyst, leaves: Sequence[Leaf]) -> list[Java]:
    """The weights of combined rows, before and after."""
    return [
        reduce(lambda a, b: catalyst.arithmetic("Multiply", a, b), [leaf.extra[side] for leaf in leaves])
        for side in ("before", "after")
    ]


def _were_together(catalyst: Catalyst, leaves: Sequence[Leaf]) -> Java:
    """Whether rows were all there before, or are all there after: conditions are worked out only then."""
    products = _products(catalyst, leaves)
    zero = catalyst.cast(catalyst.literal(0), products[0].dataType())
    never = [catalyst.binary("EqualTo", one, zero) for one in products]
    return catalyst.expression_class("Not")(catalyst.binary("And", *never))


def _compares_columns(condition: Java) -> bool:
    """Whether a condition cannot fail, whatever the values."""
    comparison = kind_of(condition) in ("EqualTo", "EqualNullSafe")
    return comparison and all(kind_of(side) == "AttributeReference" for side in children(condition))


def _join_order(count: int, edges: Sequence[Edge]) -> list[int]:
    order = [0]
    while len(order) < count:
        linked = [e.right if e.left in order else e.left for e in edges if (e.left in order) != (e.right in order)]
        order.append(linked[0] if linked else next(i for i in range(count) if i not in order))
    return order
