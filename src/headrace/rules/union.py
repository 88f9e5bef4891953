"""UNION ALL.   Δ(R ⊎ S) = ΔR ⊎ ΔS"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import Node
from headrace.plans.trees import Java, children, kind_of
from headrace.rules.base import Epoch, Rule
from headrace.rules.context import Above, Operator, RuleContext
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty


@dataclass(frozen=True)
class UnionAll(Node):
    """The rows of several inputs."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class UnionRule:
    """The sum of several operators' deltas."""

    types: tuple[DataType, ...]
    inputs: tuple[Rule, ...]

    def delta(self, epoch: Epoch) -> Delta:
        """All deltas together, net."""
        parts = [delta for one in self.inputs if len(delta := one.delta(epoch))]
        if not parts:
            return empty(arrow_schema(self.types))
        rows = pa.concat_tables([conform(part.rows, self.types) for part in parts]).combine_chunks()
        return consolidate(rows, np.concatenate([part.weights for part in parts]))


def lower(context: RuleContext, plan: Java) -> UnionAll | None:
    """Spark's Union; a UNION without ALL has an aggregate above it."""
    if kind_of(plan) != "Union":
        return None
    inputs = tuple(context.lower(child) for child in children(plan))
    return UnionAll(context.handles.tree(plan), context.handles.output(plan), inputs)


def build(context: RuleContext, node: UnionAll, above: Above) -> UnionRule:
    """A rule without state."""
    return UnionRule(node.types, tuple(context.build(one) for one in node.inputs))


def sentence(context: RuleContext, node: UnionAll, above: Node | None) -> str:
    """For EXPLAIN."""
    return "union all: the deltas together"


OPERATOR = Operator(UnionAll, lower, build, sentence)
