"""From a resolved Spark plan to the operators that have rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.ir.nodes import (
    MOMENTS,
    PAIRS,
    Aggregate,
    AggregateCall,
    Constant,
    Edge,
    FilterProject,
    InnerJoin,
    Limit,
    Node,
    OuterJoin,
    Scan,
    Threshold,
    Touched,
    UnionAll,
)
from headrace.plans.catalyst import Catalyst
from headrace.plans.steps import LINEAR
from headrace.plans.trees import (
    Attribute,
    Java,
    attribute,
    children,
    column_index,
    columns_of,
    conjuncts,
    id_of,
    items,
    kind_of,
    optional,
    output,
    references,
)
from headrace.sql.expressions import (
    aggregate_calls,
    equal_pair,
    exact_input,
    has_partials,
    ordered_column,
    plain_column,
)
from headrace.sql.one_row import CLOCK
from headrace.sql.resolve import relation_of

_COMPARISONS = {
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "EqualTo": "=",
}
_MIRROR = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "="}
_MATCH_KINDS = {
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
    "ExistenceJoin": "existence",
}


class NoRule(Exception):
    """An operator that no rule follows; the reason is for EXPLAIN."""


@dataclass(frozen=True)
class Lowering:
    """What lowering needs beside the plan."""

    catalyst: Catalyst


def lower(context: Lowering, plan: Java) -> Node:
    """The operators of a plan, or NoRule with the reason."""
    kind = kind_of(plan)
    below = children(plan)
    if not below:
        return _lower_leaf(plan)
    if kind in LINEAR:
        return _lower_linear(context, plan)
    if kind == "Union":
        return UnionAll(plan, output(plan), tuple(lower(context, child) for child in below))
    if kind == "Join":
        return _lower_join(context, plan)
    if kind == "Aggregate":
        return _lower_aggregate(context, plan)
    if kind == "Window":
        return _lower_window(context, plan)
    if kind == "Sort":
        return lower(context, plan.child())
    if kind in ("GlobalLimit", "LocalLimit", "Offset"):
        return _lower_limit(context, plan)
    if kind in ("SubqueryAlias", "View", "Repartition", "RepartitionByExpression", "ResolvedHint"):
        return lower(context, plan.child())
    raise NoRule(f"no rule follows the operator {plan.nodeName()}")


def _lower_leaf(plan: Java) -> Node:
    name = relation_of(plan)
    if name is None:
        return Constant(plan, output(plan))
    columns = tuple(column_index(c) for c in columns_of(plan))
    return Scan(plan, output(plan), name, columns)


def _lower_linear(context: Lowering, plan: Java) -> Node:
    child = lower(context, plan.child())
    if kind_of(plan) == "Project" and isinstance(child, Scan):
        columns = items(plan.projectList())
        if columns and all(kind_of(c) == "AttributeReference" for c in columns):
            places = {a.id: place for a, place in zip(child.output, child.columns, strict=True)}
            chosen = tuple(places[id_of(c)] for c in columns)
            return Scan(plan, output(plan), child.relation, chosen)
    return over(child, plan)


def over(child: Node, step: Java) -> Node:
    """A linear step on top of an operator; neighbouring steps are kept together."""
    if isinstance(child, FilterProject):
        return FilterProject(step, output(step), child.child, (*child.steps, step))
    return FilterProject(step, output(step), child, (step,))


def project_over(catalyst: Catalyst, child: Node, columns: Sequence[Java]) -> Node:
    """A projection on top of an operator."""
    return over(child, catalyst.project(columns, child.plan))


def _lower_limit(context: Lowering, plan: Java) -> Node:
    chain: list[Java] = []
    node = plan
    while kind_of(node) in ("GlobalLimit", "LocalLimit", "Offset"):
        chain.append(node)
        node = node.child()
    # From the inside out, each LIMIT and OFFSET cuts down what the ones below it leave.
    offset, end = 0, None
    for one in reversed(chain):
        if kind_of(one) == "Offset":
            offset += int(one.offsetExpr().eval(None))
        else:
            cut = offset + int(one.limitExpr().eval(None))
            end = cut if end is None else min(end, cut)
    limit = None if end is None else max(end - offset, 0)
    if kind_of(node) == "Project" and kind_of(node.child()) == "Sort":
        # The columns are chosen above the limit, not below it: what is filled by either plan must be cut by it.
        sort = node.child()
        cut = sort
        for one in reversed(chain):
            cut = one.withNewChildren(context.catalyst.seq([cut]))
        inner = Limit(cut, output(sort), lower(context, sort.child()), tuple(items(sort.order())), limit, offset)
        return over(inner, node.withNewChildren(context.catalyst.seq([cut])))
    order: tuple[Java, ...] = ()
    child = node
    if kind_of(node) == "Sort":
        order, child = tuple(items(node.order())), node.child()
    return Limit(plan, output(plan), lower(context, child), order, limit, offset)


def _lower_join(context: Lowering, plan: Java) -> Node:
    kind = kind_of(plan.joinType())
    if kind in ("Inner", "Cross"):
        return _lower_inner(context, plan)
    if kind == "UsingJoin" or kind not in _MATCH_KINDS:
        raise NoRule(f"no rule follows a join of type {plan.joinType().sql()}")
    left, right = children(plan)
    condition = optional(plan.condition())
    left_ids, right_ids = _ids(left), _ids(right)
    left_keys: list[Java] = []
    right_keys: list[Java] = []
    safe: list[bool] = []
    for part in conjuncts(condition):
        pair = equal_pair(part, left_ids, right_ids)
        if pair:
            left_keys.append(pair[0])
            right_keys.append(pair[1])
            safe.append(kind_of(part) == "EqualNullSafe")
    left_node, left_columns = _with_keys(context, left, left_keys)
    right_node, right_columns = _with_keys(context, right, right_keys)
    return OuterJoin(
        plan,
        output(plan),
        _MATCH_KINDS[kind],
        left_node,
        right_node,
        left_columns,
        right_columns,
        any(safe) or not safe,
        condition,
    )


def _ids(plan: Java) -> set[int]:
    return {id_of(column) for column in columns_of(plan)}


def _with_keys(context: Lowering, plan: Java, keys: Sequence[Java]) -> tuple[Node, tuple[int, ...]]:
    """An input with every key expression as one of its columns, and the ids of those columns."""
    ids: list[int] = []
    added: list[Java] = []
    for key in keys:
        column = plain_column(key)
        if column is None:
            alias = context.catalyst.alias(key, f"_key{len(ids)}")
            added.append(alias)
            column = alias
        ids.append(id_of(column))
    node = lower(context, plan)
    if added:
        node = project_over(context.catalyst, node, [*(a.java for a in node.output), *added])
    return node, tuple(ids)


def _lower_inner(context: Lowering, plan: Java) -> Node:
    inputs: list[Java] = []
    conditions: list[Java] = []
    _flatten(plan, inputs, conditions)
    ids = [_ids(one) for one in inputs]
    pairs: dict[tuple[int, int], list[tuple[Java, Java]]] = {}
    safe: set[tuple[int, int]] = set()
    for part in conditions:
        for i in range(len(inputs)):
            for j in range(i + 1, len(inputs)):
                pair = equal_pair(part, ids[i], ids[j])
                if pair:
                    pairs.setdefault((i, j), []).append(pair)
                    safe |= {(i, j)} if kind_of(part) == "EqualNullSafe" else set()
    keys: list[list[Java]] = [[] for _ in inputs]
    for (i, j), found in pairs.items():
        keys[i].extend(a for a, _ in found)
        keys[j].extend(b for _, b in found)
    nodes: list[Node] = []
    columns: list[list[int]] = []
    for one, own in zip(inputs, keys, strict=True):
        node, ids_of_keys = _with_keys(context, one, own)
        nodes.append(node)
        columns.append(list(ids_of_keys))
    edges: list[Edge] = []
    used = [0] * len(inputs)
    for (i, j), found in pairs.items():
        count = len(found)
        left = tuple(columns[i][used[i] : used[i] + count])
        right = tuple(columns[j][used[j] : used[j] + count])
        used[i] += count
        used[j] += count
        edges.append(Edge(i, j, left, right, (i, j) in safe))
    singles = frozenset(i for i, node in enumerate(nodes) if is_single(node))
    thresholds = [t for part in conditions for t in _thresholds(part, nodes, singles)]
    return InnerJoin(plan, output(plan), tuple(nodes), tuple(conditions), tuple(edges), tuple(thresholds), singles)


def _flatten(plan: Java, inputs: list[Java], conditions: list[Java]) -> None:
    kind = kind_of(plan)
    if kind == "Join" and kind_of(plan.joinType()) in ("Inner", "Cross"):
        for child in children(plan):
            _flatten(child, inputs, conditions)
        conditions.extend(conjuncts(optional(plan.condition())))
        return
    below_is_inner = (
        kind == "Project" and kind_of(plan.child()) == "Join" and kind_of(plan.child().joinType()) in ("Inner", "Cross")
    )
    if below_is_inner and all(kind_of(c) == "AttributeReference" for c in items(plan.projectList())):
        _flatten(plan.child(), inputs, conditions)
        return
    inputs.append(plan)


def is_single(node: Node) -> bool:
    """Whether an operator never gives more than one row."""
    if isinstance(node, Aggregate):
        return not node.groups
    if isinstance(node, Touched):
        return len(node.steps) == 1 and kind_of(node.steps[0]) == "Aggregate" and not _groups(node.steps[0])
    if isinstance(node, Scan):
        return node.relation == CLOCK
    if isinstance(node, Constant):
        return kind_of(node.plan) == "OneRowRelation"
    if isinstance(node, FilterProject):
        return is_single(node.child) and all(kind_of(step) in ("Project", "Filter") for step in node.steps)
    return False


def _thresholds(part: Java, nodes: Sequence[Node], singles: frozenset[int]) -> list[Threshold]:
    operator = _COMPARISONS.get(kind_of(part))
    if operator is None:
        return []
    found: list[Threshold] = []
    a, b = children(part)
    for side, other, sign in ((a, b, operator), (b, a, _MIRROR[operator])):
        column = ordered_column(side)
        if column is None or not references(other):
            continue
        for s in singles:
            if references(other) <= {x.id for x in nodes[s].output}:
                for i, node in enumerate(nodes):
                    if i not in singles and any(x.id == id_of(column) for x in node.output):
                        found.append(Threshold(i, id_of(column), sign, other, s, part))
    return found


def _lower_window(context: Lowering, plan: Java) -> Node:
    steps: list[Java] = []
    top = plan
    keys = items(plan.partitionSpec())
    base = plan.child()
    steps.append(plan)
    # Windows over finer partitions of the same rows are computed in one go, with what lies between them.
    while True:
        between: list[Java] = []
        node = base
        while kind_of(node) in ("Project", "Filter"):
            between.append(node)
            node = node.child()
        if kind_of(node) != "Window":
            break
        lower_keys = {id_of(k) for k in items(node.partitionSpec()) if kind_of(k) == "AttributeReference"}
        upper_keys = {id_of(k) for k in keys if kind_of(k) == "AttributeReference"}
        if len(upper_keys) != len(keys) or len(lower_keys) != node.partitionSpec().size():
            break
        if bool(lower_keys) != bool(upper_keys) or not (lower_keys <= upper_keys or upper_keys <= lower_keys):
            break
        common = keys if upper_keys <= lower_keys else items(node.partitionSpec())
        common_ids = {id_of(k) for k in common}
        if not all(_passes(step, common_ids) for step in [*between, node.child()]):
            break
        keys = common
        steps = [node, *reversed(between), *steps]
        base = node.child()
    child, ids = _with_keys(context, base, keys)
    what = "window" if ids else "window without PARTITION BY"
    return Touched(top, output(top), child, ids, tuple(steps), what)


def _passes(step: Java, ids: set[int]) -> bool:
    return ids <= {id_of(c) for c in columns_of(step)}


def _lower_aggregate(context: Lowering, plan: Java) -> Node:
    groups = items(plan.groupingExpressions())
    results = items(plan.aggregateExpressions())
    calls = aggregate_calls(results)
    if any(_is_session(group) for group in groups):
        # A row may join two sessions into one, so all of those with the same other groups are worked out anew.
        child, ids = _with_keys(context, plan.child(), [group for group in groups if not _is_session(group)])
        return Touched(plan, output(plan), child, ids, (plan,), "group" if ids else "sessions of the whole input")
    if all(kind_of(g) == "AttributeReference" for g in groups) and all(has_partials(c) for c in calls):
        return _lower_partials(context, plan, groups, results, calls)
    if not output(plan):
        # One group or none, and no column of it is read: rows without columns say nothing of a row that is there.
        raise NoRule("no rule follows a group of which no column is read")
    # A constant tells no rows apart: where nothing else is grouped by, there is one group or none.
    child, ids = _with_keys(context, plan.child(), [group for group in groups if references(group)])
    names = sorted({c.aggregateFunction().prettyName() for c in calls if not has_partials(c)})
    what = "group" if ids else "group of a constant" if groups else f"{', '.join(names)} over the whole input"
    return Touched(plan, output(plan), child, ids, (plan,), what)


def _groups(plan: Java) -> list[Java]:
    return items(plan.groupingExpressions())


def _is_session(group: Java) -> bool:
    """Whether a group is a session window, which Spark stretches over the rows that it holds."""
    return kind_of(group) == "AttributeReference" and group.metadata().contains("spark.sessionWindow")


def _lower_partials(
    context: Lowering, plan: Java, groups: Sequence[Java], results: Sequence[Java], calls: Sequence[Java]
) -> Node:
    catalyst = context.catalyst
    child = lower(context, plan.child())
    columns: list[Java] = list(groups)
    made: list[AggregateCall] = []
    for call in calls:
        function = call.aggregateFunction()
        name = kind_of(function)
        inputs = children(function)
        if name in MOMENTS or name in PAIRS:
            inputs = [exact_input(c) or c for c in inputs]
        condition = optional(call.filter())
        places: list[int] = []
        for one in inputs:
            counts_rows = name == "Count" and condition is None and not call.isDistinct()
            if counts_rows and kind_of(one) == "Literal" and one.value() is not None:
                continue
            if condition is not None:
                one = catalyst.expression_class("If")(condition, one, catalyst.null_literal(one.dataType()))
            places.append(_place_of(catalyst, columns, one))
        made.append(AggregateCall(call, name, call.isDistinct() and name not in ("Min", "Max"), tuple(places)))
    wanted = [id_of(c) for c in columns]
    if wanted != [a.id for a in child.output]:
        child = _narrowed(catalyst, child, columns)
    return Aggregate(plan, output(plan), child, tuple(attribute(g) for g in groups), tuple(made), tuple(results))


def _narrowed(catalyst: Catalyst, child: Node, columns: Sequence[Java]) -> Node:
    """The wanted columns; a mere choice of a relation's columns needs no step."""
    if isinstance(child, Scan) and columns and all(kind_of(c) == "AttributeReference" for c in columns):
        places = {a.id: place for a, place in zip(child.output, child.columns, strict=True)}
        plan = catalyst.project(columns, child.plan)
        chosen = tuple(places[id_of(c)] for c in columns)
        return Scan(plan, tuple(attribute(c) for c in columns), child.relation, chosen)
    return project_over(catalyst, child, columns)


def _place_of(catalyst: Catalyst, columns: list[Java], expression: Java) -> int:
    for place, known in enumerate(columns):
        inner = known if kind_of(known) == "AttributeReference" else children(known)[0]
        if inner.semanticEquals(expression):
            return place
    if kind_of(expression) == "AttributeReference":
        columns.append(expression)
    else:
        columns.append(catalyst.alias(expression, f"_input{len(columns)}"))
    return len(columns) - 1


def column_places(node: Node, ids: Sequence[int]) -> tuple[int, ...]:
    """Where the columns with these ids stand in an operator's output."""
    places = {a.id: i for i, a in enumerate(node.output)}
    return tuple(places[i] for i in ids)


__all__ = ["Attribute", "Lowering", "NoRule", "column_places", "exact_input", "is_single", "lower"]
