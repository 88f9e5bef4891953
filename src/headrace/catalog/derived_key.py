"""The key of a view's rows, where the shape of its query gives it: the groups of a GROUP BY, a table's own key, or the
key of the side of a join whose rows match at most one row of each other side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headrace.ir.nodes import Node
from headrace.plans.trees import Java, children, conjuncts, data_type, id_of, items, kind_of, references
from headrace.rules.aggregate import Aggregate
from headrace.rules.context import RuleContext
from headrace.rules.filter_project import FilterProject
from headrace.rules.inner_join import InnerJoin
from headrace.rules.outer_join import OuterJoin
from headrace.rules.scan import Scan
from headrace.types import INTEGERS

# The positions of the columns that make a relation's key; none where it has no key.
KeyOf = Callable[[str], Sequence[int]]
# The ids of the columns of a key.
Key = list[int]
# Types whose values a key tells apart exactly if `=` does; of floats, 0.0 equals -0.0.
_EXACT = (*INTEGERS, DecimalType, StringType, BooleanType, BinaryType, DateType, TimestampType, TimestampNTZType)


def derived_key(context: RuleContext, node: Node, names: Sequence[str], key_of: KeyOf) -> tuple[str, ...]:
    """Return the columns, among those of these names that an operator gives, that identify its rows; none if unknown.

    Filters leave a key as it is, and projections too, as long as they keep its columns, under whatever names.
    """
    given = {column.id: name for column, name in zip(node.output, names, strict=True)}
    kept = (key for key in _keys(context, node, key_of) if all(i in given for i in key))
    return tuple(given[i] for i in next(kept, ()))


def _keys(context: RuleContext, node: Node, key_of: KeyOf) -> list[Key]:
    """Return the keys of an operator's rows, also those whose columns it does not give; none if no key is known."""
    if isinstance(node, FilterProject):
        return _keys_over_steps(context, node, key_of)
    if isinstance(node, Aggregate):
        groups = _renamed([group.id for group in node.groups], context.javas(node.results))
        return [groups] if groups else []
    if isinstance(node, Scan):
        ids = {position: column.id for position, column in zip(node.columns, node.output, strict=True)}
        key = key_of(node.relation)
        return [[ids[position] for position in key]] if key and all(position in ids for position in key) else []
    if isinstance(node, InnerJoin):
        return _keys_of_inner_join(context, node, key_of)
    if isinstance(node, OuterJoin):
        return _keys_of_outer_join(context, node, key_of)
    return []


def _keys_over_steps(context: RuleContext, node: FilterProject, key_of: KeyOf) -> list[Key]:
    if any(step.kind not in ("Project", "Filter") for step in node.steps):
        return []
    keys = _keys(context, node.child, key_of)
    for step in node.steps:
        if step.kind == "Project":
            columns = items(context.java(step).projectList())
            keys = [_renamed(key, columns) for key in keys]
    return keys


def _renamed(ids: Iterable[int], columns: Sequence[Java]) -> Key:
    """Return the ids of columns after a projection, which may give them others."""
    new = {
        id_of(column.child()): id_of(column)
        for column in columns
        if kind_of(column) == "Alias" and kind_of(column.child()) == "AttributeReference"
    }
    return [new.get(i, i) for i in ids]


def _keys_of_inner_join(context: RuleContext, node: InnerJoin, key_of: KeyOf) -> list[Key]:
    """Return the keys of each input whose rows determine the row of every other input."""
    conditions = context.javas(node.conditions)
    keys = [_keys(context, one, key_of) for one in node.inputs]
    found: list[Key] = []
    for root, own in enumerate(keys):
        known = {root, *node.singles}
        waiting = [index for index in range(len(node.inputs)) if index not in known]
        while waiting:
            given = frozenset[int]().union(*(node.inputs[index].ids for index in known))
            reached = [i for i in waiting if _matches_one(node.inputs[i], keys[i], conditions, given)]
            if not reached:
                break
            known.update(reached)
            waiting = [index for index in waiting if index not in known]
        else:
            found += own
    return found


def _keys_of_outer_join(context: RuleContext, node: OuterJoin, key_of: KeyOf) -> list[Key]:
    """Return the keys of the preserved side, if each of its rows comes out at most once."""
    if node.one_sided:
        return _keys(context, node.left, key_of)
    if node.kind == "full" or node.condition is None:
        return []
    preserved, other = (node.left, node.right) if node.kind == "left" else (node.right, node.left)
    conditions = conjuncts(context.java(node.condition))
    if not _matches_one(other, _keys(context, other, key_of), conditions, preserved.ids):
        return []
    return _keys(context, preserved, key_of)


def _matches_one(node: Node, keys: Sequence[Key], conditions: Sequence[Java], given: frozenset[int]) -> bool:
    """Whether conditions let at most one row of an operator match, where the columns of these ids are given."""
    types = {column.id: column.type for column in node.output}
    fixed = {i for part in conditions if (i := _fixed_column(part, types, given)) is not None}
    return any(fixed.issuperset(key) for key in keys)


def _fixed_column(part: Java, types: Mapping[int, DataType], given: frozenset[int]) -> int | None:
    """Return the column whose value a condition fixes by columns that are given."""
    # With `<=>`, a cast that fails to NULL would match many rows.
    if kind_of(part) != "EqualTo":
        return None
    a, b = children(part)
    for one, other in ((a, b), (b, a)):
        column = _exact_column(one)
        if column is not None and isinstance(types.get(column), _EXACT) and references(other) <= given:
            return column
    return None


def _exact_column(expression: Java) -> int | None:
    """Return the column that an expression is, looking through casts to wider integers."""
    if kind_of(expression) == "AttributeReference":
        return id_of(expression)
    if kind_of(expression) == "Cast":
        (inner,) = children(expression)
        source, target = (data_type(one.dataType()) for one in (inner, expression))
        if isinstance(source, INTEGERS) and isinstance(target, INTEGERS):
            widens = INTEGERS.index(type(source)) <= INTEGERS.index(type(target))
            return _exact_column(inner) if widens else None
    return None
