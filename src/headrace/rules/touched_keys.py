"""Operators that are computed anew for the keys that changed.   Δ(f R) = f(R'|k) − f(R|k), k the keys touched

A row's result depends only on the rows of its partition or group. So all rows of the touched keys are read, before
and after, and computed anew in one query with the side as one more key. State: the input. Cost: the rows of the
touched keys. Without a key the whole input is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import Node, Tree
from headrace.plans.catalyst import Catalyst
from headrace.plans.query import Leaf, Query
from headrace.plans.steps import LINEAR, apply_steps
from headrace.plans.trees import Java, columns_of, id_of, items, kind_of
from headrace.rules.base import Epoch, check_bound
from headrace.rules.context import Above, RuleContext
from headrace.rules.inputs import Input, hashes_of, make_input, read_leaf, shape_of
from headrace.rules.remembered import Remembered, remember
from headrace.rules.signed import by_side, named, repeated, side_table, sided
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty


@dataclass(frozen=True)
class TouchedKeys(Node):
    """Steps, bottom first, whose result for a key depends on the rows of that key alone.

    One that is inexact computes floating-point values from many rows.
    """

    child: Node
    keys: tuple[int, ...]
    steps: tuple[Tree, ...]
    what: str
    is_inexact: bool


@dataclass(frozen=True, eq=False)
class TouchedKeysRule:
    """One query over the rows of the touched keys, before and after."""

    types: tuple[DataType, ...]
    input: Input
    key: tuple[int, ...]
    of_everything: bool
    query: Query
    remembered: Remembered | None

    def delta(self, epoch: Epoch) -> Delta:
        """New output minus old output for the touched keys."""
        change = self.input.changed(epoch)
        if change is None:
            return empty(arrow_schema(self.types))
        wanted = np.unique(hashes_of(change, self.key))
        before = self.input.lookup(epoch, self.key, wanted) if self.key else self.input.all(epoch)
        rows = sided(before, change)
        check_bound(epoch, sum(int(part.weights.sum()) for part in rows))
        if self.remembered is not None:
            return self.remembered.exchange(epoch, wanted, self.query.run([repeated(rows[1])]))
        if self.of_everything:
            return self._difference(*rows)
        return by_side(self.query.run([side_table(*rows, repeat=True, weigh=False)]), self.types)

    def _difference(self, before: Delta, after: Delta) -> Delta:
        """A global aggregate has a row even of no rows, so each side is a query of its own."""
        parts = [conform(self.query.run([repeated(one)]), self.types) for one in (before, after)]
        weights = [np.full(part.num_rows, sign, dtype=np.int64) for part, sign in zip(parts, (-1, 1), strict=True)]
        return consolidate(pa.concat_tables(parts).combine_chunks(), np.concatenate(weights))


def build_touched(context: RuleContext, node: TouchedKeys, above: Above) -> TouchedKeysRule:
    """The input, looked up by the keys, and the query over what was found."""
    one = make_input(context, node.child, node.keys)
    if not node.keys:
        context.reasons.append(f"{node.what}: a change reads the whole input")
    of_everything = not node.keys and node.steps[-1].kind == "Aggregate"
    known = {column.id: column for column in node.child.output}
    keys = context.javas(known[i] for i in node.keys)
    remembered = None
    if node.is_inexact:
        remembered = remember(context, node, [known[i] for i in node.keys], _keyed_plan(context, node, keys))

    def build_query(leaves: list[Leaf]) -> Java:
        (leaf,) = leaves
        if of_everything or remembered is not None:
            return _one_side(context, node, above, read_leaf(context, one, leaf, []), keys)
        side = leaf.extra["side"]
        return _both_sides(context, node, above, read_leaf(context, one, leaf, [side]), side)

    query = context.query([shape_of(one, "side")], build_query)
    return TouchedKeysRule(above.types, one, one.positions(node.keys), of_everything, query, remembered)


def _one_side(context: RuleContext, node: TouchedKeys, above: Above, plan: Java, keys: Sequence[Java]) -> Java:
    """The output for the rows of one side, its keys last."""
    catalyst = context.catalyst
    for step in context.javas(node.steps):
        plan = _with_keys(catalyst, step, plan, keys)
    plan = apply_steps(catalyst, context.javas(above.steps), catalyst.one_partition(plan), keys)
    return named(catalyst, plan, [*context.javas(above.output), *keys])


def _both_sides(context: RuleContext, node: TouchedKeys, above: Above, plan: Java, side: Java) -> Java:
    """The output for the rows of both sides, the side last."""
    catalyst = context.catalyst
    for step in context.javas(node.steps):
        plan = _add_side(catalyst, step, plan, side)
    plan = apply_steps(catalyst, context.javas(above.steps), plan, [side])
    return named(catalyst, plan, [*context.javas(above.output), side])


def _with_keys(catalyst: Catalyst, step: Java, plan: Java, keys: Sequence[Java]) -> Java:
    """An operator over another input, its keys among its columns."""
    if kind_of(step) == "Aggregate" and keys:
        results = items(step.aggregateExpressions())
        return catalyst.plan_class("Aggregate")(
            step.groupingExpressions(),
            catalyst.seq([*results, *_missing(keys, results)]),
            plan,
            catalyst.none,
        )
    return step.withNewChildren(catalyst.seq([plan]))


def _missing(keys: Sequence[Java], results: Sequence[Java]) -> list[Java]:
    present = {id_of(one) for one in results}
    return [key for key in keys if id_of(key) not in present]


def _keyed_plan(context: RuleContext, node: TouchedKeys, keys: Sequence[Java]) -> Java:
    """The whole output with the key columns last."""
    catalyst, plan = context.catalyst, context.java(node.plan)
    if node.plan.kind == "Aggregate":
        plan = _with_keys(catalyst, plan, context.java(node.child.plan), keys)
    columns = [*context.javas(node.output), *keys]
    return catalyst.project([catalyst.alias(column, f"k{i}") for i, column in enumerate(columns)], plan)


def _add_side(catalyst: Catalyst, step: Java, plan: Java, side: Java) -> Java:
    """An operator over both sides at once: the side is one more grouping or partitioning column."""
    kind = kind_of(step)
    if kind in LINEAR:
        return apply_steps(catalyst, [step], plan, [side])
    if kind == "Window":
        expressions = [split_window(catalyst, one, side) for one in items(step.windowExpressions())]
        # The side stays the last column, as steps above expect it.
        return catalyst.project([*columns_of(step), side], window_over(catalyst, step, plan, side, expressions))
    if kind == "Aggregate":
        return catalyst.plan_class("Aggregate")(
            catalyst.seq([side, *items(step.groupingExpressions())]),
            catalyst.seq([*items(step.aggregateExpressions()), side]),
            plan,
            catalyst.none,
        )
    raise AssertionError(f"{kind} has no form with sides")


def window_over(catalyst: Catalyst, step: Java, plan: Java, side: Java, expressions: Sequence[Java]) -> Java:
    """A window over another input, with these expressions; the side is one more partitioning column."""
    return catalyst.plan_class("Window")(
        catalyst.seq(expressions),
        catalyst.seq([side, *items(step.partitionSpec())]),
        step.orderSpec(),
        plan,
        catalyst.none,
    )


def split_spec(catalyst: Catalyst, spec: Java, side: Java) -> Java:
    """A window's specification whose partitions are split by the side, too."""
    return catalyst.expression_class("WindowSpecDefinition")(
        catalyst.seq([side, *items(spec.partitionSpec())]), spec.orderSpec(), spec.frameSpecification()
    )


def split_window(catalyst: Catalyst, alias: Java, side: Java) -> Java:
    """A window expression whose own partitions are split by the side, too."""
    function, spec = items(alias.child().children())
    window = catalyst.expression_class("WindowExpression")(function, split_spec(catalyst, spec, side))
    return catalyst.alias(window, alias.name(), alias.exprId())
