"""ORDER BY with LIMIT and OFFSET.   Δ(top k R) = top k R' − top k R

The first rows of the order, some more than the limit asks for, are kept. A change beyond the last kept row leaves no
trace; one before it moves rows in or out. Only when deletes have used up the spare rows is the view filled anew.
State: the kept rows and the number of all rows. Cost: the kept rows and the change, amortised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from headrace.ir.nodes import Node, Tree
from headrace.plans.query import Leaf, LeafShape, Query
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, items, kind_of
from headrace.rules.base import LONG, Epoch, NeedsFill, Rule, check_bound
from headrace.rules.context import Above, Operator, RuleContext
from headrace.rules.filter_project import step_over
from headrace.rules.signed import leaf_table, named, signed, with_weights
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, concat, consolidate, empty, negate

_SPARE = 200
_LIMITS = ("GlobalLimit", "LocalLimit", "Offset")


@dataclass(frozen=True)
class Limit(Node):
    """The rows of an order from an offset on, up to a number of them."""

    child: Node
    order: tuple[Tree, ...]
    limit: int | None
    offset: int

    @property
    def end(self) -> int | None:
        """How many rows of the order are looked at, if not all."""
        return None if self.limit is None else self.offset + max(self.limit, 0)


@dataclass(frozen=True, eq=False)
class LimitRule:
    """The kept rows are sorted by Spark together with the change."""

    types: tuple[DataType, ...]
    child: Rule
    inner: tuple[DataType, ...]
    offset: int
    end: int | None
    keep: int | None
    kept: str
    total: str
    in_order: Query
    steps: Query | None

    def delta(self, epoch: Epoch) -> Delta:
        """The first rows after minus the first rows before."""
        change = self.child.delta(epoch)
        if len(change) == 0:
            return empty(arrow_schema(self.types))
        held = epoch.before(self.kept)
        check_bound(epoch, held.size)
        kept = held.all()
        total = epoch.before(self.total).all()
        count = int(total.rows.column(0)[0].as_py())
        complete = int(kept.weights.sum()) == count
        table, before, after = self._sort(kept, change)
        if not complete:
            last = np.flatnonzero(before > 0)
            after[int(last[-1]) + 1 if len(last) else 0 :] = 0
        new_count = count + int(change.weights.sum())
        self._remember(epoch, table, before, after, count, new_count)
        first = concat(arrow_schema(self.inner), [negate(self._first(table, before)), self._first(table, after)])
        if len(first) == 0 or self.steps is None:
            return first if len(first) else empty(arrow_schema(self.types))
        return signed(self.steps.run([with_weights(first)]), self.types)

    def _sort(self, kept: Delta, change: Delta) -> tuple[pa.Table, Any, Any]:
        """All rows concerned in the asked order, with how often each stood there before and stands there now."""
        both = concat(arrow_schema(self.inner), [_as_ones(kept), _as_ones(change)])
        before = _weights_in(both, kept)
        # A row beyond the kept ones may be deleted without being known here.
        after = np.maximum(before + _weights_in(both, change), 0)
        result = self.in_order.run([leaf_table([*both.rows.columns, pa.array(before), pa.array(after)])])
        width = len(self.inner)
        rows = conform(result.select(list(range(width))), self.inner)
        return rows, result.column(width).to_numpy().copy(), result.column(width + 1).to_numpy().copy()

    def _remember(self, epoch: Epoch, table: pa.Table, before: Any, after: Any, count: int, new_count: int) -> None:
        held = int(after.sum())
        if self.end is not None and held < self.end and held < new_count:
            # Deletes have used up the spare rows.
            raise NeedsFill
        if self.keep is not None and held > 2 * self.keep:
            after = np.where(np.cumsum(after) <= self.keep, after, 0)
        epoch.record(self.kept, consolidate(table, after - before))
        if count != new_count:
            counts = pa.table([pa.array([count, new_count])], names=["c0"])
            epoch.record(self.total, consolidate(counts, np.array([-1, 1], dtype=np.int64)))

    def _first(self, table: pa.Table, weights: Any) -> Delta:
        """The rows between the offset and the limit, each as often as it stands there."""
        ends = np.cumsum(weights)
        starts = ends - weights
        last = ends[-1] if self.end is None and len(ends) else self.end or 0
        inside = np.clip(np.minimum(ends, last) - np.maximum(starts, self.offset), 0, None)
        rows = np.flatnonzero(inside > 0)
        return consolidate(table.take(pa.array(rows)), inside[rows].astype(np.int64))


def _as_ones(delta: Delta) -> Delta:
    return Delta(delta.rows, np.ones(len(delta), dtype=np.int64), delta.low, delta.high)


def _weights_in(all_rows: Delta, some: Delta) -> Any:
    weights = {(int(a), int(b)): int(w) for a, b, w in zip(some.low, some.high, some.weights, strict=True)}
    return np.array(
        [weights.get((int(a), int(b)), 0) for a, b in zip(all_rows.low, all_rows.high, strict=True)],
        dtype=np.int64,
    )


def lower(context: RuleContext, plan: Java) -> Node | None:
    """Limits and offsets upon each other, with the order below them."""
    chain: list[Java] = []
    below = plan
    while kind_of(below) in _LIMITS:
        chain.append(below)
        below = below.child()
    if not chain:
        return None
    limit, offset = _cut(chain)
    if kind_of(below) == "Project" and kind_of(below.child()) == "Sort":
        # The columns are chosen above the limit, not below it: what is filled by either plan must be cut by it.
        sort = cut = below.child()
        for one in reversed(chain):
            cut = one.withNewChildren(context.catalyst.seq([cut]))
        inner = _limited(context, cut, sort, limit, offset)
        return step_over(context, inner, below.withNewChildren(context.catalyst.seq([cut])))
    return _limited(context, plan, below, limit, offset)


def _cut(chain: list[Java]) -> tuple[int | None, int]:
    """From the inside out, each LIMIT and OFFSET cuts down what the ones below it leave."""
    offset, end = 0, None
    for one in reversed(chain):
        if kind_of(one) == "Offset":
            offset += int(one.offsetExpr().eval(None))
        else:
            cut = offset + int(one.limitExpr().eval(None))
            end = cut if end is None else min(end, cut)
    return None if end is None else max(end - offset, 0), offset


def _limited(context: RuleContext, plan: Java, below: Java, limit: int | None, offset: int) -> Limit:
    is_sorted = kind_of(below) == "Sort"
    order = context.handles.trees(items(below.order())) if is_sorted else ()
    child = context.lower(below.child() if is_sorted else below)
    return Limit(context.handles.tree(plan), context.handles.output(plan), child, order, limit, offset)


def build(context: RuleContext, node: Limit, above: Above) -> LimitRule:
    """Two stores, the query that sorts, and one for the steps above."""
    child = context.build(node.child)
    keep = None if node.end is None else 2 * node.end + _SPARE
    if node.limit is None:
        context.reasons.append("OFFSET without LIMIT: a change reads the whole input")
    catalyst = context.catalyst
    order = catalyst.seq(context.javas(node.order))

    def build_sorted(leaves: list[Leaf]) -> Java:
        (leaf,) = leaves
        plan = catalyst.plan_class("Sort")(order, False, leaf.plan, catalyst.none)
        columns = context.javas(node.child.output)
        return named(catalyst, plan, [*columns, leaf.extra["before"], leaf.extra["after"]])

    def build_steps(leaves: list[Leaf]) -> Java:
        (leaf,) = leaves
        weight = leaf.extra["weight"]
        plan = apply_steps(catalyst, context.javas(above.steps), leaf.plan, [weight])
        return named(catalyst, plan, [*context.javas(above.output), weight])

    in_order = context.query([LeafShape(node.child.output, (("before", LONG), ("after", LONG)))], build_sorted)
    steps = context.query([LeafShape(node.child.output, (("weight", LONG),))], build_steps) if above.steps else None
    below = context.java(node.child.plan)
    sorted_plan = catalyst.plan_class("Sort")(order, True, below, catalyst.none)
    kept = context.store(node.child.types, sorted_plan, lambda frame: frame if keep is None else frame.limit(keep))
    total = context.store((LONG,), below, lambda frame: frame.agg(F.count(F.lit(1)).alias("c0")))
    return LimitRule(
        above.types, child, node.child.types, node.offset, node.end, keep, kept.name, total.name, in_order, steps
    )


def sentence(context: RuleContext, node: Limit, above: Node | None) -> str:
    """For EXPLAIN."""
    return "order by with limit: the first rows are kept sorted"


OPERATOR = Operator(Limit, lower, build, sentence, takes_steps=lambda _: True)
