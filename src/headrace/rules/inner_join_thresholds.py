"""A column compared with a moving one-row value.   Δσ(x > s) reads only the rows between s and s'

When the value moves from s to s', a row's predicate flips only if its column lies between the two. A NULL value lets
no row through, as if it lay beyond all of them. The bounds are widened to the neighbouring numbers: rows that do not
flip cancel out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.ir.nodes import Node, Tree
from headrace.plans.query import Leaf, Query
from headrace.plans.trees import Java, children, id_of, kind_of, references
from headrace.rules.base import Epoch, check_bound
from headrace.rules.context import RuleContext
from headrace.rules.inputs import Input, read_leaf, shape_of
from headrace.rules.signed import named, side_table, sided
from headrace.sql.expressions import ordered_column
from headrace.state.delta import Delta
from headrace.state.run import order_numbers

# Wider than any error of turning a decimal into a number; rows that do not flip cancel out.
_SLACK = 1e-12
_COMPARISONS = {
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "EqualTo": "=",
}
_MIRROR = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}


@dataclass(frozen=True)
class Threshold:
    """A column of one input compared with an expression over a one-row input."""

    input: int
    column: int
    operator: str
    expression: Tree
    single: int
    condition: Tree


@dataclass(frozen=True, eq=False)
class ThresholdRange:
    """The rows of one input whose comparison with a one-row input may flip."""

    threshold: Threshold
    single: Input
    ranged: Input
    query: Query

    def flipped(self, epoch: Epoch) -> Delta:
        """The rows before this epoch that lie between the old and the new value."""
        before, after = sided(self.single.all(epoch), self.single.changed(epoch))
        values = self.query.run([side_table(before, after, repeat=False, weigh=False)])
        # A NULL lets no row through, as if it lay beyond all of them; NaN is the largest number.
        beyond = -math.inf if self.threshold.operator in ("<", "<=") else math.inf
        ends = sorted(_value(values, side, beyond) for side in (0, 1))
        if self.threshold.operator == "=" and math.inf in ends:
            ends = [-math.inf, math.inf]
        (column,) = self.ranged.stored(self.ranged.positions([self.threshold.column]))
        low, high = (
            end + sign * abs(end) * _SLACK if math.isfinite(end) else end
            for end, sign in zip(ends, (-1, 1), strict=True)
        )
        found = self.ranged.before(epoch).between(column, low, high, self.ranged.columns)
        check_bound(epoch, len(found))
        return found


def _value(values: pa.Table, side: int, beyond: float) -> float:
    sides: Any = values.column(1).to_numpy()
    rows = np.flatnonzero(sides == side)
    if len(rows) != 1 or not values.column(0)[int(rows[0])].is_valid:
        return beyond
    number = float(order_numbers(values.column(0).take(pa.array(rows)))[0])
    return math.inf if math.isnan(number) else number


def thresholds_in(
    context: RuleContext, condition: Java, tree: Tree, nodes: Sequence[Node], singles: Set[int]
) -> Iterator[Threshold]:
    """The comparisons of a column with a one-row input that a condition is."""
    operator = _COMPARISONS.get(kind_of(condition))
    if operator is None:
        return
    a, b = children(condition)
    for side, other, sign in ((a, b, operator), (b, a, _MIRROR[operator])):
        column = ordered_column(side)
        if column is None or not references(other):
            continue
        for single in singles:
            if references(other) <= nodes[single].ids:
                for i, node in enumerate(nodes):
                    if i not in singles and id_of(column) in node.ids:
                        yield Threshold(i, id_of(column), sign, context.handles.tree(other), single, tree)


def usable_thresholds(
    context: RuleContext,
    inputs: Sequence[Node],
    conditions: Sequence[Tree],
    thresholds: Sequence[Threshold],
    shown: Set[int],
) -> Iterator[Threshold]:
    """The thresholds whose one-row value shows nowhere else: then a row changes only if a comparison flips."""
    for single in sorted({threshold.single for threshold in thresholds}):
        own = inputs[single].ids
        mine = [threshold for threshold in thresholds if threshold.single == single]
        reading = [one for one in conditions if references(context.java(one)) & own]
        if not own & shown and all(any(one == threshold.condition for threshold in mine) for one in reading):
            yield from mine


def make_range(context: RuleContext, threshold: Threshold, single: Input, ranged: Input) -> ThresholdRange:
    """The query that works out the one-row value, before and after."""

    def build_query(leaves: list[Leaf]) -> Java:
        (leaf,) = leaves
        side = leaf.extra["side"]
        plan = read_leaf(context, single, leaf, [side])
        return named(context.catalyst, plan, [context.java(threshold.expression), side])

    return ThresholdRange(threshold, single, ranged, context.query([shape_of(single, "side")], build_query))
