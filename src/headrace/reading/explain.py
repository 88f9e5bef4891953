"""EXPLAIN: which rule follows each operator of a view, and why something is not incremental."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.catalog.catalog import View
from headrace.ir.nodes import (
    Aggregate,
    Constant,
    FilterProject,
    InnerJoin,
    Limit,
    Node,
    OuterJoin,
    Scan,
    Touched,
    UnionAll,
)
from headrace.plans.trees import Java, kind_of
from headrace.rules.build import reach_of
from headrace.sql.lower import Lowering, NoRule, lower

_STEPS = {"Project": "project", "Filter": "filter", "Generate": "explode", "Expand": "grouping sets"}


@dataclass(frozen=True)
class Explanation:
    """How a view is kept current."""

    name: str
    incremental: bool
    reasons: list[str]
    text: str

    def __str__(self) -> str:
        return self.text


def explain_view(view: View) -> Explanation:
    """The rules of a view, operator by operator."""
    lines = [f"view {view.name}: {'incremental' if view.incremental else 'not incremental'}"]
    if view.rule is not None:
        try:
            _describe(lower(Lowering(view.context.catalyst), view.resolved.plan), 1, lines)
        except NoRule:
            lines.append("  full recompute with a diff")
    else:
        lines.append("  full recompute with a diff")
    lines.extend(f"because {reason}" for reason in view.reasons)
    lines.extend(f"note: {note}" for note in (*view.resolved.ties, *view.context.notes))
    if view.resolved.uses_clock:
        lines.append("note: now() and current_date follow the epoch's clock")
    return Explanation(view.name, view.incremental, list(view.reasons), "\n".join(lines))


def _describe(node: Node, depth: int, lines: list[str], above: Sequence[Java] = ()) -> None:
    lines.append("  " * depth + _sentence(node, above))
    for child in _below(node):
        _describe(child, depth + 1, lines, node.steps if isinstance(node, FilterProject) else ())


def _below(node: Node) -> tuple[Node, ...]:
    if isinstance(node, (UnionAll, InnerJoin)):
        return node.inputs
    if isinstance(node, OuterJoin):
        return (node.left, node.right)
    if isinstance(node, (FilterProject, Aggregate, Touched, Limit)):
        return (node.child,)
    return ()


def _sentence(node: Node, above: Sequence[Java]) -> str:
    if isinstance(node, Scan):
        return f"{node.relation}: its delta, columns {', '.join(a.name for a in node.output)}"
    if isinstance(node, Constant):
        return "constant rows"
    if isinstance(node, FilterProject):
        steps = ", ".join(dict.fromkeys(_STEPS[kind_of(step)] for step in node.steps))
        return f"linear ({steps}): applied to the delta"
    if isinstance(node, UnionAll):
        return "union all: the deltas together"
    if isinstance(node, InnerJoin):
        return f"inner join of {len(node.inputs)}: slices reached from the change by the join's keys"
    if isinstance(node, OuterJoin):
        keyed = "keys touched on either side" if node.left_keys else "both inputs whole"
        return f"{node.kind} join: {keyed}, new output minus old"
    if isinstance(node, Aggregate):
        names = ", ".join(dict.fromkeys(call.java.aggregateFunction().prettyName() for call in node.calls))
        what = ", ".join(a.name for a in node.groups) or "all rows"
        return f"group by {what}: partials of {names or 'the row count'}, groups touched"
    if isinstance(node, Touched):
        reach = reach_of(node, above)
        if reach is not None:
            return f"{node.what}: {reach.sentence()}, new output minus old"
        return f"{node.what}: {'keys touched' if node.keys else 'the whole input'}, new output minus old"
    if isinstance(node, Limit):
        return "order by with limit: the first rows are kept sorted"
    raise AssertionError(type(node).__name__)
