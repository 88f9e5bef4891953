"""GROUP BY whose aggregates have no partial results, by an expression, or by session windows: groups computed anew.

All rows of the touched groups are read and aggregated again (touched_keys.py has the algebra).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ir.nodes import Node
from headrace.plans.trees import Java, columns_of, items, kind_of, references
from headrace.rules.aggregate import is_session
from headrace.rules.aggregate_calls import calls_in, has_partials
from headrace.rules.base import is_floating
from headrace.rules.context import NoRule, Operator, RuleContext
from headrace.rules.filter_project import lower_with_keys
from headrace.rules.touched_keys import TouchedKeys, build_touched


@dataclass(frozen=True)
class WholeAggregate(TouchedKeys):
    """A GROUP BY that is computed anew for the groups that changed; without groups it always has one row."""

    has_groups: bool


def lower(context: RuleContext, plan: Java) -> WholeAggregate | None:
    """Any aggregate; those with partial results were taken before."""
    if kind_of(plan) != "Aggregate":
        return None
    groups = items(plan.groupingExpressions())
    calls = calls_in(items(plan.aggregateExpressions()))
    if any(is_session(group) for group in groups):
        # A row may join two sessions into one, so all of those with the same other groups are worked out anew.
        keys = [group for group in groups if not is_session(group)]
        of_everything = "sessions of the whole input"
    elif not columns_of(plan):
        # One group or none, and no column of it is read: rows without columns say nothing of a row that is there.
        raise NoRule("no rule follows a group of which no column is read")
    else:
        # A constant tells no rows apart: where nothing else is grouped by, there is one group or none.
        keys = [group for group in groups if references(group)]
        names = sorted({str(call.aggregateFunction().prettyName()) for call in calls if not has_partials(call)})
        of_everything = "group of a constant" if groups else f"{', '.join(names)} over the whole input"
    child, ids = lower_with_keys(context, plan.child(), keys)
    tree, output = context.handles.tree(plan), context.handles.output(plan)
    is_inexact = any(is_floating(column.type) for column in output if column.id not in child.ids)
    what = "group" if ids else of_everything
    return WholeAggregate(tree, output, child, ids, (tree,), what, is_inexact, has_groups=bool(groups))


def sentence(context: RuleContext, node: WholeAggregate, above: Node | None) -> str:
    """For EXPLAIN."""
    return f"{node.what}: {'keys touched' if node.keys else 'the whole input'}, new output minus old"


OPERATOR = Operator(
    WholeAggregate,
    lower,
    build_touched,
    sentence,
    takes_steps=lambda node: not node.is_inexact,
    is_single=lambda _, node: not node.has_groups,
)
