"""VALUES, and SELECT without FROM.   Δc = 0

A view's first fill brings the rows; nothing ever changes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import DataType

from headrace.ir.nodes import Node
from headrace.plans.trees import Java, children
from headrace.rules.base import Epoch
from headrace.rules.context import Above, Operator, RuleContext
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, empty


@dataclass(frozen=True)
class Constant(Node):
    """Rows that never change."""


@dataclass(frozen=True, eq=False)
class ConstantRule:
    """What does not change has no delta."""

    types: tuple[DataType, ...]

    def delta(self, epoch: Epoch) -> Delta:
        """Nothing, ever."""
        return empty(arrow_schema(self.types))


def lower(context: RuleContext, plan: Java) -> Constant | None:
    """A leaf that stands for no relation."""
    return None if children(plan) else Constant(context.handles.tree(plan), context.handles.output(plan))


def build(context: RuleContext, node: Constant, above: Above) -> ConstantRule:
    """A rule without state."""
    return ConstantRule(node.types)


def sentence(context: RuleContext, node: Constant, above: Node | None) -> str:
    """For EXPLAIN."""
    return "constant rows"


def is_single(context: RuleContext, node: Constant) -> bool:
    """SELECT without FROM has one row."""
    return node.plan.kind == "OneRowRelation"


OPERATOR = Operator(Constant, lower, build, sentence, is_single=is_single)
