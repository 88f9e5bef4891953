"""Results that depend on ties or on input order get a total order, in the maintained view and in the judge alike.

Spark leaves open which of several equal rows comes first, or in which order rows reach first() or collect_list().
Where that would show, all columns are added as the last order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column

from headrace.plans.catalyst import Catalyst, rewrite
from headrace.plans.trees import Java, children, columns_of, id_of, items, kind_of, optional, references, walk

_BY_POSITION = frozenset({"RowNumber", "NTile", "Lag", "Lead"})
_PEERS_ALIKE = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
_BY_INPUT_ORDER = frozenset(
    {"First", "Last", "NthValue", "CollectList", "CollectSet", "ListAgg", "MaxBy", "MinBy", "MaxMinByK"}
)
_MOST_PICKED = 100_000  # Spark's own bound of the third argument of min_by
LIMITS = ("GlobalLimit", "LocalLimit", "Offset")

Finish = Callable[[Any], Any]


def break_ties(catalyst: Catalyst, plan: Java) -> tuple[Java, list[str]]:
    """The plan with a total order wherever its result would depend on ties, and a sentence for each."""
    notes: list[str] = []
    broken = _break(catalyst, plan, notes)
    return broken, list(dict.fromkeys(notes))


def _resolved(catalyst: Catalyst, plan: Java) -> Java:
    """The plan with its functions resolved, of which rewritten aggregates are put together."""
    return plan if plan.resolved() else catalyst.rule("ReplaceExpressions")(catalyst.analyze(plan))


def _break(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    kind = kind_of(plan)
    if kind in LIMITS:
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
        if id_of(column) not in named and _orderable(column.dataType())
    ]
    return [*order, *rest]


def _orderable(kind: Java) -> bool:
    text = kind.json()
    return '"map"' not in text and '"variant"' not in text


def _break_limit(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    chain: list[Java] = []
    node = plan
    while kind_of(node) in LIMITS or (kind_of(node) == "Project" and kind_of(node.child()) == "Sort"):
        chain.append(node)
        node = node.child()
    order: list[Java] = []
    child = node
    if kind_of(node) == "Sort":
        order, child = items(node.order()), node.child()
    child = _break(catalyst, child, notes)
    full = total_order(catalyst, order, columns_of(child))
    if len(full) > len(order):
        notes.append("ORDER BY with LIMIT: rows that tie are ordered by all of their columns")
    rebuilt = catalyst.plan_class("Sort")(catalyst.seq(full), True, child, catalyst.none)
    for one in reversed(chain):
        rebuilt = one.withNewChildren(catalyst.seq([rebuilt]))
    return rebuilt


def _break_window(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    order = items(plan.orderSpec())
    full = total_order(catalyst, order, columns_of(plan.child()))
    tied = len(full) > len(order)
    position = catalyst.alias(_row_number(catalyst, plan, full), "_position")
    strict: list[Java] = []
    loose: list[Java] = []
    finishes: dict[int, Finish] = {}
    by_position = False
    for alias in items(plan.windowExpressions()):
        affected = tied and _depends_on_ties(alias)
        if _picks_a_row(alias) and (tied or _picks_by_count(alias)):
            aggregate, finishes[id_of(alias)] = _picked(catalyst, alias, position.toAttribute())
            by_position = by_position or not _picks_by_count(alias)
            alias = _with_window(catalyst, alias, aggregate, full if affected else order)
        elif affected:
            alias = _with_window(catalyst, alias, items(alias.child().children())[0], full)
        (strict if affected else loose).append(alias)
    if not strict and not finishes:
        return plan
    notes.append("window: rows that tie in its order are ordered by all of their columns")
    window = catalyst.plan_class("Window")
    rows = plan.child()
    if by_position:
        strict.append(position)
    if strict:
        rows = window(catalyst.seq(strict), plan.partitionSpec(), catalyst.seq(full), rows, catalyst.none)
    if loose:
        rows = window(catalyst.seq(loose), plan.partitionSpec(), plan.orderSpec(), rows, catalyst.none)
    rows = _resolved(catalyst, rows)
    computed = {id_of(column): column for column in columns_of(rows)}
    results: list[Java] = []
    for column in columns_of(plan):
        finish = finishes.get(id_of(column))
        if finish is not None:
            picked = _column(catalyst, computed[id_of(column)])
            column = catalyst.alias(catalyst.expression(finish(picked)), column.name(), column.exprId())
        results.append(column)
    return _resolved(catalyst, catalyst.project(results, rows))


def _row_number(catalyst: Catalyst, plan: Java, order: Sequence[Java]) -> Java:
    """The position of each row in a window's partition, in a total order."""
    parts = "org.apache.spark.sql.catalyst.expressions."
    frame = catalyst.expression_class("SpecifiedWindowFrame")(
        *(catalyst.module(parts + name) for name in ("RowFrame", "UnboundedPreceding", "CurrentRow"))
    )
    spec = catalyst.expression_class("WindowSpecDefinition")(plan.partitionSpec(), catalyst.seq(order), frame)
    return catalyst.expression_class("WindowExpression")(catalyst.expression_class("RowNumber")(), spec)


