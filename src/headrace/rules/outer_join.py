"""LEFT, RIGHT, FULL OUTER, SEMI and ANTI joins, EXISTS and IN.   Δ(R ⟕ S) = (R' ⟕ S')|k − (R ⟕ S)|k, k the keys touched

A row's match depends only on the rows of its key. So for every key that changed on either side, all rows of that key
are read from both sides, before and after, and joined in one query with the side as one more equal column. State: the
inputs. Cost: the rows of the touched keys. Without equal columns both inputs are read whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import Node, Tree
from headrace.plans.query import Leaf, Query
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, children, columns_of, conjuncts, id_of, kind_of, optional
from headrace.rules.base import Epoch, check_bound
from headrace.rules.context import Above, NoRule, Operator, RuleContext
from headrace.rules.filter_project import lower_with_keys
from headrace.rules.inputs import Input, has_null_key, make_input, matchable, read_leaf, shape_of
from headrace.rules.signed import named, side_table, sided
from headrace.sql.expressions import equal_pair
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty, end_to_end, gather, negate
from headrace.state.hashing import Hashes

_KINDS = {
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
    "ExistenceJoin": "existence",
}


@dataclass(frozen=True)
class OuterJoin(Node):
    """LEFT, RIGHT, FULL, SEMI, ANTI and existence joins of two inputs."""

    kind: str
    left: Node
    right: Node
    left_keys: tuple[int, ...]
    right_keys: tuple[int, ...]
    null_safe: bool
    condition: Tree | None

    @property
    def one_sided(self) -> bool:
        """Whether no column of the right side comes out."""
        return self.kind in ("semi", "anti", "existence")


@dataclass(frozen=True, eq=False)
class OuterJoinRule:
    """One query over the rows of the touched keys, before and after."""

    types: tuple[DataType, ...]
    left: Input
    right: Input
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    null_safe: bool
    one_sided: bool
    query: Query

    def delta(self, epoch: Epoch) -> Delta:
        """New output minus old output for the touched keys."""
        left_change, right_change = self.left.changed(epoch), self.right.changed(epoch)
        if left_change is None and right_change is None:
            return empty(arrow_schema(self.types))
        if self.left_key:
            touched = [
                matchable(change, key, self.null_safe)
                for change, key in ((left_change, self.left_key), (right_change, self.right_key))
                if change is not None
            ]
            wanted = np.unique(np.concatenate(touched))
            left_rows = self._slice(epoch, self.left, self.left_key, wanted, left_change)
            right_rows = self._slice(epoch, self.right, self.right_key, wanted, right_change)
        else:
            left_rows = sided(self.left.all(epoch), left_change)
            right_rows = sided(self.right.all(epoch), right_change)
        check_bound(epoch, sum(len(part) for part in (*left_rows, *right_rows)))
        leaves = [side_table(*rows, repeat=False, weigh=True) for rows in (left_rows, right_rows)]
        result = self.query.run(leaves)
        width = len(self.types)
        weights = _numbers(result, width, 1)
        sides = _numbers(result, width + 1, -1)
        if not self.one_sided:
            weights = weights * _numbers(result, width + 2, 1)
            sides = np.maximum(sides, _numbers(result, width + 3, -1))
        return consolidate(
            conform(result.select(list(range(width))), self.types), np.where(sides == 1, weights, -weights)
        )

    def _slice(
        self, epoch: Epoch, one: Input, key: Sequence[int], wanted: Hashes, change: Delta | None
    ) -> tuple[Delta, Delta]:
        """All rows of the wanted keys, before and after; a NULL that matches nothing brings only itself."""
        before = one.lookup(epoch, key, wanted)
        if change is None or self.null_safe:
            return sided(before, change)
        matches_none = has_null_key(change, key)
        if not bool(matches_none.any()):
            return sided(before, change)
        old, new = sided(before, gather(change, np.flatnonzero(~matches_none)))
        alone = gather(change, np.flatnonzero(matches_none))
        gone, come = (gather(alone, np.flatnonzero(some)) for some in (alone.weights < 0, alone.weights > 0))
        return Delta(*end_to_end([old, negate(gone)])), Delta(*end_to_end([new, come]))


def _numbers(result: pa.Table, column: int, missing: int) -> np.ndarray:
    values = result.column(column)
    return np.asarray(values.fill_null(missing) if values.null_count else values).astype(np.int64)


def lower(context: RuleContext, plan: Java) -> OuterJoin | None:
    """Any join but the inner ones."""
    if kind_of(plan) != "Join":
        return None
    kind = kind_of(plan.joinType())
    if kind not in _KINDS:
        raise NoRule(f"no rule follows a join of type {plan.joinType().sql()}")
    left, right = children(plan)
    condition = optional(plan.condition())
    left_ids, right_ids = ({id_of(column) for column in columns_of(side)} for side in (left, right))
    equal = [(part, pair) for part in conjuncts(condition) if (pair := equal_pair(part, left_ids, right_ids))]
    left_node, left_keys = lower_with_keys(context, left, [pair[0] for _, pair in equal])
    right_node, right_keys = lower_with_keys(context, right, [pair[1] for _, pair in equal])
    return OuterJoin(
        context.handles.tree(plan),
        context.handles.output(plan),
        _KINDS[kind],
        left_node,
        right_node,
        left_keys,
        right_keys,
        null_safe=not equal or any(kind_of(part) == "EqualNullSafe" for part, _ in equal),
        condition=None if condition is None else context.handles.tree(condition),
    )


def build(context: RuleContext, node: OuterJoin, above: Above) -> OuterJoinRule:
    """Both inputs, looked up by their keys, and the query that joins what was found."""
    left = make_input(context, node.left, node.left_keys)
    right = make_input(context, node.right, node.right_keys)
    if not node.left_keys:
        context.reasons.append(
            f"{node.kind} join: no equal columns connect its inputs, so a change reads both of them whole"
        )
    catalyst = context.catalyst

    def build_query(leaves: list[Leaf]) -> Java:
        weighed = [[leaf.extra["weight"], leaf.extra["side"]] for leaf in leaves]
        plans = [
            read_leaf(context, one, leaf, extra)
            for one, leaf, extra in zip((left, right), leaves, weighed, strict=True)
        ]
        same_side = catalyst.binary("EqualTo", *(leaf.extra["side"] for leaf in leaves))
        condition = same_side
        if node.condition is not None:
            condition = catalyst.binary("And", context.java(node.condition), same_side)
        joined = catalyst.join(plans[0], plans[1], context.java(node.plan).joinType(), condition)
        carried = weighed[0] if node.one_sided else [*weighed[0], *weighed[1]]
        plan = catalyst.project([*context.javas(node.output), *carried], catalyst.one_partition(joined))
        plan = apply_steps(catalyst, context.javas(above.steps), plan, carried)
        return named(catalyst, plan, [*context.javas(above.output), *carried])

    query = context.query([shape_of(one, "weight", "side") for one in (left, right)], build_query)
    keys = left.positions(node.left_keys), right.positions(node.right_keys)
    return OuterJoinRule(above.types, left, right, *keys, node.null_safe, node.one_sided, query)


def sentence(context: RuleContext, node: OuterJoin, above: Node | None) -> str:
    """For EXPLAIN."""
    keyed = "keys touched on either side" if node.left_keys else "both inputs whole"
    return f"{node.kind} join: {keyed}, new output minus old"


OPERATOR = Operator(OuterJoin, lower, build, sentence, takes_steps=lambda _: True)
