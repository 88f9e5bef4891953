"""Results that depend on ties or on input order get a total order, in the maintained view and in the judge alike.

Spark leaves open which of several equal rows comes first, or in which order rows reach first() or collect_list().
Where that would show, all columns are added as the last order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column

from headrace.plans.catalyst import Catalyst, Java, children, items, kind_of, optional, rewrite, walk

_PLACE_IN_ORDER = frozenset({"RowNumber", "NTile", "Lag", "Lead"})
_PEERS_ALIKE = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
_BY_INPUT_ORDER = frozenset({"First", "Last", "CollectList", "CollectSet", "MaxBy", "MinBy"})
_LIMITS = ("GlobalLimit", "LocalLimit", "Offset")


def break_ties(catalyst: Catalyst, plan: Java) -> tuple[Java, list[str]]:
    """The plan with a total order wherever its result would depend on ties, and a sentence for each."""
    notes: list[str] = []
    broken = _break(catalyst, plan, notes)
    if any("input order" in note for note in notes):
        # The rewritten aggregates are put together from unresolved functions.
        broken = catalyst.rule("ReplaceExpressions")(catalyst.analyze(broken))
    return broken, list(dict.fromkeys(notes))


def _break(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    kind = kind_of(plan)
    if kind in _LIMITS:
        return _break_limit(catalyst, plan, notes)
    below = [_break(catalyst, child, notes) for child in children(plan)]
    if below:
        plan = plan.withNewChildren(catalyst.seq(below))
    if kind == "Window":
        return _break_window(catalyst, plan, notes)
    if kind == "Aggregate":
        return _break_aggregate(catalyst, plan, notes)
    return plan


def total_order(catalyst: Catalyst, order: Sequence[Java], columns: Sequence[Java]) -> list[Java]:
    """The asked order, then all columns that it does not name and that can be ordered."""
    ascending = catalyst.module("org.apache.spark.sql.catalyst.expressions.Ascending")
    orders = catalyst.module("org.apache.spark.sql.catalyst.expressions.SortOrder")
    named = {one.child().exprId().id() for one in order if kind_of(one.child()) == "AttributeReference"}
    rest = [
        orders.apply(column, ascending, catalyst.seq([]))
        for column in columns
        if column.exprId().id() not in named and _orderable(column)
    ]
    return [*order, *rest]


def _orderable(column: Java) -> bool:
    text = column.dataType().json()
    return '"map"' not in text and '"variant"' not in text


def _break_limit(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    chain: list[Java] = []
    node = plan
    while kind_of(node) in _LIMITS or (kind_of(node) == "Project" and kind_of(node.child()) == "Sort"):
        chain.append(node)
        node = node.child()
    order: list[Java] = []
    child = node
    if kind_of(node) == "Sort":
        order, child = items(node.order()), node.child()
    child = _break(catalyst, child, notes)
    full = total_order(catalyst, order, items(child.output()))
    if len(full) > len(order):
        notes.append("ORDER BY with LIMIT: rows that tie are ordered by all of their columns")
    rebuilt = catalyst.plan_class("Sort")(catalyst.seq(full), True, child, catalyst.none)
    for one in reversed(chain):
        rebuilt = one.withNewChildren(catalyst.seq([rebuilt]))
    return rebuilt


def _break_window(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    expressions = items(plan.windowExpressions())
    order = items(plan.orderSpec())
    full = total_order(catalyst, order, items(plan.child().output()))
    sensitive = [one for one in expressions if _feels_ties(one)]
    if not sensitive or len(full) == len(order):
        return plan
    notes.append("window: rows that tie in its order are ordered by all of their columns")
    partition = plan.partitionSpec()
    child = plan.child()
    calm = [one for one in expressions if not _feels_ties(one)]
    if calm:
        child = catalyst.plan_class("Window")(catalyst.seq(calm), partition, plan.orderSpec(), child, catalyst.none)
    ordered = [_with_order(catalyst, one, full) for one in sensitive]
    window = catalyst.plan_class("Window")(catalyst.seq(ordered), partition, catalyst.seq(full), child, catalyst.none)
    return catalyst.project(items(plan.output()), window)


def _feels_ties(alias: Java) -> bool:
    """Whether a window expression tells apart rows that are equal in its order."""
    function, spec = items(alias.child().children())
    inner = function.aggregateFunction() if kind_of(function) == "AggregateExpression" else function
    name = kind_of(inner)
    if name in _PEERS_ALIKE:
        return False
    if name in _PLACE_IN_ORDER:
        return True
    frame = spec.frameSpecification()
    if kind_of(frame) != "SpecifiedWindowFrame" or kind_of(frame.frameType()) != "RowFrame":
        return False
    whole = kind_of(frame.lower()) == "UnboundedPreceding" and kind_of(frame.upper()) == "UnboundedFollowing"
    return not whole or name in _BY_INPUT_ORDER


def _with_order(catalyst: Catalyst, alias: Java, order: Sequence[Java]) -> Java:
    function, spec = items(alias.child().children())
    ordered = catalyst.expression_class("WindowSpecDefinition")(
        spec.partitionSpec(), catalyst.seq(order), spec.frameSpecification()
    )
    return catalyst.alias(
        catalyst.expression_class("WindowExpression")(function, ordered), alias.name(), alias.exprId()
    )


def _break_aggregate(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    results = items(plan.aggregateExpressions())
    if not any(_by_input_order(part) for result in results for part in walk(result)):
        return plan
    columns = [c for c in items(plan.child().output()) if _orderable(c)]

    def replace(part: Java) -> Java | None:
        if not _by_input_order(part):
            return None
        name = part.aggregateFunction().prettyName()
        notes.append(f"{name}(): its input order is that of all columns")
        return _in_order(catalyst, part, columns)

    rewritten = [rewrite(catalyst, result, replace) for result in results]
    return catalyst.plan_class("Aggregate")(
        plan.groupingExpressions(), catalyst.seq(rewritten), plan.child(), catalyst.none
    )


def _by_input_order(part: Java) -> bool:
    if kind_of(part) != "AggregateExpression":
        return False
    function = part.aggregateFunction()
    name = kind_of(function)
    return name in _BY_INPUT_ORDER or (name == "Mode" and not function.reverseOpt().isDefined())


def _in_order(catalyst: Catalyst, part: Java, columns: Sequence[Java]) -> Java:
    """An aggregate that depends on input order, as one that looks at whole rows in the order of all columns."""
    utils = catalyst.module("org.apache.spark.sql.classic.ExpressionUtils")
    function = part.aggregateFunction()
    name = kind_of(function)
    inputs = [Column(utils.column(child)) for child in children(function)]
    condition = optional(part.filter())
    value = inputs[0]
    kept: Any = F.lit(True) if condition is None else Column(utils.column(condition))
    order = [Column(utils.column(c)).alias(f"o{i}") for i, c in enumerate(columns)]
    if name in ("CollectSet", "Mode") or part.isDistinct():
        chosen = F.when(kept, value)
        result = F.mode(chosen, deterministic=True) if name == "Mode" else F.array_sort(F.collect_set(chosen))
    elif name == "CollectList":
        rows = F.collect_list(F.when(kept & value.isNotNull(), F.struct(*order, value.alias("v"))))
        result = F.transform(F.array_sort(rows), lambda row: row["v"])
    elif name in ("MaxBy", "MinBy"):
        rows = F.when(kept & inputs[1].isNotNull(), F.struct(inputs[1].alias("by"), *order, value.alias("v")))
        result = (F.max(rows) if name == "MaxBy" else F.min(rows))["v"]
    else:
        wanted = kept & value.isNotNull() if function.ignoreNulls() else kept
        rows = F.when(wanted, F.struct(*order, value.alias("v")))
        result = (F.min(rows) if name == "First" else F.max(rows))["v"]
    return catalyst.expression(result)
