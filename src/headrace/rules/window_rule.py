"""Windows, read by pieces of their partitions.   Δ(w R) = w(R'|p) − w(R|p), p the pieces around the changes

Of each touched partition only a piece is read, before and after: its first rows where a filter asks for no more, the
rows within reach of a change, or those from the first change on, which go on from what the rows before them amount to.
Each piece is a partition of its own, and only rows whose result may have changed are given out. A small partition is
read whole. State: the input, arranged by partition and order. Cost: the rows of the pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import BooleanType, DataType

from headrace.ir.nodes import Node, Touched
from headrace.plans.catalyst import Catalyst
from headrace.plans.query import Leaf, LeafShape
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, columns_of, id_of, items, kind_of
from headrace.rules.base import Epoch, RuleContext, check_bound, named, types_of
from headrace.rules.inputs import SIDE, Input, make_input, read_leaf, sided
from headrace.rules.remembered import Remembered
from headrace.rules.window_pieces import Pieces, find_pieces
from headrace.rules.window_reach import WindowReach, is_inexact_window
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
from headrace.state.arrow_types import arrow_schema, conform
from headrace.state.delta import Delta, consolidate, empty, gather, number_identities
from headrace.state.hashing import identity

FLAG = BooleanType()


class WindowRule:
    """One query over pieces of the touched partitions."""

    def __init__(
        self, context: RuleContext, node: Touched, reach: WindowReach, steps: Sequence[Java], top: Node, build: object
    ) -> None:
        self.types: tuple[DataType, ...] = types_of(top)
        self._reach = reach
        self._extra = extra_columns(reach.running)
        summed = [one.column for one in reach.running if one.column is not None]
        wanted = [*node.keys, *(one.id for one in reach.order), *summed]
        self._input = make_input(context, node.child, wanted, build, filtered=False)
        self._places = dict(zip(summed, self._input.stored(self._input.places(summed)), strict=True))
        self._read = _order(reach, self._input.places(node.keys), self._input.places([c.id for c in reach.order]))
        self._stored = _stored(self._input, self._read)
        self._all_read = self._input.rule is not None
        catalyst = context.catalyst
        kept = {a.id: a for a in node.child.output}
        cut_by = [kept[i] for i in (*node.keys, *(one.id for one in reach.order))]
        self._remembered: Remembered | None = None
        if is_inexact_window(node):
            keys = [a.java for a in cut_by]
            columns = [catalyst.alias(c, f"k{i}") for i, c in enumerate([*(a.java for a in node.output), *keys])]
            plan = catalyst.project(columns, node.plan)
            self._remembered = Remembered(context, types_of(node), [a.type for a in cut_by], plan, node.plan)
            width, count = len(node.output), len(node.keys)
            self._output = _order(
                reach, range(width, width + count), range(width + count, width + count + len(reach.order))
            )

        def build_query(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            side, affected = leaf.extra["side"], leaf.extra["affected"]
            given = {name: leaf.extra[name] for name in self._extra}
            carried = [affected, *given.values()]
            plan = read_leaf(catalyst, self._input, leaf, [side, *carried])
            for step in node.steps:
                if kind_of(step) == "Window":
                    plan = _window(catalyst, step, plan, side, carried, given)
                else:
                    plan = apply_steps(catalyst, [step], plan, [side, *carried])
            plan = catalyst.filter(affected, plan)
            if self._remembered is not None:
                return named(catalyst, plan, [*(a.java for a in node.output), *(a.java for a in cut_by)])
            plan = apply_steps(catalyst, steps, plan, [side])
            return named(catalyst, plan, [*(a.java for a in top.output), side])

        extra = [
            ("side", SIDE),
            ("affected", FLAG),
            *((name, extra_type(name, one)) for name, one in self._extra.items()),
        ]
        self._query = context.query([LeafShape(self._input.attributes, tuple(extra))], build_query)

    def delta(self, epoch: Epoch) -> Delta:
        """New output minus old output in the pieces."""
        change = self._input.changed(epoch)
        if change is None:
            return empty(arrow_schema(self.types))
        before = self._input.before(epoch).arranged(self._stored)
        after = before.and_also(_whole_change(self._input, epoch))
        keys = sort_keys(change.rows, self._read)
        pieces = find_pieces(self._reach, before, after, np.unique(keys[self._counting(change)]))
        if len(pieces) == 0:
            return empty(arrow_schema(self.types))
        inside = pieces.numbers(keys) >= 0
        old, new = sided(
            before.rows(pieces.starts, pieces.ends, self._input.columns), gather(change, np.flatnonzero(inside))
        )
        check_bound(epoch, int(old.weights.sum()) + int(new.weights.sum()))
        if self._remembered is not None:
            leaf = self._leaf(before, pieces, [(new, 1)])
            known = self._remembered.before(epoch).arranged(self._output)
            taken = known.rows(pieces.first, pieces.last, range(len(self._remembered.types)))
            return self._remembered.replace(epoch, taken, self._query.run([leaf]))
        result = self._query.run([self._leaf(before, pieces, [(old, 0), (new, 1)])])
        sides = np.asarray(result.column(result.num_columns - 1)).astype(np.int64)
        produced = conform(result.select(list(range(len(self.types)))), self.types)
        return consolidate(produced, np.where(sides % 2 == 1, np.int64(1), np.int64(-1)))

    def _counting(self, change: Delta) -> npt.NDArray[np.bool_]:
        """Which rows of a change differ in a column that is read, and do not only take another's place."""
        if self._all_read:
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
            given = nothing_before(self._extra)
        else:
            keys = sort_keys(rows, self._read)
            numbers = pieces.numbers(keys)
            affected = pieces.affected(keys, numbers)
            given = before_slices(before, pieces.starts, self._extra, self._places)
        if bool(np.any(weights != 1)):
            places = np.repeat(np.arange(len(weights)), weights)
            rows, side, numbers, affected = rows.take(pa.array(places)), side[places], numbers[places], affected[places]
        columns: list[pa.ChunkedArray | pa.Array] = list(rows.columns)
        columns.append(pa.array((2 * numbers + side).astype(np.int32)))
        columns.append(pa.array(affected))
        which = pa.array(numbers)
        columns.extend(values.take(which) for values in given)
        return pa.table(columns, names=[f"x{i}" for i in range(len(columns))])


