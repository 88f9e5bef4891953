"""From operators to rules: which rule follows which operator."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ir.nodes import (
    Aggregate,
    Constant,
    FilterProject,
    InnerJoin,
    Limit,
    Node,
    OuterJoin,
    Scan,
    Touched,
    UnionAll,
)
from headrace.plans.trees import Java
from headrace.rules.aggregate import AggregateRule
from headrace.rules.aggregate import is_inexact as aggregate_is_inexact
from headrace.rules.base import Rule, RuleContext, types_of
from headrace.rules.constant import ConstantRule
from headrace.rules.filter_project import FilterProjectRule
from headrace.rules.inner_join import InnerJoinRule
from headrace.rules.limit import LimitRule
from headrace.rules.outer_join import OuterJoinRule
from headrace.rules.scan import ScanRule
from headrace.rules.touched_keys import TouchedKeysRule
from headrace.rules.touched_keys import is_inexact as touched_is_inexact
from headrace.rules.union import UnionRule
from headrace.rules.window_reach import WindowReach, find_reach
from headrace.rules.window_rule import WindowRule


def build_rule(context: RuleContext, node: Node) -> Rule:
    """The rule of an operator, with the rules of all operators below it."""
    if isinstance(node, FilterProject):
        fused = _build_fused(context, node.child, node.steps, node)
        if fused is not None:
            return fused
        return FilterProjectRule(context, node, build_rule(context, node.child))
    if isinstance(node, Scan):
        return ScanRule(context, node)
    if isinstance(node, Constant):
        return ConstantRule(context, types_of(node))
    if isinstance(node, UnionAll):
        return UnionRule(context, node, [build_rule(context, one) for one in node.inputs])
    fused = _build_fused(context, node, (), node)
    if fused is None:
        raise AssertionError(f"no rule for {type(node).__name__}")
    return fused


def _build_fused(context: RuleContext, node: Node, steps: Sequence[Java], top: Node) -> Rule | None:
    """An operator that ends in a query takes the linear steps above it along, unless it remembers its output."""
    if steps and (
        (isinstance(node, Touched) and touched_is_inexact(node))
        or (isinstance(node, Aggregate) and aggregate_is_inexact(node))
    ):
        return None
    if isinstance(node, InnerJoin):
        return InnerJoinRule(context, node, steps, top, build_rule)
    if isinstance(node, OuterJoin):
        return OuterJoinRule(context, node, steps, top, build_rule)
    if isinstance(node, Touched):
        reach = reach_of(node, steps)
        if reach is not None:
            return WindowRule(context, node, reach, steps, top, build_rule)
        return TouchedKeysRule(context, node, steps, top, build_rule)
    if isinstance(node, Aggregate):
        return AggregateRule(context, node, steps, top, build_rule(context, node.child))
    if isinstance(node, Limit):
        return LimitRule(context, node, steps, top, build_rule(context, node.child))
    return None


def reach_of(node: Touched, steps: Sequence[Java]) -> WindowReach | None:
    """How much of its partitions a window reads, given the linear steps above it; None where it reads them whole."""
    return find_reach(node, () if touched_is_inexact(node) else steps)
