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
from headrace.plans.catalyst import Java, attribute
from headrace.plans.prepared import Leaf
from headrace.rules.base import Epoch, Workshop, check_bound, named
from headrace.rules.inputs import Input, read_leaf, shape_of, side_table, sided
from headrace.state.delta import Delta
from headrace.state.store import order_numbers


class ThresholdRange:
    """The rows of one input whose comparison with a one-row input may flip."""

    def __init__(self, workshop: Workshop, threshold: Threshold, single: Input, ranged: Input) -> None:
        self.threshold = threshold
        self._single = single
        self._ranged = ranged
        catalyst = workshop.catalyst

        def build(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            side = leaf.extra["side"]
            plan = read_leaf(catalyst, single, leaf, [side])
            return named(catalyst, plan, [threshold.expression, side])

        self._query = workshop.query([shape_of(single, "side")], build)

    def flipped(self, epoch: Epoch) -> Delta:
        """The rows before this epoch that lie between the old and the new value."""
        before, after = sided(self._single.all(epoch), self._single.changed(epoch))
        values = self._query.run([side_table(before, after, repeat=False, weigh=False)])
        old, new = _value(values, 0), _value(values, 1)
        operator = self.threshold.operator
        if operator in (">", ">="):
            beyond = math.inf
        elif operator in ("<", "<="):
            beyond = -math.inf
        else:
            beyond = math.nan
        ends = sorted(beyond if math.isnan(value) else value for value in (old, new))
        if math.isnan(ends[0]) or math.isnan(ends[1]):
            ends = [-math.inf, math.inf]
        (place,) = self._ranged.places([self.threshold.column])
        low, high = np.nextafter(ends[0], -np.inf), np.nextafter(ends[1], np.inf)
        found = self._ranged.before(epoch).between(
            self._ranged.columns[place], float(low), float(high), self._ranged.columns
        )
        check_bound(epoch, len(found))
        return found


def _value(values: pa.Table, side: int) -> float:
    sides: Any = values.column(1).to_numpy()
    rows = np.flatnonzero(sides == side)
    if len(rows) != 1:
        return math.nan
    return float(order_numbers(values.column(0).take(pa.array(rows)))[0])


__all__ = ["ThresholdRange", "attribute"]
