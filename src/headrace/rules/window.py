"""Window functions (OVER): how they are read off Spark's plan, and by which rule they are followed.

Where it is known how far the functions look from a row (window_reach.py), only pieces of the touched partitions are
read (window_rule.py, window_pieces.py, window_running.py); any other window reads them whole (touched_keys.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.ir.nodes import Node, Tree
from headrace.plans.trees import Java, columns_of, id_of, items, kind_of
from headrace.rules.base import Rule
from headrace.rules.context import Above, Operator, RuleContext
from headrace.rules.filter_project import FilterProject, lower_with_keys
from headrace.rules.touched_keys import TouchedKeys, build_touched
from headrace.rules.window_reach import WindowReach, find_reach, is_inexact, limited
from headrace.rules.window_rule import build_by_pieces


@dataclass(frozen=True)
class Window(TouchedKeys):
    """Windows over the same partitions or finer ones, and the steps between them.

    The reach is what the functions read of a partition, whatever is wanted of their rows; None is all of it.
    """

    reach: WindowReach | None


def lower(context: RuleContext, plan: Java) -> Window | None:
    """Windows over finer partitions of the same rows are computed in one go, with what lies between them."""
    if kind_of(plan) != "Window":
        return None
    steps, keys, base = [plan], items(plan.partitionSpec()), plan.child()
    while (below := _same_rows(base, keys)) is not None:
        between, window, keys = below
        steps = [window, *reversed(between), *steps]
        base = window.child()
    child, ids = lower_with_keys(context, base, keys)
    what = "window" if ids else "window without PARTITION BY"
    tree, output, trees = context.handles.tree(plan), context.handles.output(plan), context.handles.trees(steps)
    return Window(tree, output, child, ids, trees, what, is_inexact(steps), find_reach(steps, ids, child.ids))


def _same_rows(plan: Java, keys: list[Java]) -> tuple[list[Java], Java, list[Java]] | None:
    """A window below one with these keys that can be computed with it: the steps down to it, it, and common keys."""
    between: list[Java] = []
    while kind_of(plan) in ("Project", "Filter"):
        between.append(plan)
        plan = plan.child()
    if kind_of(plan) != "Window":
        return None
    lower_keys = items(plan.partitionSpec())
    lower_ids, upper_ids = _plain_ids(lower_keys), _plain_ids(keys)
    if lower_ids is None or upper_ids is None or bool(lower_ids) != bool(upper_ids):
        return None
    if not (lower_ids <= upper_ids or upper_ids <= lower_ids):
        return None
    common = keys if upper_ids <= lower_ids else lower_keys
    ids = {id_of(key) for key in common}
    if not all(ids <= {id_of(column) for column in columns_of(step)} for step in [*between, plan.child()]):
        return None
    return between, plan, common


def _plain_ids(keys: Sequence[Java]) -> set[int] | None:
    """The ids of keys, if all of them are columns, each once."""
    ids = {id_of(key) for key in keys if kind_of(key) == "AttributeReference"}
    return ids if len(ids) == len(keys) else None


def reach_of(context: RuleContext, node: Window, steps: Sequence[Tree]) -> WindowReach | None:
    """How much of its partitions a window reads, given the steps above it; None where it reads them whole."""
    if node.reach is None:
        return None
    return limited(node.reach, () if node.is_inexact else context.javas(steps))


def build(context: RuleContext, node: Window, above: Above) -> Rule:
    """By pieces of the touched partitions where that is enough, else by whole ones."""
    reach = reach_of(context, node, above.steps)
    return build_touched(context, node, above) if reach is None else build_by_pieces(context, node, reach, above)


def sentence(context: RuleContext, node: Window, above: Node | None) -> str:
    """For EXPLAIN."""
    reach = reach_of(context, node, above.steps if isinstance(above, FilterProject) else ())
    whole = "keys touched" if node.keys else "the whole input"
    return f"{node.what}: {whole if reach is None else reach.sentence()}, new output minus old"


OPERATOR = Operator(Window, lower, build, sentence, takes_steps=lambda node: not node.is_inexact)
