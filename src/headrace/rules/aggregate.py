"""GROUP BY with partial results.   Δγ(R) = γ(old partials + partials of ΔR) − γ(old partials), for the groups touched

Each group keeps what its aggregates are made of: counts, exact sums, powers, the extreme values and, for DISTINCT and
MIN/MAX, the multiset of values. The partials absorb a change on the driver; Spark's own final expressions turn
partials into results, so that types, overflow and NULLs are Spark's. A group without rows vanishes; a global
aggregate always has one row. State: a row per group, and (group, value, n) where values must be remembered. Cost: the
groups touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, DecimalType

from headrace.errors import ViewEvaluationError
from headrace.ir.nodes import MOMENTS, PAIRS, Aggregate, AggregateCall, Node
from headrace.plans.catalyst import rewrite
from headrace.plans.query import Leaf, LeafShape
from headrace.plans.steps import apply_steps
from headrace.plans.trees import Java, attribute, columns_of, data_type, id_of, kind_of
from headrace.rules.aggregate_partials import Partial, buffers_of, fill_groups, partials_of
from headrace.rules.aggregate_values import ValueStore
from headrace.rules.base import LONG, Epoch, Rule, RuleContext, is_floating, named, types_of
from headrace.rules.filter_project import signed
from headrace.rules.remembered import Remembered
from headrace.state.arrow_types import arrow_schema, arrow_type, conform
from headrace.state.delta import Delta, consolidate, empty, found_among, gather, number_identities
from headrace.state.exact import decimals, divide, times, unscaled
from headrace.state.hashing import identity, key_hashes
from headrace.state.state import State

MAX_PRECISION = 38


class AggregateRule:
    """Partials per group, which absorb a change on the driver and are finished by one query."""

    def __init__(self, context: RuleContext, node: Aggregate, steps: Sequence[Java], top: Node, child: Rule) -> None:
        self.types: tuple[DataType, ...] = types_of(top)
        self._child = child
        self._view = context.view
        self._width = len(node.groups)
        inner = types_of(node.child)
        self._partials: list[Partial] = partials_of(node.calls, inner)
        self._buffers = buffers_of(node.calls, self._partials, inner)
        self._values = [
            ValueStore(context, node.child.plan, inner, self._width, places)
            for places in dict.fromkeys(p.places for p in self._partials if p.remembers)
        ]
        catalyst = context.catalyst
        state_types = (*inner[: self._width], *(p.type for p in self._partials))
        self._state = context.store(
            state_types, node.child.plan, lambda frame: fill_groups(frame, self._width, self._partials)
        )
        self._state_schema = arrow_schema(state_types)
        group_attributes = tuple(node.child.output[: self._width])
        buffer_attributes = tuple(attribute(b.java) for b in self._buffers)
        shape = LeafShape((*group_attributes, *buffer_attributes), (("weight", LONG),))

        def finish(expression: Java) -> Java | None:
            if kind_of(expression) != "AggregateExpression":
                return None
            for call in node.calls:
                if call.java.semanticEquals(expression):
                    return call.java.aggregateFunction().evaluateExpression()
            raise AssertionError("an aggregate without a call")

        self._remembered: Remembered | None = None
        if is_inexact(node):
            groups = [a.java for a in group_attributes]
            plan = catalyst.plan_class("Aggregate")(
                node.plan.groupingExpressions(),
                catalyst.seq([*node.results, *(catalyst.alias(g, f"k{i}") for i, g in enumerate(groups))]),
                node.plan.child(),
                catalyst.none,
            )
            self._remembered = Remembered(context, types_of(node), [a.type for a in group_attributes], plan, node.plan)

        def build(leaves: list[Leaf]) -> Java:
            (leaf,) = leaves
            weight = leaf.extra["weight"]
            if self._remembered is not None:
                finished = [rewrite(catalyst, result, finish) for result in node.results]
                keys = [catalyst.alias(a.java, f"k{i}") for i, a in enumerate(group_attributes)]
                plan = catalyst.project([*finished, *keys], leaf.plan)
                return named(catalyst, plan, columns_of(plan))
            results = [rewrite(catalyst, result, finish) for result in node.results]
            plan = catalyst.project([*results, weight], leaf.plan)
            plan = apply_steps(catalyst, steps, plan, [weight])
            return named(catalyst, plan, [*(a.java for a in top.output), weight])

        self._query = context.query([shape], build)

        self._direct = None if steps or self._remembered is not None else _direct_results(node)

    def delta(self, epoch: Epoch) -> Delta:
        """Results of the touched groups after the change minus those before."""
        change = self._child.delta(epoch)
        if len(change) == 0:
            return empty(arrow_schema(self.types))
        columns = [change.rows.column(i) for i in range(self._width)]
        low, high = identity(columns, len(change))
        firsts, numbers = number_identities(low, high)
        old, found = self._old(epoch, low[firsts], high[firsts])
        keys = [column.take(pa.array(firsts)) for column in columns]
        values = {one.places: one.absorb(epoch, change, numbers, len(firsts)) for one in self._values}
        try:
            new = [
                partial.absorb(
                    old.column(self._width + i), change, numbers, len(firsts), values, (low[firsts], high[firsts])
                )
                for i, partial in enumerate(self._partials)
            ]
            return self._renew(epoch, old, found, keys, new)
        except OverflowError:
            raise ViewEvaluationError(
                f"a sum in view {self._view} overflows",
                view=self._view,
                detail="The exact sum does not fit into the type of the result.",
                hint="cast the summed column to a wider type, such as DECIMAL(38, 0)",
            ) from None

    def _renew(self, epoch: Epoch, old: pa.Table, found: Any, keys: list[Any], new: list[pa.Array]) -> Delta:
        """Replace the touched groups' partials, and give out what that changes."""
        rows_now = np.asarray(new[0])
        if bool(np.any(rows_now < 0)):
            raise AssertionError(f"a group of {self._state.name} has a negative count")
        lives = rows_now > 0 if self._width else np.ones(1, dtype=bool)
        table_new = pa.table([*keys, *(pa.chunked_array([n]) for n in new)], schema=self._state_schema)
        return self._emit(epoch, old, found, table_new, lives)

    def _emit(self, epoch: Epoch, old: pa.Table, found: Any, new: pa.Table, lives: Any) -> Delta:
        old_rows = old.filter(pa.array(found))
        new_rows = new.filter(pa.array(lives))
        rows = pa.concat_tables([old_rows, new_rows]).combine_chunks()
        weights = (
            np.concatenate([np.full(old_rows.num_rows, -1, dtype=np.int64), np.ones(new_rows.num_rows, dtype=np.int64)])
            if self._width
            else np.array([-1, 1], dtype=np.int64)
        )
        state = consolidate(rows, weights)
        epoch.record(self._state.name, state)
        if len(state) == 0:
            return empty(arrow_schema(self.types))
        if self._remembered is not None:
            touched = (
                np.unique(key_hashes(state.rows, tuple(range(self._width)))) if self._width else np.zeros(1, np.uint64)
            )
            return self._remembered.exchange(epoch, touched, self._query.run([self._leaf(_only_new(state))]))
        leaf = self._leaf(state)
        if self._direct is not None:
            columns = [taken(leaf) for taken in self._direct]
            rows = conform(pa.table(columns, names=[f"c{i}" for i in range(len(columns))]), self.types)
            return consolidate(rows, state.weights)
        return signed(self._query.run([leaf]), self.types)

    def _leaf(self, state: Delta) -> pa.Table:
        """Groups and buffers, as the finishing query reads them."""
        columns: list[Any] = [state.rows.column(i) for i in range(self._width)]
        for buffer in self._buffers:
            columns.append(buffer.of(state.rows, self._width))
        columns.append(pa.array(state.weights))
        return pa.table(columns, names=[f"x{i}" for i in range(len(columns))])

    def _old(self, epoch: Epoch, low: Any, high: Any) -> tuple[pa.Table, Any]:
        """The groups' rows before, in the order of the groups, and which of them were there."""
        snapshot: State = epoch.before(self._state.name)
        count = len(low)
        if self._width == 0:
            return snapshot.all().rows, np.ones(1, dtype=bool)
        known = snapshot.lookup(tuple(range(self._width)), np.unique(low))
        columns = [known.rows.column(i) for i in range(self._width)]
        known_low, known_high = identity(columns, len(known))
        order = np.lexsort((known_high, known_low))
        places, found = found_among(low, high, known_low[order], known_high[order])
        places = order[np.where(found, places, 0)] if len(order) else places
        rows = known.rows.take(pa.array(places, mask=~found))
        assert rows.num_rows == count
        return rows, found


