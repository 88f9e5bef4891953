"""Filter (WHERE, HAVING), project (SELECT), explode (LATERAL VIEW), expand (GROUPING SETS).   Δ(f R) = f(ΔR)

Each row is mapped alone, so the delta is mapped and nothing is remembered. Neighbouring steps are one operator, and one
below it that ends in a query takes them along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import DataType

from headrace.ir.nodes import Node, Tree
from headrace.plans.query import Leaf, LeafShape, Query
from headrace.plans.steps import LINEAR, apply_steps
from headrace.plans.trees import Java, id_of, items, kind_of
from headrace.rules.base import LONG, Epoch, Rule
from headrace.rules.context import Above, Operator, RuleContext
from headrace.rules.scan import select_columns
from headrace.rules.signed import named, signed, with_weights
from headrace.sql.expressions import plain_column
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, empty

_STEPS = {"Project": "project", "Filter": "filter", "Generate": "explode", "Expand": "grouping sets"}


@dataclass(frozen=True)
class FilterProject(Node):
    """Steps that act on each row alone, bottom first."""

    child: Node
    steps: tuple[Tree, ...]


@dataclass(frozen=True, eq=False)
class FilterProjectRule:
    """Steps over another operator's delta."""

    types: tuple[DataType, ...]
    child: Rule
    query: Query

    def delta(self, epoch: Epoch) -> Delta:
        """The child's delta, mapped."""
        below = self.child.delta(epoch)
        if len(below) == 0:
            return empty(arrow_schema(self.types))
        return signed(self.query.run([with_weights(below)]), self.types)


def lower(context: RuleContext, plan: Java) -> Node | None:
    """One step; where it only chooses columns of a relation, none is needed."""
    if kind_of(plan) not in LINEAR:
        return None
    child = context.lower(plan.child())
    chosen = select_columns(context, child, plan, items(plan.projectList())) if kind_of(plan) == "Project" else None
    return chosen or step_over(context, child, plan)


def step_over(context: RuleContext, child: Node, step: Java) -> FilterProject:
    """A step on top of an operator; neighbouring steps are kept together."""
    tree, output = context.handles.tree(step), context.handles.output(step)
    if isinstance(child, FilterProject):
        return FilterProject(tree, output, child.child, (*child.steps, tree))
    return FilterProject(tree, output, child, (tree,))


def project_over(context: RuleContext, child: Node, columns: Sequence[Java]) -> Node:
    """A projection on top of an operator."""
    plan = context.catalyst.project(columns, context.java(child.plan))
    return select_columns(context, child, plan, columns) or step_over(context, child, plan)


def lower_with_keys(context: RuleContext, plan: Java, keys: Sequence[Java]) -> tuple[Node, tuple[int, ...]]:
    """An input with every key expression as one of its columns, and the ids of those columns."""
    ids: list[int] = []
    added: list[Java] = []
    for key in keys:
        column = plain_column(key)
        if column is None:
            column = context.catalyst.alias(key, f"_key{len(ids)}")
            added.append(column)
        ids.append(id_of(column))
    node = context.lower(plan)
    if added:
        node = project_over(context, node, [*context.javas(node.output), *added])
    return node, tuple(ids)


def build(context: RuleContext, node: FilterProject, above: Above) -> Rule:
    """The rule below with these steps in its own query, or else a query of their own."""
    below = context.operator(node.child)
    if below.takes_steps(node.child):
        return below.build(context, node.child, Above(node.steps, node.output))

    def build_query(leaves: list[Leaf]) -> Java:
        (leaf,) = leaves
        weight = leaf.extra["weight"]
        plan = apply_steps(context.catalyst, context.javas(node.steps), leaf.plan, [weight])
        return named(context.catalyst, plan, [*context.javas(node.output), weight])

    child = context.build(node.child)
    query = context.query([LeafShape(node.child.output, (("weight", LONG),))], build_query)
    return FilterProjectRule(node.types, child, query)


def sentence(context: RuleContext, node: FilterProject, above: Node | None) -> str:
    """For EXPLAIN."""
    steps = ", ".join(dict.fromkeys(_STEPS[step.kind] for step in node.steps))
    return f"linear ({steps}): applied to the delta"


def is_single(context: RuleContext, node: FilterProject) -> bool:
    """Filters and projections make no rows."""
    return all(step.kind in ("Project", "Filter") for step in node.steps) and context.is_single(node.child)


OPERATOR = Operator(FilterProject, lower, build, sentence, is_single=is_single)
