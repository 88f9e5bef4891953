"""Windows, and aggregates without partials.   Δ(f R) = f(R'|k) − f(R|k), k the keys touched

A row's result depends only on the rows of its partition or group. So all rows of the touched keys are read, before
and after, and computed anew in one query with the side as one more key. State: the input. Cost: the rows of the
touched keys. Without a key the whole input is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import Node, Touched
from headrace.plans.catalyst import Catalyst
from headrace.plans.query import Leaf
from headrace.plans.steps import LINEAR, apply_steps
from headrace.plans.trees import Java, columns_of, id_of, items, kind_of
from headrace.rules.base import Epoch, RuleContext, check_bound, is_floating, named, types_of
from headrace.rules.inputs import hashes_of, make_input, read_leaf, repeated, shape_of, side_table, sided
from headrace.rules.remembered import Remembered
from headrace.rules.window_reach import is_inexact_window
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty


class TouchedKeysRule:
    """One query over the rows of the touched keys, before and after."""

    def __init__(self, context: RuleContext, node: Touched, steps: Sequence[Java], top: Node, build: object) -> None:
        self.types: tuple[DataType, ...] = types_of(top)
        self._input = make_input(context, node.child, node.keys, build)
        self._key = self._input.places(node.keys)
        self._remembered: Remembered | None = None
        self._always = not node.keys and kind_of(node.steps[-1]) == "Aggregate"
        if not node.keys:
            context.reasons.append(f"{node.what}: a change reads the whole input")
        catalyst = context.catalyst

        keys = [a.java for a in node.child.output if a.id in node.keys]

        def build_new(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            plan = read_leaf(catalyst, self._input, leaf, [])
            for step in node.steps:
                plan = _with_keys(catalyst, step, plan, keys)
            plan = apply_steps(catalyst, steps, catalyst.one_partition(plan), keys)
            return named(catalyst, plan, [*(a.java for a in top.output), *keys])

        def build_query(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            side = leaf.extra["side"]
            plan = read_leaf(catalyst, self._input, leaf, [side])
            for step in node.steps:
                plan = add_side(catalyst, step, plan, side)
            plan = apply_steps(catalyst, steps, plan, [side])
            return named(catalyst, plan, [*(a.java for a in top.output), side])

        if is_inexact(node):
            kept = [a for a in node.child.output if a.id in node.keys]
            order = [[a.id for a in kept].index(i) for i in node.keys]
            keys = [kept[place].java for place in order]
            self._remembered = Remembered(
                context,
                types_of(node),
                [kept[place].type for place in order],
                _keyed_plan(catalyst, node, keys),
                node.plan,
            )
        one_side = self._always or self._remembered is not None
        self._query = context.query([shape_of(self._input, "side")], build_new if one_side else build_query)

    def delta(self, epoch: Epoch) -> Delta:
        """New output minus old output for the touched keys."""
        change = self._input.changed(epoch)
        if change is None:
            return empty(arrow_schema(self.types))
        wanted = np.unique(hashes_of(change, self._key))
        before = self._input.lookup(epoch, self._key, wanted) if self._key else self._input.all(epoch)
        rows = sided(before, change)
        check_bound(epoch, sum(int(part.weights.sum()) for part in rows))
        if self._remembered is not None:
            return self._remembered.exchange(epoch, wanted, self._query.run([repeated(rows[1])]))
        if self._always:
            return self._difference(*rows)
        result = self._query.run([side_table(*rows, repeat=True, weigh=False)])
        sides = np.asarray(result.column(result.num_columns - 1)).astype(np.int64)
        produced = conform(result.select(list(range(len(self.types)))), self.types)
        return consolidate(produced, np.where(sides == 1, np.int64(1), np.int64(-1)))

    def _difference(self, before: Delta, after: Delta) -> Delta:
        """A global aggregate has a row even of no rows, so each side is a query of its own."""
        parts = [conform(self._query.run([repeated(one)]), self.types) for one in (before, after)]
        weights = [np.full(part.num_rows, sign, dtype=np.int64) for part, sign in zip(parts, (-1, 1), strict=True)]
        return consolidate(pa.concat_tables(parts).combine_chunks(), np.concatenate(weights))


def is_inexact(node: Touched) -> bool:
    """Whether an operator computes floating-point values from many rows."""
    if kind_of(node.plan) == "Window":
        return is_inexact_window(node)
    passed = {a.id for a in node.child.output}
    return any(is_floating(a.type) for a in node.output if a.id not in passed)


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


def _keyed_plan(catalyst: Catalyst, node: Touched, keys: Sequence[Java]) -> Java:
    """The whole output with the key columns last."""
    plan = node.plan if kind_of(node.plan) != "Aggregate" else _with_keys(catalyst, node.plan, node.child.plan, keys)
    return catalyst.project(
        [catalyst.alias(c, f"k{i}") for i, c in enumerate([*(a.java for a in node.output), *keys])], plan
    )


def add_side(catalyst: Catalyst, step: Java, plan: Java, side: Java) -> Java:
    """An operator over both sides at once: the side is one more grouping or partitioning column."""
    kind = kind_of(step)
    if kind in LINEAR:
        return apply_steps(catalyst, [step], plan, [side])
    if kind == "Window":
        expressions = [_sided_window(catalyst, one, side) for one in items(step.windowExpressions())]
        window = catalyst.plan_class("Window")(
            catalyst.seq(expressions),
            catalyst.seq([side, *items(step.partitionSpec())]),
            step.orderSpec(),
            plan,
            catalyst.none,
        )
        # The side stays the last column, as steps above expect it.
        return catalyst.project([*columns_of(step), side], window)
    if kind == "Aggregate":
        return catalyst.plan_class("Aggregate")(
            catalyst.seq([side, *items(step.groupingExpressions())]),
            catalyst.seq([*items(step.aggregateExpressions()), side]),
            plan,
            catalyst.none,
        )
    raise AssertionError(f"{kind} has no form with sides")


def _sided_window(catalyst: Catalyst, alias: Java, side: Java) -> Java:
    """A window expression whose own partitions are split by the side, too."""
    function, spec = items(alias.child().children())
    split = catalyst.expression_class("WindowSpecDefinition")(
        catalyst.seq([side, *items(spec.partitionSpec())]), spec.orderSpec(), spec.frameSpecification()
    )
    return catalyst.alias(catalyst.expression_class("WindowExpression")(function, split), alias.name(), alias.exprId())
