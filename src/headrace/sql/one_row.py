"""Values of one row: scalar subqueries, uncorrelated EXISTS and the clock become joins with plans of exactly one row.

Such a join leaves the rows of its other side as they are, so it may stand below whatever operator names the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql.types import StructField, StructType, TimestampType

from headrace.errors import ViewError
from headrace.plans.catalyst import Catalyst, analyzed_plan, rewrite
from headrace.plans.trees import Java, children, columns_of, expressions_of, items, kind_of, walk

CLOCK = "_headrace_clock"
CLOCK_SCHEMA = StructType([StructField("now", TimestampType(), False)])

_CLOCK_FUNCTIONS = frozenset({"CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime"})

# Gives a plan without subqueries, and whether it reads the clock.
Normalize = Callable[[Catalyst, Java], tuple[Java, bool]]


def join_one_rows(catalyst: Catalyst, plan: Java, normalize: Normalize) -> tuple[Java, bool]:
    """The plan with joins for its values of one row, and whether it reads the clock."""
    if kind_of(plan) == "Aggregate" and _results_need_one_row(plan):
        plan = _results_above(catalyst, plan)
    below = [join_one_rows(catalyst, child, normalize) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq([child for child, _ in below]))
    values = _Values(catalyst, normalize)
    rebuilt = _over_one_rows(catalyst, plan, values)
    return rebuilt, values.use_clock or any(used for _, used in below)


class _Values:
    """The values of one row that one operator names, each joined once."""

    def __init__(self, catalyst: Catalyst, normalize: Normalize) -> None:
        self._catalyst = catalyst
        self._normalize = normalize
        self._known: list[tuple[Java, Java]] = []
        self._clock: Java | None = None
        self.joined: list[Java] = []
        self.use_clock = False

    def column_of(self, part: Java) -> Java | None:
        """The column that takes an expression's place, if it is such a value."""
        if not _is_one_row(part):
            return None
        kind = kind_of(part)
        if kind in _CLOCK_FUNCTIONS:
            if self._clock is None:
                self._clock = self._join(analyzed_plan(self._catalyst.session.table(CLOCK)))
                self.use_clock = True
            same = kind in ("CurrentTimestamp", "Now")
            return self._clock if same else self._catalyst.cast(self._clock, part.dataType())
        for known, column in self._known:
            if known.semanticEquals(part):
                return column
        single = _one_row if kind == "ScalarSubquery" else _any_row
        column = self._join(single(self._catalyst, part.plan()))
        self._known.append((part, column))
        return column

    def _join(self, plan: Java) -> Java:
        one_row, uses_clock = self._normalize(self._catalyst, plan)
        self.use_clock = self.use_clock or uses_clock
        self.joined.append(one_row)
        return columns_of(one_row)[0]


def _is_one_row(part: Java) -> bool:
    kind = kind_of(part)
    return kind in ("ScalarSubquery", *_CLOCK_FUNCTIONS) or (kind == "Exists" and part.outerAttrs().isEmpty())


def _results_need_one_row(plan: Java) -> bool:
    """Whether a value of one row stands beside the aggregates, not in them."""
    groups = items(plan.groupingExpressions())

    def needs(part: Java) -> bool:
        if kind_of(part) == "AggregateExpression" or any(group.semanticEquals(part) for group in groups):
            return False
        return _is_one_row(part) or any(map(needs, children(part)))

    return any(map(needs, items(plan.aggregateExpressions())))


def _results_above(catalyst: Catalyst, plan: Java) -> Java:
    """An aggregation that gives its groups and aggregates alone, below the expressions made of them."""
    named: list[tuple[Java, Java]] = []
    for i, group in enumerate(items(plan.groupingExpressions())):
        bare = kind_of(group) == "AttributeReference"
        named.append((group, group if bare else catalyst.alias(group, f"_g{i}")))

    def replace(part: Java) -> Java | None:
        found = next((alias for known, alias in named if known.semanticEquals(part)), None)
        if found is None and kind_of(part) == "AggregateExpression":
            found = catalyst.alias(part, f"_a{len(named)}")
            named.append((part, found))
        return None if found is None else found.toAttribute()

    results = [rewrite(catalyst, column, replace) for column in items(plan.aggregateExpressions())]
    columns = catalyst.seq([alias for _, alias in named])
    below = catalyst.plan_class("Aggregate")(plan.groupingExpressions(), columns, plan.child(), catalyst.none)
    return catalyst.project(results, below)


