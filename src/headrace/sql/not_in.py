"""NOT IN, whose list may hold a NULL, as an anti join by equal columns.

What else NULL does is known of the list as a whole: with a NULL in it nothing is outside of it, and a NULL is outside
only of an empty one. So all rows are looked at again only when the list becomes empty or gets its first NULL, or the
other way round; then they all turn.
"""

from __future__ import annotations

from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import Java, children, columns_of, conjuncts, id_of, kind_of, optional
from headrace.sql.expressions import equal_pair


def split_not_in(catalyst: Catalyst, plan: Java) -> Java:
    """The decorrelated plan with every NOT IN as an anti join of equal columns and a one-row join."""
    below = [split_not_in(catalyst, child) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    pair = _compared(plan)
    if pair is None:
        return plan
    value, member = pair
    left, right = plan.left(), plan.right()
    equal = catalyst.some(catalyst.binary("EqualTo", value, member))
    unmatched = catalyst.plan_class("Join")(left, right, plan.joinType(), equal, plan.hint())
    rows, members = _count(catalyst, catalyst.literal(1)), _count(catalyst, member)
    zero = catalyst.cast(catalyst.literal(0), rows.dataType())
    is_empty = catalyst.alias(catalyst.binary("EqualTo", rows, zero), "is_empty")
    has_null = catalyst.alias(catalyst.binary("GreaterThan", rows, members), "has_null")
    columns = catalyst.seq([is_empty, has_null])
    listed = catalyst.plan_class("Aggregate")(catalyst.seq([]), columns, right, catalyst.none)
    known = catalyst.expression_class("IsNotNull")(value)
    decided = catalyst.binary("Or", known, is_empty.toAttribute())
    outside = catalyst.binary("And", catalyst.expression_class("Not")(has_null.toAttribute()), decided)
    joined = catalyst.join(unmatched, listed, catalyst.inner(), None)
    return catalyst.project(columns_of(left), catalyst.filter(outside, joined))


def _compared(plan: Java) -> tuple[Java, Java] | None:
    """The value and the member of the list that an anti join of NOT IN compares, where it compares nothing else."""
    if kind_of(plan) != "Join" or kind_of(plan.joinType()) != "LeftAnti":
        return None
    parts = conjuncts(optional(plan.condition()))
    if len(parts) != 1 or kind_of(parts[0]) != "Or":
        return None
    equal, unknown = children(parts[0])
    if kind_of(equal) != "EqualTo" or kind_of(unknown) != "IsNull" or not children(unknown)[0].semanticEquals(equal):
        return None
    return equal_pair(equal, _ids(plan.left()), _ids(plan.right()))


def _ids(plan: Java) -> set[int]:
    return {id_of(column) for column in columns_of(plan)}


def _count(catalyst: Catalyst, one: Java) -> Java:
    return catalyst.expression_class("aggregate.Count")(catalyst.seq([one])).toAggregateExpression()
