"""LEFT, RIGHT, FULL, SEMI, ANTI, existence joins.   Δ(R ⟕ S) = (R' ⟕ S')|k − (R ⟕ S)|k, k the keys touched

A row's match depends only on the rows of its key. So for every key that changed on either side, all rows of that key
are read from both sides, before and after, and joined in one query with the side as one more equal column. State: the
inputs. Cost: the rows of the touched keys. Without equal columns both inputs are read whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType

from headrace.ir.nodes import Node, OuterJoin
from headrace.plans.query import Leaf
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java
from headrace.rules.base import Epoch, RuleContext, check_bound, named, types_of
from headrace.rules.inputs import Input, has_null_key, make_input, matchable, read_leaf, shape_of, side_table, sided
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty, gather
from headrace.state.hashing import Hashes


class OuterJoinRule:
    """One query over the rows of the touched keys, before and after."""

    def __init__(self, context: RuleContext, node: OuterJoin, steps: Sequence[Java], top: Node, build: object) -> None:
        self.types: tuple[DataType, ...] = types_of(top)
        self._left = make_input(context, node.left, node.left_keys, build)
        self._right = make_input(context, node.right, node.right_keys, build)
        self._left_key = self._left.places(node.left_keys)
        self._right_key = self._right.places(node.right_keys)
        self._null_safe = node.null_safe
        self._one_sided = node.kind in ("semi", "anti", "existence")
        if not node.left_keys:
            context.reasons.append(
                f"{node.kind} join: no equal columns connect its inputs, so a change reads both of them whole"
            )
        catalyst = context.catalyst

        def build_query(leaves: list[Leaf]) -> Java:
            left, right = leaves
            left_plan = read_leaf(catalyst, self._left, left, [left.extra["weight"], left.extra["side"]])
            right_plan = read_leaf(catalyst, self._right, right, [right.extra["weight"], right.extra["side"]])
            same_side = catalyst.binary("EqualTo", left.extra["side"], right.extra["side"])
            condition = same_side if node.condition is None else catalyst.binary("And", node.condition, same_side)
            joined = catalyst.join(left_plan, right_plan, node.plan.joinType(), condition)
            carried = [left.extra["weight"], left.extra["side"]]
            if not self._one_sided:
                carried += [right.extra["weight"], right.extra["side"]]
            plan = catalyst.project([*(a.java for a in node.output), *carried], catalyst.one_partition(joined))
            plan = apply_steps(catalyst, steps, plan, carried)
            return named(catalyst, plan, [*(a.java for a in top.output), *carried])

        self._query = context.query(
            [shape_of(self._left, "weight", "side"), shape_of(self._right, "weight", "side")], build_query
        )

    def delta(self, epoch: Epoch) -> Delta:
        """New output minus old output for the touched keys."""
        left_change, right_change = self._left.changed(epoch), self._right.changed(epoch)
        if left_change is None and right_change is None:
            return empty(arrow_schema(self.types))
        if self._left_key:
            wanted = np.unique(
                np.concatenate(
                    [
                        matchable(change, key, self._null_safe)
                        for change, key in ((left_change, self._left_key), (right_change, self._right_key))
                        if change is not None
                    ]
                )
            )
            left_rows = self._slice(epoch, self._left, self._left_key, wanted, left_change)
            right_rows = self._slice(epoch, self._right, self._right_key, wanted, right_change)
        else:
            left_rows = sided(self._left.all(epoch), left_change)
            right_rows = sided(self._right.all(epoch), right_change)
        check_bound(epoch, sum(len(part) for part in (*left_rows, *right_rows)))
        result = self._query.run(
            [
                side_table(*left_rows, repeat=False, weigh=True),
                side_table(*right_rows, repeat=False, weigh=True),
            ]
        )
        width = len(self.types)
        weights = _number(result, width, 1)
        sides = _number(result, width + 1, -1)
        if not self._one_sided:
            weights = weights * _number(result, width + 2, 1)
            sides = np.maximum(sides, _number(result, width + 3, -1))
        return consolidate(
            conform(result.select(list(range(width))), self.types), np.where(sides == 1, weights, -weights)
        )

    def _slice(
        self, epoch: Epoch, one: Input, key: Sequence[int], wanted: Hashes, change: Delta | None
    ) -> tuple[Delta, Delta]:
        """All rows of the wanted keys, before and after; a NULL that matches nothing brings only itself."""
        before = one.lookup(epoch, key, wanted)
        if change is None or self._null_safe:
            return sided(before, change)
        matches_none = has_null_key(change, key)
        if not bool(matches_none.any()):
            return sided(before, change)
        old, new = sided(before, gather(change, np.flatnonzero(~matches_none)))
        alone = gather(change, np.flatnonzero(matches_none))
        gone, come = alone.weights < 0, alone.weights > 0
        return _plus(old, gather(alone, np.flatnonzero(gone)), -1), _plus(new, gather(alone, np.flatnonzero(come)), 1)


def _number(result: object, column: int, missing: int) -> np.ndarray:
    values = result.column(column)  # pyright: ignore[reportAttributeAccessIssue]
    return np.asarray(values.fill_null(missing) if values.null_count else values).astype(np.int64)


def _plus(rows: Delta, more: Delta, sign: int) -> Delta:
    if len(more) == 0:
        return rows
    return Delta(
        pa.concat_tables([rows.rows, more.rows]),
        np.concatenate([rows.weights, sign * more.weights]),
        np.concatenate([rows.low, more.low]),
        np.concatenate([rows.high, more.high]),
    )
