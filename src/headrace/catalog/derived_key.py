"""The key of a view's rows, where the shape of its query tells it: the groups of a GROUP BY, or a table's own key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headrace.ir.nodes import Node
from headrace.plans.trees import Java, id_of, items, kind_of
from headrace.rules.aggregate import Aggregate
from headrace.rules.context import RuleContext
from headrace.rules.filter_project import FilterProject
from headrace.rules.scan import Scan

# The positions of the columns that make a relation's key; none where it has no key.
KeyOf = Callable[[str], Sequence[int]]


def derived_key(context: RuleContext, node: Node, names: Sequence[str], key_of: KeyOf) -> tuple[str, ...]:
    """The columns, among those of these names that an operator gives, that tell its rows apart; none if unknown.

    Filters leave a key as it is, and projections too, as long as they keep its columns, under whatever names.
    """
    base, steps = (node.child, node.steps) if isinstance(node, FilterProject) else (node, ())
    if any(step.kind not in ("Project", "Filter") for step in steps):
        return ()
    ids = _key_ids(context, base, key_of)
    for step in steps:
        if step.kind == "Project":
            ids = _renamed(ids, items(context.java(step).projectList()))
    given = {column.id: name for column, name in zip(node.output, names, strict=True)}
    return tuple(given[i] for i in ids) if all(i in given for i in ids) else ()


def _key_ids(context: RuleContext, base: Node, key_of: KeyOf) -> list[int]:
    if isinstance(base, Aggregate):
        return _renamed([group.id for group in base.groups], context.javas(base.results))
    if isinstance(base, Scan):
        ids = {position: column.id for position, column in zip(base.columns, base.output, strict=True)}
        key = key_of(base.relation)
        return [ids[position] for position in key] if all(position in ids for position in key) else []
    return []


def _renamed(ids: Iterable[int], columns: Sequence[Java]) -> list[int]:
    """The ids of columns after a projection, which may give them others."""
    new = {
        id_of(column.child()): id_of(column)
        for column in columns
        if kind_of(column) == "Alias" and kind_of(column.child()) == "AttributeReference"
    }
    return [new.get(i, i) for i in ids]
