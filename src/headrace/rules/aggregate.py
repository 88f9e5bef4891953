"""GROUP BY, DISTINCT and aggregates of everything, with partial results of each group.

Which aggregates have them is in aggregate_calls.py, what is kept in aggregate_partials.py and aggregate_values.py, and
the algebra in aggregate_rule.py. Any other GROUP BY is computed anew (aggregate_whole.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.ir.nodes import Column, Node, Tree
from headrace.plans.catalyst import analyzed_plan, rewrite
from headrace.plans.query import Leaf, LeafShape
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, children, columns_of, data_type, id_of, items, kind_of, optional
from headrace.rules.aggregate_calls import MOMENTS, PAIRS, AggregateCall, calls_in, exact_input, has_partials
from headrace.rules.aggregate_direct import direct_results
from headrace.rules.aggregate_partials import buffer_columns, buffers_of, fill_groups, partials_of
from headrace.rules.aggregate_rule import AggregateRule
from headrace.rules.aggregate_values import GrowingValues, keep_values
from headrace.rules.base import LONG
from headrace.rules.context import Above, Operator, RuleContext
from headrace.rules.filter_project import FilterProject, project_over
from headrace.rules.remembered import Remembered, remember
from headrace.rules.scan import Scan
from headrace.rules.signed import named


@dataclass(frozen=True)
class Aggregate(Node):
    """A GROUP BY whose aggregates are kept as partial results; the first columns below are the groups."""

    child: Node
    groups: tuple[Column, ...]
    calls: tuple[AggregateCall, ...]
    results: tuple[Tree, ...]

    @property
    def is_inexact(self) -> bool:
        """Whether what it gives out must be remembered."""
        return any(call.is_inexact for call in self.calls)


def lower(context: RuleContext, plan: Java) -> Aggregate | None:
    """An aggregate over plain columns all of whose functions have partial results."""
    if kind_of(plan) != "Aggregate":
        return None
    groups = items(plan.groupingExpressions())
    results = items(plan.aggregateExpressions())
    calls = calls_in(results)
    if not all(_is_plain(group) for group in groups) or not all(has_partials(call) for call in calls):
        return None
    child = context.lower(plan.child())
    columns: list[Java] = list(groups)
    made = tuple(_lower_call(context, call, columns) for call in calls)
    if [id_of(column) for column in columns] != [column.id for column in child.output]:
        child = project_over(context, child, columns)
    return Aggregate(
        context.handles.tree(plan),
        context.handles.output(plan),
        child,
        tuple(context.handles.column(group) for group in groups),
        made,
        context.handles.trees(results),
    )


def _is_plain(group: Java) -> bool:
    """Whether a group is a column, and no session window, which Spark stretches over the rows that it holds."""
    return kind_of(group) == "AttributeReference" and not is_session(group)


def is_session(group: Java) -> bool:
    """Whether a group is a session window."""
    return kind_of(group) == "AttributeReference" and group.metadata().contains("spark.sessionWindow")


def _lower_call(context: RuleContext, call: Java, columns: list[Java]) -> AggregateCall:
    """One aggregate; what it takes is added to the columns of the node below."""
    catalyst = context.catalyst
    function = call.aggregateFunction()
    name = kind_of(function)
    inputs = children(function)
    if name in MOMENTS or name in PAIRS:
        inputs = [exact_input(one) or one for one in inputs]
    condition = optional(call.filter())
    distinct = bool(call.isDistinct())
    taken: list[int] = []
    for one in inputs:
        counts_rows = name == "Count" and condition is None and not distinct
        if counts_rows and kind_of(one) == "Literal" and one.value() is not None:
            continue
        if condition is not None:
            one = catalyst.expression_class("If")(condition, one, catalyst.null_literal(one.dataType()))
        taken.append(_position_of(context, columns, one))
    return AggregateCall(
        context.handles.tree(call),
        name,
        str(function.prettyName()),
        distinct and name not in ("Min", "Max"),
        tuple(taken),
        data_type(call.dataType()),
        tuple(context.handles.column(buffer) for buffer in items(function.aggBufferAttributes())),
    )


def _position_of(context: RuleContext, columns: list[Java], expression: Java) -> int:
    """Where an expression stands among the columns, to which it is added if need be."""
    for position, known in enumerate(columns):
        inner = known if kind_of(known) == "AttributeReference" else children(known)[0]
        if inner.semanticEquals(expression):
            return position
    is_column = kind_of(expression) == "AttributeReference"
    columns.append(expression if is_column else context.catalyst.alias(expression, f"_input{len(columns)}"))
    return len(columns) - 1


def build(context: RuleContext, node: Aggregate, above: Above) -> AggregateRule:
    """The stores of values and partials, and the query that finishes them."""
    child = context.build(node.child)
    width, below = len(node.groups), node.child.types
    partials = partials_of(node.calls, below)
    plan = context.java(node.child.plan)
    kinds: dict[tuple[int, ...], set[str]] = {}
    for partial in partials:
        if partial.remembers:
            kinds.setdefault(partial.columns, set()).add(partial.kind)
    grows = _only_grows(context, node.child)
    values = [
        GrowingValues(columns)
        if grows and wanted <= {"min", "max"}
        else keep_values(context, plan, below, width, columns)
        for columns, wanted in kinds.items()
    ]
    state_types = (*below[:width], *(partial.type for partial in partials))
    told = buffer_columns(node.calls, partials)
    state = context.store(
        state_types,
        plan,
        lambda frame: fill_groups(frame, width, partials),
        # Where the partials say all, the rows are read off them, and the input is read once for both.
        stands_for=None if told is None else context.java(node.plan),
        gives=lambda frame: _results_of(context, node, frame, told or ()),
    )
    remembered = _remember(context, node) if node.is_inexact else None
    buffers = tuple(buffer for call in node.calls for buffer in call.buffers)

    def build_query(leaves: list[Leaf]) -> Java:
        (leaf,) = leaves
        return _finished(context, node, above, leaf, remembered is not None)

    is_direct = not above.steps and remembered is None
    query = context.query([LeafShape((*_groups(node), *buffers), (("weight", LONG),))], build_query)
    return AggregateRule(
        types=above.types,
        view=context.view,
        child=child,
        width=width,
        partials=tuple(partials),
        buffers=tuple(buffers_of(node.calls, partials, below)),
        values=tuple(values),
        state=state.name,
        state_schema=state.schema,
        remembered=remembered,
        query=query,
        direct=direct_results(context, _groups(node), node.calls, node.results) if is_direct else None,
    )


def _only_grows(context: RuleContext, node: Node) -> bool:
    """Whether rows only ever come: of a relation of which that is so, each mapped alone."""
    while isinstance(node, FilterProject):
        node = node.child
    return isinstance(node, Scan) and node.relation in context.growing


def _groups(node: Aggregate) -> Sequence[Column]:
    return node.child.output[: len(node.groups)]


def _remember(context: RuleContext, node: Aggregate) -> Remembered:
    catalyst, plan = context.catalyst, context.java(node.plan)
    keys = [catalyst.alias(group, f"k{i}") for i, group in enumerate(context.javas(_groups(node)))]
    keyed = catalyst.plan_class("Aggregate")(
        plan.groupingExpressions(), catalyst.seq([*context.javas(node.results), *keys]), plan.child(), catalyst.none
    )
    return remember(context, node, _groups(node), keyed)


def _finished(context: RuleContext, node: Aggregate, above: Above, leaf: Leaf, keyed: bool) -> Java:
    """What Spark's own final expressions make of buffers; keyed by the groups, or weighed and with the steps above."""
    catalyst = context.catalyst
    results = _results(context, node)
    if keyed:
        keys = [catalyst.alias(group, f"k{i}") for i, group in enumerate(context.javas(_groups(node)))]
        plan = catalyst.project([*results, *keys], leaf.plan)
        return named(catalyst, plan, columns_of(plan))
    weight = leaf.extra["weight"]
    plan = catalyst.project([*results, weight], leaf.plan)
    plan = apply_steps(catalyst, context.javas(above.steps), plan, [weight])
    return named(catalyst, plan, [*context.javas(above.output), weight])


