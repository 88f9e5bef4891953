"""Windows, read by pieces of their partitions.   Δ(w R) = w(R'|p) − w(R|p), p the pieces around the changes

Of each touched partition only a piece is read, before and after: its first rows where a filter asks for no more, the
rows within reach of a change, or those from the first change on, which go on from what the rows before them amount to.
Each piece is a partition of its own, and only rows whose result may have changed are given out. A small partition is
read whole. State: the input, arranged by partition and order. Cost: the rows of the pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import BooleanType, DataType

from headrace.ir.nodes import Column
from headrace.plans.catalyst import Catalyst
from headrace.plans.query import Leaf, LeafShape, Query
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, columns_of, id_of, items, kind_of
from headrace.rules.base import Epoch, check_bound
from headrace.rules.context import Above, RuleContext
from headrace.rules.inputs import SIDE, Input, make_input, read_leaf
from headrace.rules.remembered import Remembered, remember
from headrace.rules.signed import by_side, leaf_table, named, sided
from headrace.rules.touched_keys import TouchedKeys, split_spec, split_window, window_over
from headrace.rules.window_pieces import Pieces, find_pieces
from headrace.rules.window_reach import WindowReach
from headrace.rules.window_running import (
    Running,
    before_slices,
    extra_columns,
    extra_type,
    go_on,
    nothing_before,
    running_of,
)
from headrace.state.arranged import Arrangement, Order, OrderColumn, sort_keys
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import Delta, empty, gather, number_identities
from headrace.state.hashing import identity

FLAG = BooleanType()


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowRule:
    """One query over pieces of the touched partitions.

    The order is given over the columns read, over those of the input's store, and over what is remembered; positions
    are those of the summed columns in the store.
    """

    types: tuple[DataType, ...]
    input: Input
    reach: WindowReach
    read: Order
    stored: Order
    given_out: Order
    extra: Mapping[str, Running]
    positions: Mapping[int, int]
    remembered: Remembered | None
    query: Query

    def delta(self, epoch: Epoch) -> Delta:
        """New output minus old output in the pieces."""
        change = self.input.changed(epoch)
        if change is None:
            return empty(arrow_schema(self.types))
        before = self.input.before(epoch).arranged(self.stored)
        after = before.and_also(_whole_change(self.input, epoch))
        keys = sort_keys(change.rows, self.read)
        pieces = find_pieces(self.reach, before, after, np.unique(keys[self._counting(change)]))
        if len(pieces) == 0:
            return empty(arrow_schema(self.types))
        inside = pieces.numbers(keys) >= 0
        old, new = sided(
            before.rows(pieces.starts, pieces.ends, self.input.columns), gather(change, np.flatnonzero(inside))
        )
        check_bound(epoch, int(old.weights.sum()) + int(new.weights.sum()))
        if self.remembered is not None:
            leaf = self._leaf(before, pieces, [(new, 1)])
            known = self.remembered.before(epoch).arranged(self.given_out)
            taken = known.rows(pieces.first, pieces.last, range(len(self.remembered.types)))
            return self.remembered.replace(epoch, taken, self.query.run([leaf]))
        return by_side(self.query.run([self._leaf(before, pieces, [(old, 0), (new, 1)])]), self.types)

    def _counting(self, change: Delta) -> npt.NDArray[np.bool_]:
        """Which rows of a change differ in a column that is read, and do not only take another's place."""
        if self.input.rule is not None:
            return np.ones(len(change), dtype=bool)
        firsts, numbers = number_identities(*identity(change.rows.columns, len(change)))
        sums = np.zeros(len(firsts), dtype=np.int64)
        np.add.at(sums, numbers, change.weights)
        return sums[numbers] != 0

    def _leaf(self, before: Arrangement, pieces: Pieces, sides: Sequence[tuple[Delta, int]]) -> pa.Table:
        """The rows of the pieces, each with its piece and side, whether its result counts, and what stands before."""
        rows = pa.concat_tables([part.rows for part, _ in sides])
        side = np.concatenate([np.full(len(part), number, dtype=np.int64) for part, number in sides])
        weights = np.concatenate([part.weights for part, _ in sides])
        numbers, affected = np.zeros(len(side), dtype=np.int64), np.ones(len(side), dtype=bool)
        if pieces.whole:
            given = nothing_before(self.extra)
        else:
            keys = sort_keys(rows, self.read)
            numbers = pieces.numbers(keys)
            affected = pieces.affected(keys, numbers)
            given = before_slices(before, pieces.starts, self.extra, self.positions)
        if bool(np.any(weights != 1)):
            copies = np.repeat(np.arange(len(weights)), weights)
            rows, side, numbers, affected = rows.take(pa.array(copies)), side[copies], numbers[copies], affected[copies]
        which = pa.array(numbers)
        sides = pa.array((2 * numbers + side).astype(np.int32))
        return leaf_table([*rows.columns, sides, pa.array(affected), *(values.take(which) for values in given)])


