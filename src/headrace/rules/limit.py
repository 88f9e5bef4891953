"""ORDER BY with LIMIT.   Δ(top k R) = top k R' − top k R

The first rows of the order, some more than the limit asks for, are kept. A change beyond the last kept row leaves no
trace; one before it moves rows in or out. Only when deletes have used up the spare rows is the view filled anew.
State: the kept rows and the number of all rows. Cost: the kept rows and the change, amortised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from headrace.ir.nodes import Limit, Node
from headrace.plans.query import Leaf, LeafShape
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java
from headrace.rules.base import LONG, Epoch, NeedsFill, Rule, RuleContext, check_bound, named, types_of
from headrace.rules.filter_project import signed, with_weights
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, concat, consolidate, empty, negate

_SPARE = 200


class LimitRule:
    """The kept rows are sorted by Spark together with the change."""

    def __init__(self, context: RuleContext, node: Limit, steps: Sequence[Java], top: Node, child: Rule) -> None:
        self.types: tuple[DataType, ...] = types_of(top)
        self._child = child
        self._inner = types_of(node.child)
        self._offset = node.offset
        self._end = None if node.limit is None else node.offset + max(node.limit, 0)
        self._keep = None if self._end is None else 2 * self._end + _SPARE
        if node.limit is None:
            context.reasons.append("OFFSET without LIMIT: a change reads the whole input")
        catalyst = context.catalyst
        order = list(node.order)
        columns = [a.java for a in node.child.output]

        def build_sorted(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            plan = catalyst.plan_class("Sort")(catalyst.seq(order), False, leaf.plan, catalyst.none)
            return named(catalyst, plan, [*columns, leaf.extra["before"], leaf.extra["after"]])

        def build_steps(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            weight = leaf.extra["weight"]
            plan = apply_steps(catalyst, steps, leaf.plan, [weight])
            return named(catalyst, plan, [*(a.java for a in top.output), weight])

        shape = LeafShape(node.child.output, (("before", LONG), ("after", LONG)))
        self._sorted = context.query([shape], build_sorted)
        self._steps = context.query([LeafShape(node.child.output, (("weight", LONG),))], build_steps) if steps else None
        sorted_plan = catalyst.plan_class("Sort")(catalyst.seq(order), True, node.child.plan, catalyst.none)
        self._kept = context.store(
            self._inner, sorted_plan, lambda frame: frame if self._keep is None else frame.limit(self._keep)
        )
        self._total = context.store((LONG,), node.child.plan, lambda frame: frame.agg(F.count(F.lit(1)).alias("c0")))

    def delta(self, epoch: Epoch) -> Delta:
        """The first rows after minus the first rows before."""
        change = self._child.delta(epoch)
        if len(change) == 0:
            return empty(arrow_schema(self.types))
        held = epoch.before(self._kept.name)
        check_bound(epoch, held.size)
        kept = held.all()
        total = epoch.before(self._total.name).all()
        count = int(total.rows.column(0)[0].as_py())
        complete = int(kept.weights.sum()) == count
        table, before, after = self._sort(kept, change)
        if not complete:
            last = np.flatnonzero(before > 0)
            after[int(last[-1]) + 1 if len(last) else 0 :] = 0
        new_count = count + int(change.weights.sum())
        self._remember(epoch, table, before, after, count, new_count)
        first = concat(arrow_schema(self._inner), [negate(self._first(table, before)), self._first(table, after)])
        if len(first) == 0 or self._steps is None:
            return first if len(first) else empty(arrow_schema(self.types))
        return signed(self._steps.run([with_weights(first)]), self.types)

    def _sort(self, kept: Delta, change: Delta) -> tuple[pa.Table, Any, Any]:
        """All rows concerned in the asked order, with how often each stood there before and stands there now."""
        both = concat(arrow_schema(self._inner), [_as_ones(kept), _as_ones(change)])
        before = _weights_in(both, kept)
        after = before + _weights_in(both, change)
        # A row beyond the kept ones may be deleted without being known here.
        after = np.maximum(after, 0)
        columns = [
            *both.rows.columns,
            pa.chunked_array([pa.array(before)]),
            pa.chunked_array([pa.array(after)]),
        ]
        result = self._sorted.run([pa.table(columns, names=[f"x{i}" for i in range(len(columns))])])
        width = len(self._inner)
        rows = conform(result.select(list(range(width))), self._inner)
        return rows, result.column(width).to_numpy().copy(), result.column(width + 1).to_numpy().copy()

    def _remember(self, epoch: Epoch, table: pa.Table, before: Any, after: Any, count: int, new_count: int) -> None:
        held = int(after.sum())
        if self._end is not None and held < self._end and held < new_count:
            # Deletes have used up the spare rows.
            raise NeedsFill
        if self._keep is not None and held > 2 * self._keep:
            after = np.where(np.cumsum(after) <= self._keep, after, 0)
        epoch.record(self._kept.name, consolidate(table, after - before))
        if count != new_count:
            counts = pa.table([pa.array([count, new_count])], names=["c0"])
            epoch.record(self._total.name, consolidate(counts, np.array([-1, 1], dtype=np.int64)))

    def _first(self, table: pa.Table, weights: Any) -> Delta:
        """The rows between the offset and the limit, each as often as it stands there."""
        ends = np.cumsum(weights)
        starts = ends - weights
        last = ends[-1] if self._end is None and len(ends) else self._end or 0
        inside = np.clip(np.minimum(ends, last) - np.maximum(starts, self._offset), 0, None)
        places = np.flatnonzero(inside > 0)
        return consolidate(table.take(pa.array(places)), inside[places].astype(np.int64))


def _as_ones(delta: Delta) -> Delta:
    return Delta(delta.rows, np.ones(len(delta), dtype=np.int64), delta.low, delta.high)


def _weights_in(all_rows: Delta, some: Delta) -> Any:
    weights = {(int(a), int(b)): int(w) for a, b, w in zip(some.low, some.high, some.weights, strict=True)}
    return np.array(
        [weights.get((int(a), int(b)), 0) for a, b in zip(all_rows.low, all_rows.high, strict=True)],
        dtype=np.int64,
    )