def _results(context: RuleContext, node: Aggregate) -> list[Java]:
    """The results with Spark's own final expressions in the place of the aggregates."""
    calls = context.javas(call.tree for call in node.calls)

    def finish(expression: Java) -> Java | None:
        if kind_of(expression) != "AggregateExpression":
            return None
        call = next(call for call in calls if call.semanticEquals(expression))
        return call.aggregateFunction().evaluateExpression()

    return [rewrite(context.catalyst, result, finish) for result in context.javas(node.results)]


def _results_of(context: RuleContext, node: Aggregate, frame: Any, told: Sequence[int]) -> Any:
    """The rows of a GROUP BY, read off a frame of its groups and partials, of which these are the buffers."""
    catalyst, groups = context.catalyst, _groups(node)
    plan = analyzed_plan(frame)
    held = columns_of(plan)
    taken = [*held[: len(groups)], *(held[len(groups) + index] for index in told)]
    wanted = (*groups, *(buffer for call in node.calls for buffer in call.buffers))
    columns = [catalyst.alias(source, one.name, catalyst.id_of(one)) for source, one in zip(taken, wanted, strict=True)]
    return catalyst.frame(catalyst.project(_results(context, node), catalyst.project(columns, plan)))


def sentence(context: RuleContext, node: Aggregate, above: Node | None) -> str:
    """For EXPLAIN."""
    names = ", ".join(dict.fromkeys(call.shown for call in node.calls))
    what = ", ".join(group.name for group in node.groups) or "all rows"
    grows = ", of rows that only come" if _only_grows(context, node.child) else ""
    return f"group by {what}: partials of {names or 'the row count'}{grows}, groups touched"


OPERATOR = Operator(
    Aggregate,
    lower,
    build,
    sentence,
    takes_steps=lambda node: not node.is_inexact,
    is_single=lambda _, node: not node.groups,
)
