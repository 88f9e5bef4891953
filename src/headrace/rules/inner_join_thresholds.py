"""A column compared with a moving one-row value.   Δσ(x > s) reads only the rows between s and s'

When the value moves from s to s', a row's predicate flips only if its column lies between the two. A NULL value lets
no row through, as if it lay beyond all of them. The bounds are widened to the neighbouring numbers: rows that do not
flip cancel out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.ir.nodes import Threshold
from headrace.plans.query import Leaf
from headrace.plans.trees import Java
from headrace.rules.base import Epoch, RuleContext, check_bound, named
from headrace.rules.inputs import Input, read_leaf, shape_of, side_table, sided
from headrace.state.delta import Delta
from headrace.state.run import order_numbers

# Wider than any error of turning a decimal into a number; rows that do not flip cancel out.
_SLACK = 1e-12


class ThresholdRange:
    """The rows of one input whose comparison with a one-row input may flip."""

    def __init__(self, context: RuleContext, threshold: Threshold, single: Input, ranged: Input) -> None:
        self.threshold = threshold
        self._single = single
        self._ranged = ranged
        catalyst = context.catalyst

        def build(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            side = leaf.extra["side"]
            plan = read_leaf(catalyst, single, leaf, [side])
            return named(catalyst, plan, [threshold.expression, side])

        self._query = context.query([shape_of(single, "side")], build)

    def flipped(self, epoch: Epoch) -> Delta:
        """The rows before this epoch that lie between the old and the new value."""
        before, after = sided(self._single.all(epoch), self._single.changed(epoch))
        values = self._query.run([side_table(before, after, repeat=False, weigh=False)])
        # A NULL lets no row through, as if it lay beyond all of them; NaN is the largest number.
        beyond = -math.inf if self.threshold.operator in ("<", "<=") else math.inf
        ends = sorted(_value(values, side, beyond) for side in (0, 1))
        if self.threshold.operator == "=" and math.inf in ends:
            ends = [-math.inf, math.inf]
        (place,) = self._ranged.places([self.threshold.column])
        low, high = (
            end + sign * abs(end) * _SLACK if math.isfinite(end) else end
            for end, sign in zip(ends, (-1, 1), strict=True)
        )
        found = self._ranged.before(epoch).between(self._ranged.columns[place], low, high, self._ranged.columns)
        check_bound(epoch, len(found))
        return found


def _value(values: pa.Table, side: int, beyond: float) -> float:
    sides: Any = values.column(1).to_numpy()
    rows = np.flatnonzero(sides == side)
    if len(rows) != 1 or not values.column(0)[int(rows[0])].is_valid:
        return beyond
    number = float(order_numbers(values.column(0).take(pa.array(rows)))[0])
    return math.inf if math.isnan(number) else number