def build_by_pieces(context: RuleContext, node: TouchedKeys, reach: WindowReach, above: Above) -> WindowRule:
    """The input, arranged by partition and order, and the query over pieces of it."""
    extra = extra_columns(reach.running)
    summed = [one.column for one in reach.running if one.column is not None]
    ordered_by = [one.id for one in reach.order]
    one = make_input(context, node.child, [*node.keys, *ordered_by, *summed], filtered=False)
    read = _order(reach, one.positions(node.keys), one.positions(ordered_by))
    remembered = _remember(context, node, ordered_by) if node.is_inexact else None

    def build_query(leaves: list[Leaf]) -> Java:
        (leaf,) = leaves
        return _windowed(context, node, above, one, leaf, list(extra), ordered_by)

    columns = [("side", SIDE), ("affected", FLAG), *((name, extra_type(name, of)) for name, of in extra.items())]
    width, keys = len(node.output), len(node.keys)
    return WindowRule(
        types=above.types,
        input=one,
        reach=reach,
        read=read,
        stored=_stored(one, read),
        given_out=_order(reach, range(width, width + keys), range(width + keys, width + keys + len(ordered_by))),
        extra=extra,
        positions=dict(zip(summed, one.stored(one.positions(summed)), strict=True)),
        remembered=remembered,
        query=context.query([LeafShape(one.output, tuple(columns))], build_query),
    )


def _cut_by(node: TouchedKeys, ordered_by: Sequence[int]) -> list[Column]:
    """The columns that partitions are told apart and cut by."""
    known = {column.id: column for column in node.child.output}
    return [known[i] for i in (*node.keys, *ordered_by)]


def _remember(context: RuleContext, node: TouchedKeys, ordered_by: Sequence[int]) -> Remembered:
    catalyst, cut_by = context.catalyst, _cut_by(node, ordered_by)
    columns = context.javas([*node.output, *cut_by])
    keyed = [catalyst.alias(column, f"k{i}") for i, column in enumerate(columns)]
    return remember(context, node, cut_by, catalyst.project(keyed, context.java(node.plan)))


def _windowed(
    context: RuleContext,
    node: TouchedKeys,
    above: Above,
    one: Input,
    leaf: Leaf,
    extra: Sequence[str],
    ordered_by: Sequence[int],
) -> Java:
    """The windows over pieces; with the steps above and the side, or with what is remembered by."""
    catalyst = context.catalyst
    side, affected = leaf.extra["side"], leaf.extra["affected"]
    given = {name: leaf.extra[name] for name in extra}
    carried = [affected, *given.values()]
    plan = read_leaf(context, one, leaf, [side, *carried])
    for step in context.javas(node.steps):
        if kind_of(step) == "Window":
            plan = _window(catalyst, step, plan, side, carried, given)
        else:
            plan = apply_steps(catalyst, [step], plan, [side, *carried])
    plan = catalyst.filter(affected, plan)
    if node.is_inexact:
        return named(catalyst, plan, context.javas([*node.output, *_cut_by(node, ordered_by)]))
    plan = apply_steps(catalyst, context.javas(above.steps), plan, [side])
    return named(catalyst, plan, [*context.javas(above.output), side])


def _order(reach: WindowReach, partition: Sequence[int], positions: Sequence[int]) -> Order:
    columns = zip(positions, reach.order, strict=True)
    return Order(tuple(partition), tuple(OrderColumn(p, one.descending, one.nulls_first) for p, one in columns))


def _stored(one: Input, read: Order) -> Order:
    """An order over the columns read as one over the columns of the store."""
    positions = one.stored([column.index for column in read.columns])
    columns = (OrderColumn(p, c.descending, c.nulls_first) for p, c in zip(positions, read.columns, strict=True))
    return Order(one.stored(read.partition), tuple(columns))


def _whole_change(one: Input, epoch: Epoch) -> Delta:
    """The input's change with all columns of its store."""
    known = None if one.rule is None else epoch.recorded(one.store)
    return epoch.delta_of(one.store) if known is None else known


def _window(
    catalyst: Catalyst, step: Java, plan: Java, side: Java, carried: Sequence[Java], given: Mapping[str, Java]
) -> Java:
    """A window over pieces: the piece and side is one more partition column, and running values go on."""
    expressions: list[Java] = []
    results: dict[int, Java] = {}
    stored = {id_of(column) for column in columns_of(step.child())}
    for alias in items(step.windowExpressions()):
        running = _goes_on(alias, stored) if given else None
        if running is None:
            expressions.append(split_window(catalyst, alias, side))
            continue
        function, spec = items(alias.child().children())
        parts, result = go_on(catalyst, function, split_spec(catalyst, spec, side), running, given)
        expressions.extend(parts)
        results[id_of(alias)] = catalyst.alias(result, alias.name(), alias.exprId())
    columns = [results.get(id_of(column), column) for column in columns_of(step)]
    return catalyst.project([*columns, side, *carried], window_over(catalyst, step, plan, side, expressions))


def _goes_on(alias: Java, stored: Set[int]) -> Running | None:
    """How a function over all rows up to the current one goes on; None when it looks back a bounded way."""
    function, spec = items(alias.child().children())
    if kind_of(function) in ("RowNumber", "Rank"):
        return running_of(alias, stored)
    frame = spec.frameSpecification()
    return running_of(alias, stored) if kind_of(frame.lower()) == "UnboundedPreceding" else None
