"""Filter, project, explode, expand.   Δ(f R) = f(ΔR)

Each row is mapped alone, so the delta is mapped and nothing is remembered.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import FilterProject
from headrace.plans.query import Leaf, LeafShape
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java
from headrace.rules.base import LONG, Epoch, Rule, RuleContext, named, types_of
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty, weights_of


class FilterProjectRule:
    """Steps over another operator's delta."""

    def __init__(self, context: RuleContext, node: FilterProject, child: Rule) -> None:
        self.types: tuple[DataType, ...] = types_of(node)
        self._child = child
        shape = LeafShape(node.child.output, (("weight", LONG),))
        catalyst = context.catalyst

        def build(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            weight = leaf.extra["weight"]
            plan = apply_steps(catalyst, node.steps, leaf.plan, [weight])
            return named(catalyst, plan, [*(a.java for a in node.output), weight])

        self._query = context.query([shape], build)

    def delta(self, epoch: Epoch) -> Delta:
        """The child's delta, mapped."""
        below = self._child.delta(epoch)
        if len(below) == 0:
            return empty(arrow_schema(self.types))
        return signed(self._query.run([with_weights(below)]), self.types)


def with_weights(delta: Delta) -> pa.Table:
    """A delta's rows with their weights as the last column."""
    columns = [*delta.rows.columns, pa.chunked_array([pa.array(delta.weights)])]
    return pa.table(columns, names=[f"x{i}" for i in range(len(columns))])


def signed(table: pa.Table, types: tuple[DataType, ...]) -> Delta:
    """A query's result whose last column is the weight, as a delta."""
    weights = weights_of(table.column(table.num_columns - 1).to_numpy())
    rows = conform(table.select(list(range(table.num_columns - 1))), types)
    return consolidate(rows, weights)