def _over_one_rows(catalyst: Catalyst, plan: Java, values: _Values) -> Java:
    """An operator with columns for its values of one row, over its first child joined with them."""
    kind = kind_of(plan)
    expressions = _expressions(plan)
    if expressions is None:
        # A subquery that is left is recomputed as a whole; the clock cannot be.
        if any(kind_of(part) in _CLOCK_FUNCTIONS for one in expressions_of(plan) for part in walk(one)):
            raise ViewError(
                f"the clock inside {kind.lower()} is not followed",
                hint="compute it as a column in a subquery below, and use that column",
            )
        return plan
    changed = [[rewrite(catalyst, one, values.column_of) for one in part] for part in expressions]
    if not values.joined:
        return plan
    child = children(plan)[0]
    for one_row in values.joined:
        child = catalyst.join(child, one_row, catalyst.inner(), None)
    rebuilt = _rebuilt(catalyst, plan, changed, child)
    return rebuilt if kind in ("Project", "Aggregate") else catalyst.project(columns_of(plan), rebuilt)


def _expressions(plan: Java) -> list[list[Java]] | None:
    """The expressions of an operator that may name values of one row; none for any other operator."""
    match kind_of(plan):
        case "Filter":
            return [[plan.condition()]]
        case "Project":
            return [items(plan.projectList())]
        case "Aggregate":
            return [items(plan.groupingExpressions()), items(plan.aggregateExpressions())]
        case "Window":
            return [items(plan.windowExpressions()), items(plan.partitionSpec()), items(plan.orderSpec())]
        case "Sort":
            return [items(plan.order())]
        case "Generate":
            return [[plan.generator()]]
        case "Join":
            return [[plan.condition().get()]] if plan.condition().isDefined() else [[]]
        case _:
            return None


def _rebuilt(catalyst: Catalyst, plan: Java, expressions: Sequence[Sequence[Java]], child: Java) -> Java:
    """The same operator with other expressions, in the order in which they were given, over another first child."""
    kind = kind_of(plan)
    make = catalyst.plan_class(kind)
    match kind:
        case "Filter":
            return catalyst.filter(expressions[0][0], child)
        case "Project":
            return catalyst.project(expressions[0], child)
        case "Sort":
            return make(catalyst.seq(expressions[0]), getattr(plan, "global")(), child, catalyst.none)
        case "Generate":
            parts = (plan.unrequiredChildIndex(), plan.outer(), plan.qualifier(), plan.generatorOutput())
            return make(expressions[0][0], *parts, child)
        case "Join":
            return catalyst.join(child, plan.right(), plan.joinType(), expressions[0][0])
        case _:
            return make(*map(catalyst.seq, expressions), child, catalyst.none)


def _any_row(catalyst: Catalyst, plan: Java) -> Java:
    """Whether a plan gives any row, as a plan of exactly one row."""
    return analyzed_plan(catalyst.frame(plan).selectExpr("count(1) > 0 AS x"))


def _one_row(catalyst: Catalyst, plan: Java) -> Java:
    """The plan of a scalar subquery, made to give exactly one row; more than one is an error, as in Spark."""
    if kind_of(plan) == "Aggregate" and plan.groupingExpressions().isEmpty():
        return plan
    column = catalyst.frame(plan).toDF("x")
    single = column.selectExpr("max(x) AS x", "count(1) AS n").selectExpr(
        "CASE WHEN n > 1 THEN raise_error('more than one row returned by a scalar subquery') ELSE x END AS x"
    )
    return analyzed_plan(single)