def _parts(alias: Java) -> tuple[Java, Java, Java]:
    """A window expression's function, the aggregate in it if it is one, and its frame."""
    function, spec = items(alias.child().children())
    inner = function.aggregateFunction() if kind_of(function) == "AggregateExpression" else function
    return function, inner, spec.frameSpecification()


def _depends_on_ties(alias: Java) -> bool:
    """Whether a window expression sees in which order equal rows stand, by its function or by a frame of rows."""
    _, inner, frame = _parts(alias)
    name = kind_of(inner)
    if name in _PEERS_ALIKE:
        return False
    if name in _BY_POSITION:
        return True
    if kind_of(frame) != "SpecifiedWindowFrame" or kind_of(frame.frameType()) != "RowFrame":
        return False
    whole = kind_of(frame.lower()) == "UnboundedPreceding" and kind_of(frame.upper()) == "UnboundedFollowing"
    return not whole or name in _BY_INPUT_ORDER


def _picks_a_row(alias: Java) -> bool:
    """Whether a window expression takes a row of its frame where the order of the frame leaves open which one."""
    _, inner, frame = _parts(alias)
    ranged = kind_of(frame) == "SpecifiedWindowFrame" and kind_of(frame.frameType()) == "RangeFrame"
    return _picks_by_count(alias) or (ranged and kind_of(inner) in _BY_INPUT_ORDER)


def _picks_by_count(alias: Java) -> bool:
    _, inner, _ = _parts(alias)
    return kind_of(inner) == "Mode" and not inner.reverseOpt().isDefined()


def _picked(catalyst: Catalyst, alias: Java, position: Java) -> tuple[Java, Finish]:
    """A window's function as one over the same frame that goes by the rows' positions, and what makes its result."""
    function, inner, _ = _parts(alias)
    condition = optional(function.filter()) if kind_of(function) == "AggregateExpression" else None
    aggregate, finish = _in_order(catalyst, inner, condition, False, [position])
    return catalyst.expression(aggregate), finish


def _with_window(catalyst: Catalyst, alias: Java, function: Java, order: Sequence[Java]) -> Java:
    spec = items(alias.child().children())[1]
    ordered = catalyst.expression_class("WindowSpecDefinition")(
        spec.partitionSpec(), catalyst.seq(order), spec.frameSpecification()
    )
    return catalyst.alias(
        catalyst.expression_class("WindowExpression")(function, ordered), alias.name(), alias.exprId()
    )


def _break_aggregate(catalyst: Catalyst, plan: Java, notes: list[str]) -> Java:
    results = items(plan.aggregateExpressions())
    if any(kind_of(part) == "ApproximatePercentile" for result in results for part in walk(result)):
        notes.append("approx_percentile(): from 10,000 rows of a group on, their order decides within its accuracy")
    calls = [part for result in results for part in walk(result) if _by_input_order(part)]
    if not calls:
        return plan
    # Only what these aggregates read is compared, the same for all of them: their results then come from one row.
    # Within a group its own columns are all alike.
    read = {i for call in calls for child in children(call.aggregateFunction()) for i in references(child)}
    read -= {id_of(g) for g in items(plan.groupingExpressions()) if kind_of(g) == "AttributeReference"}
    columns = [c for c in columns_of(plan.child()) if id_of(c) in read and _orderable(c.dataType())]

    def replace(part: Java) -> Java | None:
        if not _by_input_order(part):
            return None
        name = part.aggregateFunction().prettyName()
        if kind_of(part.aggregateFunction()) == "ListAgg":
            notes.append(f"{name}(): where its order leaves any open, it is that of the values")
            return _listed_in_order(catalyst, part)
        notes.append(f"{name}(): its input order is that of all columns it reads")
        aggregate, finish = _in_order(
            catalyst, part.aggregateFunction(), optional(part.filter()), part.isDistinct(), columns
        )
        return catalyst.expression(finish(aggregate))

    rewritten = [rewrite(catalyst, result, replace) for result in results]
    aggregate = catalyst.plan_class("Aggregate")
    return _resolved(
        catalyst, aggregate(plan.groupingExpressions(), catalyst.seq(rewritten), plan.child(), catalyst.none)
    )


