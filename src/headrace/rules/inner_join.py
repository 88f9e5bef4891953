"""INNER JOIN, CROSS JOIN and joins by any condition, of n inputs at once.

Spark's joins of two inputs that lie upon each other are one operator; inner_join_rule.py has its algebra, and
inner_join_thresholds.py what a moving one-row value does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql.types import BooleanType

from headrace.ir.nodes import Node, Tree, inputs_of
from headrace.plans.catalyst import Catalyst
from headrace.plans.query import Leaf
from headrace.plans.steps import apply_steps
from headrace.plans.trees import (
    Java,
    children,
    columns_of,
    conjuncts,
    expressions_of,
    id_of,
    items,
    kind_of,
    optional,
    references,
)
from headrace.rules.context import Above, Operator, RuleContext
from headrace.rules.filter_project import lower_with_keys
from headrace.rules.inner_join_rule import Edge, InnerJoinRule
from headrace.rules.inner_join_thresholds import Threshold, make_range, thresholds_in, usable_thresholds
from headrace.rules.inputs import Input, make_input, read_leaf, shape_of
from headrace.rules.scan import Scan
from headrace.rules.signed import named
from headrace.sql.expressions import equal_pair


@dataclass(frozen=True)
class InnerJoin(Node):
    """Inner and cross joins of any number of inputs; column ids name the key columns of edges."""

    inputs: tuple[Node, ...]
    conditions: tuple[Tree, ...]
    edges: tuple[Edge, ...]
    thresholds: tuple[Threshold, ...]
    singles: frozenset[int]


def lower(context: RuleContext, plan: Java) -> InnerJoin | None:
    """Joins upon joins, and what of their conditions can be looked up."""
    if not _is_inner(plan):
        return None
    inputs: list[Java] = []
    conditions: list[Java] = []
    _flatten(plan, inputs, conditions)
    pairs, safe = _equal_pairs(inputs, conditions)
    keys: list[list[Java]] = [[] for _ in inputs]
    for (i, j), found in pairs.items():
        keys[i].extend(a for a, _ in found)
        keys[j].extend(b for _, b in found)
    lowered = [lower_with_keys(context, one, own) for one, own in zip(inputs, keys, strict=True)]
    nodes = tuple(node for node, _ in lowered)
    unused = [iter(ids) for _, ids in lowered]
    edges: list[Edge] = []
    for (i, j), found in pairs.items():
        left, right = (tuple(next(unused[side]) for _ in found) for side in (i, j))
        edges.append(Edge(i, j, left, right, (i, j) in safe))
    singles = frozenset(i for i, node in enumerate(nodes) if context.is_single(node))
    kept = [(part, context.handles.tree(part)) for part in conditions]
    return InnerJoin(
        context.handles.tree(plan),
        context.handles.output(plan),
        nodes,
        tuple(tree for _, tree in kept),
        tuple(edges),
        tuple(one for part, tree in kept for one in thresholds_in(context, part, tree, nodes, singles)),
        singles,
    )


def _is_inner(plan: Java) -> bool:
    return kind_of(plan) == "Join" and kind_of(plan.joinType()) in ("Inner", "Cross")


def _flatten(plan: Java, inputs: list[Java], conditions: list[Java]) -> None:
    """Gather the inputs and conditions of joins that lie upon each other, with no more than chosen columns between."""
    if _is_inner(plan):
        for child in children(plan):
            _flatten(child, inputs, conditions)
        conditions.extend(conjuncts(optional(plan.condition())))
    elif (
        kind_of(plan) == "Project"
        and _is_inner(plan.child())
        and all(kind_of(one) == "AttributeReference" for one in items(plan.projectList()))
    ):
        _flatten(plan.child(), inputs, conditions)
    else:
        inputs.append(plan)


def _equal_pairs(
    inputs: Sequence[Java], conditions: Sequence[Java]
) -> tuple[dict[tuple[int, int], list[tuple[Java, Java]]], set[tuple[int, int]]]:
    """What must be equal between each two inputs, and between which of them NULL equals NULL."""
    ids = [{id_of(column) for column in columns_of(one)} for one in inputs]
    pairs: dict[tuple[int, int], list[tuple[Java, Java]]] = {}
    safe: set[tuple[int, int]] = set()
    for part in conditions:
        for i in range(len(inputs)):
            for j in range(i + 1, len(inputs)):
                pair = equal_pair(part, ids[i], ids[j])
                if pair:
                    pairs.setdefault((i, j), []).append(pair)
                    safe |= {(i, j)} if kind_of(part) == "EqualNullSafe" else set()
    return pairs, safe


def build(context: RuleContext, node: InnerJoin, above: Above) -> InnerJoinRule:
    """The inputs, looked up by the keys of their edges, and the query that joins what was reached."""
    inputs = [make_input(context, one, _keys(node, position)) for position, one in enumerate(node.inputs)]
    shown = _shown(context, node, above)
    ranges = [
        make_range(context, threshold, inputs[threshold.single], inputs[threshold.input])
        for threshold in usable_thresholds(context, node.inputs, node.conditions, node.thresholds, shown)
    ]

    def build_query(leaves: list[Leaf]) -> Java:
        return _joined(context, node, above, inputs, leaves)

    query = context.query([shape_of(one, "before", "after") for one in inputs], build_query)
    rule = InnerJoinRule(above.types, tuple(inputs), node.edges, node.singles, tuple(ranges), query)
    _tell_whole(context, node, rule)
    return rule


def _keys(node: InnerJoin, position: int) -> list[int]:
    """The columns by which an input is looked up."""
    found = {t.column for t in node.thresholds if t.input == position}
    for edge in node.edges:
        found.update(edge.left_columns if edge.left == position else ())
        found.update(edge.right_columns if edge.right == position else ())
    return sorted(found)


def _shown(context: RuleContext, node: InnerJoin, above: Above) -> set[int]:
    """The columns of a join that the steps above it read."""
    shown: set[int] = set()
    for step in above.steps:
        for expression in expressions_of(context.java(step)):
            shown |= references(expression)
        if step.kind == "Project":
            return shown
    return shown | node.ids


def _joined(context: RuleContext, node: InnerJoin, above: Above, inputs: Sequence[Input], leaves: list[Leaf]) -> Java:
    """The join of all leaves, each combination with the products of its weights before and after, where they differ."""
    catalyst = context.catalyst
    parts = [
        read_leaf(context, one, leaf, [leaf.extra["before"], leaf.extra["after"]])
        for one, leaf in zip(inputs, leaves, strict=True)
    ]
    order = _join_order(len(inputs), node.edges)
    plan, together = parts[order[0]], node.inputs[order[0]].ids
    waiting = context.javas(node.conditions)
    for count, position in enumerate(order[1:], start=2):
        together |= node.inputs[position].ids
        ready = [one for one in waiting if references(one) <= together]
        waiting = [one for one in waiting if not references(one) <= together]
        if not all(_compares_columns(one) for one in ready):
            ready.insert(0, _were_together(catalyst, [leaves[one] for one in order[:count]]))
        plan = catalyst.join(plan, parts[position], catalyst.inner(), catalyst.both(ready))
        plan = catalyst.one_partition(plan)
    if waiting:
        plan = catalyst.filter(catalyst.both([_were_together(catalyst, leaves), *waiting]), plan)
    aliases = [
        catalyst.alias(weight, side)
        for weight, side in zip(_products(catalyst, leaves), ("before", "after"), strict=True)
    ]
    carried = [alias.toAttribute() for alias in aliases]
    plan = catalyst.project([*context.javas(node.output), *aliases], plan)
    differs = catalyst.expression_class("Not")(catalyst.binary("EqualTo", *carried))
    plan = apply_steps(catalyst, context.javas(above.steps), catalyst.filter(differs, plan), carried)
    return named(catalyst, plan, [*context.javas(above.output), *carried])


def _products(catalyst: Catalyst, leaves: Sequence[Leaf]) -> list[Java]:
    """The weights of combined rows, before and after."""
    return [
        reduce(lambda a, b: catalyst.arithmetic("Multiply", a, b), [leaf.extra[side] for leaf in leaves])
        for side in ("before", "after")
    ]


def _were_together(catalyst: Catalyst, leaves: Sequence[Leaf]) -> Java:
    """Whether rows were all there before, or are all there after: conditions are worked out only then."""
    products = _products(catalyst, leaves)
    zero = catalyst.cast(catalyst.literal(0), products[0].dataType())
    never = [catalyst.binary("EqualTo", one, zero) for one in products]
    return catalyst.expression_class("Not")(catalyst.binary("And", *never))


def _compares_columns(condition: Java) -> bool:
    """Whether a condition cannot fail, whatever the values."""
    comparison = kind_of(condition) in ("EqualTo", "EqualNullSafe")
    return comparison and all(kind_of(side) == "AttributeReference" for side in children(condition))


def _join_order(count: int, edges: Sequence[Edge]) -> list[int]:
    order = [0]
    while len(order) < count:
        linked = [e.right if e.left in order else e.left for e in edges if (e.left in order) != (e.right in order)]
        order.append(linked[0] if linked else next(i for i in range(count) if i not in order))
    return order


def _tell_whole(context: RuleContext, node: InnerJoin, rule: InnerJoinRule) -> None:
    """Give the reasons why a change is not followed by keys alone."""
    for start, one in enumerate(node.inputs):
        if start in node.singles and all(isinstance(column.type, BooleanType) for column in one.output):
            # It turns seldom, and when it does, all rows turn with it.
            continue
        for position in rule.reached_whole(start):
            reason = (
                f"join: a change of {_name(node, start)} reads all of {_name(node, position)}, because no equal "
                "columns connect them"
            )
            if reason not in context.reasons:
                context.reasons.append(reason)


def _name(node: InnerJoin, position: int) -> str:
    one = node.inputs[position]
    while not isinstance(one, Scan):
        below = inputs_of(one)
        if len(below) != 1:
            return f"input {position + 1}"
        (one,) = below
    return one.relation


def sentence(context: RuleContext, node: InnerJoin, above: Node | None) -> str:
    """For EXPLAIN."""
    return f"inner join of {len(node.inputs)}: slices reached from the change by the join's keys"


OPERATOR = Operator(InnerJoin, lower, build, sentence, takes_steps=lambda _: True)
