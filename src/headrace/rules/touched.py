"""Windows, and aggregates without partials.   Δ(f R) = f(R'|k) − f(R|k), k the keys touched

A row's result depends only on the rows of its partition or group. So all rows of the touched keys are read, before
and after, and computed anew in one query with the side as one more key. State: the input. Cost: the rows of the
touched keys. Without a key the whole input is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql.types import DataType

from headrace.ir.nodes import Node, Touched
from headrace.plans.catalyst import Catalyst, Java, arrow_schema, items, kind_of
from headrace.plans.prepared import Leaf, conform
from headrace.plans.steps import LINEAR, apply_steps
from headrace.rules.base import Epoch, Workshop, check_bound, named, types_of
from headrace.rules.inputs import hashes_of, make_input, read_leaf, shape_of, side_table, sided
from headrace.state.delta import Delta, consolidate, empty


class TouchedRule:
    """One query over the rows of the touched keys, before and after."""

    def __init__(self, workshop: Workshop, node: Touched, steps: Sequence[Java], top: Node, build: object) -> None:
        self.types: tuple[DataType, ...] = types_of(top)
        self._input = make_input(workshop, node.child, node.keys, build)
        self._key = self._input.places(node.keys)
        self._always = not node.keys and kind_of(node.steps[-1]) == "Aggregate"
        if not node.keys:
            workshop.reasons.append(f"{node.what}: a change reads the whole input")
        catalyst = workshop.catalyst

        def build_query(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            side = leaf.extra["side"]
            plan = read_leaf(catalyst, self._input, leaf, [side])
            for step in node.steps:
                plan = add_side(catalyst, step, plan, side)
            plan = apply_steps(catalyst, steps, plan, [side])
            return named(catalyst, plan, [*(a.java for a in top.output), side])

        self._query = workshop.query([shape_of(self._input, "side")], build_query)

    def delta(self, epoch: Epoch) -> Delta:
        """New output minus old output for the touched keys."""
        change = self._input.changed(epoch)
        if change is None:
            return empty(arrow_schema(self.types))
        if self._key:
            before = self._input.lookup(epoch, self._key, np.unique(hashes_of(change, self._key)))
        else:
            before = self._input.all(epoch)
        rows = sided(before, change)
        check_bound(epoch, sum(int(part.weights.sum()) for part in rows))
        result = self._query.run([side_table(*rows, repeat=True, weigh=False)])
        sides = np.asarray(result.column(result.num_columns - 1)).astype(np.int64)
        produced = conform(result.select(list(range(len(self.types)))), self.types)
        return consolidate(produced, np.where(sides == 1, np.int64(1), np.int64(-1)))


def add_side(catalyst: Catalyst, step: Java, plan: Java, side: Java) -> Java:
    """An operator over both sides at once: the side is one more grouping or partitioning column."""
    kind = kind_of(step)
    if kind in LINEAR:
        return apply_steps(catalyst, [step], plan, [side])
    if kind == "Window":
        expressions = [_sided_window(catalyst, one, side) for one in items(step.windowExpressions())]
        window = catalyst.plan_class("Window")(
            catalyst.seq(expressions), catalyst.seq([side, *items(step.partitionSpec())]), step.orderSpec(), plan,
            catalyst.none,
        )
        # The side stays the last column, as steps above expect it.
        return catalyst.project([*items(step.output()), side], window)
    if kind == "Aggregate":
        return catalyst.plan_class("Aggregate")(
            catalyst.seq([side, *items(step.groupingExpressions())]),
            catalyst.seq([*items(step.aggregateExpressions()), side]), plan, catalyst.none,
        )
    raise AssertionError(f"{kind} has no form with sides")


def _sided_window(catalyst: Catalyst, alias: Java, side: Java) -> Java:
    """A window expression whose own partitions are split by the side, too."""
    function, spec = items(alias.child().children())
    split = catalyst.expression_class("WindowSpecDefinition")(
        catalyst.seq([side, *items(spec.partitionSpec())]), spec.orderSpec(), spec.frameSpecification()
    )
    return catalyst.alias(catalyst.expression_class("WindowExpression")(function, split), alias.name(), alias.exprId())
