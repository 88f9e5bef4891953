"""From operators to rules: which rule follows which operator."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ir.nodes import (
    Constant,
    GroupFold,
    InnerJoin,
    Linear,
    MatchJoin,
    Merge,
    Node,
    Source,
    TopRows,
    Touched,
)
from headrace.plans.trees import Java
from headrace.rules.base import Rule, RuleContext, types_of
from headrace.rules.fold import GroupFoldRule
from headrace.rules.fold import is_inexact as fold_is_inexact
from headrace.rules.inner_join import InnerJoinRule
from headrace.rules.linear import ConstantRule, LinearRule, SourceRule
from headrace.rules.match_join import MatchJoinRule
from headrace.rules.merge import MergeRule
from headrace.rules.slices import SlicedRule
from headrace.rules.top import TopRowsRule
from headrace.rules.touched import TouchedRule
from headrace.rules.touched import is_inexact as touched_is_inexact
from headrace.rules.ways import Way, find_way


def build_rule(context: RuleContext, node: Node) -> Rule:
    """The rule of an operator, with the rules of all operators below it."""
    if isinstance(node, Linear):
        fused = _build_fused(context, node.child, node.steps, node)
        if fused is not None:
            return fused
        return LinearRule(context, node, build_rule(context, node.child))
    if isinstance(node, Source):
        return SourceRule(context, node)
    if isinstance(node, Constant):
        return ConstantRule(context, types_of(node))
    if isinstance(node, Merge):
        return MergeRule(context, node, [build_rule(context, one) for one in node.inputs])
    fused = _build_fused(context, node, (), node)
    if fused is None:
        raise AssertionError(f"no rule for {type(node).__name__}")
    return fused


def _build_fused(context: RuleContext, node: Node, steps: Sequence[Java], top: Node) -> Rule | None:
    """An operator that ends in a query takes the linear steps above it along, unless it remembers its output."""
    if steps and (
        (isinstance(node, Touched) and touched_is_inexact(node))
        or (isinstance(node, GroupFold) and fold_is_inexact(node))
    ):
        return None
    if isinstance(node, InnerJoin):
        return InnerJoinRule(context, node, steps, top, build_rule)
    if isinstance(node, MatchJoin):
        return MatchJoinRule(context, node, steps, top, build_rule)
    if isinstance(node, Touched):
        way = way_of(node, steps)
        if way is not None:
            return SlicedRule(context, node, way, steps, top, build_rule)
        return TouchedRule(context, node, steps, top, build_rule)
    if isinstance(node, GroupFold):
        return GroupFoldRule(context, node, steps, top, build_rule(context, node.child))
    if isinstance(node, TopRows):
        return TopRowsRule(context, node, steps, top, build_rule(context, node.child))
    return None


def way_of(node: Touched, steps: Sequence[Java]) -> Way | None:
    """How much of its partitions a window reads, given the linear steps above it; None where it reads them whole."""
    return find_way(node, () if touched_is_inexact(node) else steps)