def _order(reach: WindowReach, partition: Sequence[int], places: Sequence[int]) -> Order:
    columns = zip(places, reach.order, strict=True)
    return Order(tuple(partition), tuple(OrderColumn(p, one.descending, one.nulls_first) for p, one in columns))


def _stored(one: Input, read: Order) -> Order:
    """An order over the columns read as one over the columns of the store."""
    places = one.stored([column.index for column in read.columns])
    columns = (OrderColumn(p, c.descending, c.nulls_first) for p, c in zip(places, read.columns, strict=True))
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
    stored = {id_of(a) for a in columns_of(step.child())}
    for alias in items(step.windowExpressions()):
        function, spec = items(alias.child().children())
        split = catalyst.expression_class("WindowSpecDefinition")(
            catalyst.seq([side, *items(spec.partitionSpec())]), spec.orderSpec(), spec.frameSpecification()
        )
        running = _goes_on(alias, stored) if given else None
        if running is None:
            window = catalyst.expression_class("WindowExpression")(function, split)
            expressions.append(catalyst.alias(window, alias.name(), alias.exprId()))
            continue
        parts, result = go_on(catalyst, function, split, running, given)
        expressions.extend(parts)
        results[id_of(alias)] = catalyst.alias(result, alias.name(), alias.exprId())
    window = catalyst.plan_class("Window")(
        catalyst.seq(expressions),
        catalyst.seq([side, *items(step.partitionSpec())]),
        step.orderSpec(),
        plan,
        catalyst.none,
    )
    columns = [results.get(id_of(column), column) for column in columns_of(step)]
    return catalyst.project([*columns, side, *carried], window)


def _goes_on(alias: Java, stored: set[int]) -> Running | None:
    """How a function over all rows up to the current one goes on; None when it looks back a bounded way."""
    function, spec = items(alias.child().children())
    if kind_of(function) in ("RowNumber", "Rank"):
        return running_of(alias, stored)
    frame = spec.frameSpecification()
    return running_of(alias, stored) if kind_of(frame.lower()) == "UnboundedPreceding" else None