Result = Callable[[pa.Table], Any]


def _direct_results(node: Aggregate) -> list[Result] | None:
    """How each result is taken from groups and buffers, if no expression of Spark is needed for any of them."""
    places = {group.id: i for i, group in enumerate(node.child.output[: len(node.groups)])}
    starts: list[int] = []
    place = len(node.groups)
    for call in node.calls:
        starts.append(place)
        place += call.java.aggregateFunction().aggBufferAttributes().size()
    direct: list[Result] = []
    for result in node.results:
        inner = result.child() if kind_of(result) == "Alias" else result
        if kind_of(inner) == "AttributeReference" and id_of(inner) in places:
            direct.append(_column(places[id_of(inner)]))
            continue
        field: int | None = None
        if kind_of(inner) == "GetStructField":
            field, inner = inner.ordinal(), inner.child()
        if kind_of(inner) != "AggregateExpression":
            return None
        known = [
            (call, start) for call, start in zip(node.calls, starts, strict=True) if call.java.semanticEquals(inner)
        ]
        taken = _direct_call(*known[0]) if known else None
        if taken is None:
            return None
        direct.append(taken if field is None else _field(taken, field))
    return direct


def _direct_call(call: AggregateCall, start: int) -> Result | None:
    if call.name in ("Count", "Sum", "Min", "Max"):
        return _column(start)
    kind = data_type(call.java.dataType())
    if call.name == "Average" and isinstance(kind, DecimalType) and kind.precision < MAX_PRECISION:
        return _average(start, kind)
    return None


def _column(place: int) -> Result:
    return lambda leaf: leaf.column(place)


def _field(taken: Result, field: int) -> Result:
    return lambda leaf: taken(leaf).flatten()[field]


def _average(start: int, kind: DecimalType) -> Result:
    """Sum by count at the scale of the result, rounded half up as Spark does; NULL where nothing was counted."""

    def of(leaf: pa.Table) -> Any:
        total, count = leaf.column(start), unscaled(leaf.column(start + 1))
        factor = np.full(leaf.num_rows, 10 ** (kind.scale - total.type.scale))
        return decimals(divide(times(unscaled(total), factor), count), arrow_type(kind), count == 0)

    return of


def _only_new(state: Delta) -> Delta:
    return gather(state, np.flatnonzero(state.weights > 0))


def is_inexact(node: Aggregate) -> bool:
    """Whether an aggregate's result is a floating-point number that Spark's own fill may round otherwise."""
    return any(
        call.name in ("Average", *MOMENTS, *PAIRS) and is_floating(data_type(call.java.dataType()))
        for call in node.calls
    )
