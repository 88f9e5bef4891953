"""Correlated subqueries, brought into a form that Spark's own rules decorrelate exactly, into joins by equal columns.

Three things are done to the plan of a subquery before those rules see it: predicates of subqueries inside it are pulled
up from the innermost on, a limit stands right on its sort, and all of its outer columns go the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.plans.catalyst import Catalyst, rewrite
from headrace.plans.trees import Java, children, conjuncts, items, kind_of, optional, walk
from headrace.sql.constants import fold_constants
from headrace.sql.ties import LIMITS

_EQUAL = ("EqualTo", "EqualNullSafe")
_MEMBER_OF_ONE = 2


def prepare_subqueries(catalyst: Catalyst, plan: Java) -> Java:
    """The plan with every correlated subquery ready to be decorrelated."""

    def replace(part: Java) -> Java | None:
        kind = kind_of(part)
        if kind not in ("Exists", "ListQuery", "ScalarSubquery"):
            return None
        inner = _limits_on_sorts(catalyst, fold_constants(catalyst, part.plan()))
        if kind == "ScalarSubquery":
            inner = _outer_columns_alike(catalyst, inner)
        return part.withNewPlan(catalyst.rule("PullupCorrelatedPredicates")(prepare_subqueries(catalyst, inner)))

    below = [prepare_subqueries(catalyst, child) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    if kind_of(plan) == "Filter":
        return catalyst.filter(rewrite(catalyst, plan.condition(), replace), plan.child())
    if kind_of(plan) == "Project":
        return catalyst.project([rewrite(catalyst, c, replace) for c in items(plan.projectList())], plan.child())
    if kind_of(plan) == "LateralJoin":
        inner = _outer_columns_alike(catalyst, _limits_on_sorts(catalyst, plan.right().plan()))
        right = plan.right().withNewPlan(inner)
        return catalyst.plan_class("LateralJoin")(plan.left(), right, plan.joinType(), plan.condition())
    return plan


def _limits_on_sorts(catalyst: Catalyst, plan: Java) -> Java:
    """The plan in which a limit stands right on its sort, and the columns are picked above.

    Where columns are picked between the two, Spark decorrelates the limit into a window without the order.
    """
    below = [_limits_on_sorts(catalyst, child) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    if kind_of(plan) not in LIMITS or kind_of(below[0]) != "Project" or not _is_sorted(below[0].child()):
        return plan
    (picking,) = below
    return picking.withNewChildren(catalyst.seq([plan.withNewChildren(catalyst.seq([picking.child()]))]))


def _is_sorted(plan: Java) -> bool:
    return kind_of(plan) == "Sort" or (kind_of(plan) in LIMITS and _is_sorted(plan.child()))


def _outer_columns_alike(catalyst: Catalyst, plan: Java) -> Java:
    """The plan in which all outer columns are looked up together, if they must be for the sake of one.

    For `sym = outer.sym AND ts <= outer.ts` Spark joins with the outer values of ts alone, by a comparison, and only
    afterwards asks for the same sym. Outer columns of what is no equality it takes along: `sym IN (outer.sym)` is none.
    """
    if all(_equals_outer(part) for part in _correlated(plan)):
        return plan

    def as_member(part: Java) -> Java:
        if not (_equals_outer(part) and kind_of(part) == "EqualTo"):
            return part
        one, other = children(part)
        return catalyst.expression_class("In")(one, catalyst.seq([other]))

    return _with_conditions(catalyst, plan, as_member)


def with_equalities(catalyst: Catalyst, plan: Java) -> Java:
    """The decorrelated plan, in which a member of one value equals it."""

    def as_equality(part: Java) -> Java:
        parts = children(part)
        return catalyst.binary("EqualTo", *parts) if kind_of(part) == "In" and len(parts) == _MEMBER_OF_ONE else part

    return _with_conditions(catalyst, plan, as_equality)


def _with_conditions(catalyst: Catalyst, plan: Java, change: Callable[[Java], Java]) -> Java:
    """The plan with every condition of its filters and joins changed."""
    below = [_with_conditions(catalyst, child, change) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    if kind_of(plan) not in ("Filter", "Join"):
        return plan
    is_join = kind_of(plan) == "Join"
    condition = optional(plan.condition()) if is_join else plan.condition()
    changed = catalyst.both(change(part) for part in conjuncts(condition))
    if not is_join:
        return catalyst.filter(changed, plan.child())
    wrapped = catalyst.none if changed is None else catalyst.some(changed)
    return catalyst.plan_class("Join")(plan.left(), plan.right(), plan.joinType(), wrapped, plan.hint())


def _correlated(plan: Java) -> list[Java]:
    """The conditions of a subquery's filters that name an outer column."""
    own = conjuncts(plan.condition()) if kind_of(plan) == "Filter" else []
    found = [part for part in own if any(kind_of(one) == "OuterReference" for one in walk(part))]
    return [*found, *(part for child in children(plan) for part in _correlated(child))]


def _equals_outer(condition: Java) -> bool:
    sides = {kind_of(side) for side in children(condition)}
    return kind_of(condition) in _EQUAL and sides == {"AttributeReference", "OuterReference"}
