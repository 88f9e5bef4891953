"""Constants around IN (subquery), folded before subqueries become joins, as Spark's optimizer does.

The order matters to the answer: a join that stands for IN knows found or not, and no NULL. Before it, `NULL IN (SELECT
...)` must have become NULL or FALSE, by whether there are rows, and `NOT (a IN (...) OR b)` must have become a NOT IN.
A constant counts wherever it comes from, if only as a column of what lies below. But Spark writes out what it makes of
VALUES, and then a column of it is no constant any more, be it NULL in every row.
"""

from __future__ import annotations

from contextlib import suppress

from pyspark.errors import PySparkException

from headrace.plans.catalyst import Catalyst
from headrace.plans.trees import Java, survey

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_ONCE = ("ConvertToLocalRelation", "PropagateEmptyRelation")
_FOLDING = ("RewriteWithExpression", "ConstantFolding")
_RULES = (
    "PushProjectionThroughUnion",
    "CollapseProject",
    "FoldablePropagation",
    "NullPropagation",
    "SimplifyConditionals",
    "BooleanSimplification",
    "SimplifyExtractValueOps",
    "EliminateAggregateFilter",
)
# Their values are the epoch's, and must not be fixed when a view is defined.
_CLOCK = frozenset(
    _EXPRESSIONS + name for name in ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now")
)
_ROUNDS = 4


def fold_constants(catalyst: Catalyst, plan: Java) -> Java:
    """The plan with what is constant around its IN (subquery) folded; any other plan as it is."""
    parts = {part.name for part in survey(plan)}
    if _EXPRESSIONS + "InSubquery" not in parts:
        return plan
    fixed = not parts & _CLOCK
    for name in _ONCE if fixed else ():
        # What fails over VALUES fails again when the view is filled, and is told as a fault of its expression there.
        with suppress(PySparkException):
            plan = catalyst.rule(name)(plan)
    for _ in range(_ROUNDS):
        before = plan
        for name in (*_FOLDING, *_RULES) if fixed else _RULES:
            plan = catalyst.rule(name)(plan)
        if plan.fastEquals(before):
            break
    return plan