def _listed_in_order(catalyst: Catalyst, call: Java) -> Java:
    """A listagg() whose order, if it is asked for any, ends with the values: what still ties then is alike."""
    function = call.aggregateFunction()
    value, asked = items(function.children())[0], items(function.orderExpressions())
    if not any(one.child().semanticEquals(value) for one in asked):
        ascending = catalyst.module("org.apache.spark.sql.catalyst.expressions.Ascending")
        orders = catalyst.module("org.apache.spark.sql.catalyst.expressions.SortOrder")
        asked.append(orders.apply(value, ascending, catalyst.seq([])))
    ordered = function.withOrderingWithinGroup(catalyst.seq(asked))
    return call.withNewChildren(catalyst.seq([ordered, *items(call.children())[1:]]))


def _by_input_order(part: Java) -> bool:
    if kind_of(part) != "AggregateExpression":
        return False
    function = part.aggregateFunction()
    name = kind_of(function)
    return name in _BY_INPUT_ORDER or (name == "Mode" and not function.reverseOpt().isDefined())


def _in_order(
    catalyst: Catalyst, function: Java, condition: Java | None, distinct: bool, columns: Sequence[Java]
) -> tuple[Any, Finish]:
    """A function that depends on input order as one that looks at rows in the order of the columns.

    It comes as an aggregate and what makes the result of it.
    """
    name = kind_of(function)
    inputs = children(function)
    value = _column(catalyst, inputs[0])
    kept = [] if condition is None else [_column(catalyst, condition)]
    if name == "Mode":
        return F.mode(_where(kept, value), deterministic=True), _same
    if name in ("MaxBy", "MinBy", "MaxMinByK"):
        kept.append(_column(catalyst, inputs[1]).isNotNull())
        columns = [inputs[1], *(c for c in columns if not c.semanticEquals(inputs[1]))]
    elif function.ignoreNulls():
        kept.append(value.isNotNull())
    order = F.struct(*(_column(catalyst, c).alias(f"o{i}") for i, c in enumerate(columns)), *_entries(value, inputs[0]))
    if name == "MaxMinByK":
        return F.call_function(function.prettyName(), value, _where(kept, order), _column(catalyst, inputs[2])), _same
    if name == "NthValue":
        nth = _column(catalyst, inputs[1])
        if int(inputs[1].eval(None)) > _MOST_PICKED:
            pairs = F.collect_list(_where(kept, F.struct(order.alias("o"), value.alias("v"))))
            return pairs, lambda found: F.get(_values_in_order(found), nth - 1)
        return F.call_function("min_by", value, _where(kept, order), nth), lambda found: F.get(found, nth - 1)
    if name == "CollectSet" or (name == "CollectList" and distinct):
        values = F.collect_set(_where(kept, F.struct(value.alias("v"))))
        return values, lambda found: F.transform(F.sort_array(found), lambda row: row["v"])
    largest = name in ("MaxBy", "Last")
    if not _orderable(inputs[0].dataType()):
        if name == "CollectList":
            return F.collect_list(_where(kept, F.struct(order.alias("o"), value.alias("v")))), _values_in_order
        return (F.max_by if largest else F.min_by)(value, _where(kept, order)), _same
    row, field = _row(catalyst, columns, inputs[0])
    if name == "CollectList":
        rows = F.collect_list(_where(kept, row))
        return rows, lambda found: F.transform(F.sort_array(found), lambda row: row[field])
    return (F.max if largest else F.min)(_where(kept, row)), lambda found: found[field]


def _same(found: Any) -> Any:
    return found


def _values_in_order(rows: Any) -> Any:
    """The values of (order, value) pairs where the values themselves cannot be compared."""

    def compare(a: Any, b: Any) -> Any:
        return F.when(a["o"] < b["o"], -1).when(a["o"] > b["o"], 1).otherwise(0)

    return F.transform(F.array_sort(rows, compare), lambda row: row["v"])


def _entries(column: Any, value: Java) -> list[Any]:
    """What orders a map: its entries."""
    kind = value.dataType()
    if kind_of(kind) != "MapType" or not _orderable(kind.valueType()):
        return []
    return [F.sort_array(F.map_entries(column)).alias("entries")]


def _column(catalyst: Catalyst, expression: Java) -> Any:
    """An expression as PySpark's column of it."""
    return Column(catalyst.module("org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def _where(conditions: Sequence[Any], value: Any) -> Any:
    """The value where all conditions hold, else NULL."""
    return F.when(reduce(lambda a, b: a & b, conditions), value) if conditions else value


def _row(catalyst: Catalyst, order: Sequence[Java], value: Java) -> tuple[Any, str]:
    """What is compared, as a struct that holds the value, too; and the field that is the value."""
    fields = [_column(catalyst, one).alias(f"o{i}") for i, one in enumerate(order)]
    for i, one in enumerate(order):
        if one.semanticEquals(value):
            return F.struct(*fields), f"o{i}"
    return F.struct(*fields, _column(catalyst, value).alias("v")), "v"
