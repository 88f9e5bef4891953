"""Results of a GROUP BY that are taken from groups and buffers as they are, without a query of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DecimalType

from headrace.ir.nodes import Column, Tree
from headrace.plans.trees import id_of, kind_of
from headrace.rules.aggregate_calls import AggregateCall
from headrace.rules.context import RuleContext
from headrace.state.arrow_types import arrow_type
from headrace.state.exact import decimals, divide, times, unscaled

Result = Callable[[pa.Table], Any]

_MAX_PRECISION = 38


def direct_results(
    context: RuleContext, groups: Sequence[Column], calls: Sequence[AggregateCall], results: Sequence[Tree]
) -> tuple[Result, ...] | None:
    """How each result is taken from groups and buffers, if no expression of Spark is needed for any of them."""
    positions = {group.id: i for i, group in enumerate(groups)}
    starts = accumulate((len(call.buffers) for call in calls), initial=len(groups))
    buffered = [(context.java(call.tree), call, start) for call, start in zip(calls, starts, strict=False)]
    direct: list[Result] = []
    for result in context.javas(results):
        inner = result.child() if kind_of(result) == "Alias" else result
        if kind_of(inner) == "AttributeReference" and id_of(inner) in positions:
            direct.append(_column(positions[id_of(inner)]))
            continue
        field: int | None = None
        if kind_of(inner) == "GetStructField":
            field, inner = inner.ordinal(), inner.child()
        if kind_of(inner) != "AggregateExpression":
            return None
        known = [(call, start) for java, call, start in buffered if java.semanticEquals(inner)]
        taken = _direct_call(*known[0]) if known else None
        if taken is None:
            return None
        direct.append(taken if field is None else _field(taken, field))
    return tuple(direct)


def _direct_call(call: AggregateCall, start: int) -> Result | None:
    if call.name in ("Count", "Sum", "Min", "Max"):
        return _column(start)
    kind = call.type
    if call.name == "Average" and isinstance(kind, DecimalType) and kind.precision < _MAX_PRECISION:
        return _average(start, kind)
    return None


def _column(position: int) -> Result:
    return lambda leaf: leaf.column(position)


def _field(taken: Result, field: int) -> Result:
    return lambda leaf: taken(leaf).flatten()[field]


def _average(start: int, kind: DecimalType) -> Result:
    """Sum by count at the scale of the result, rounded half up as Spark does; NULL where nothing was counted."""

    def of(leaf: pa.Table) -> Any:
        total, count = leaf.column(start), unscaled(leaf.column(start + 1))
        factor = np.full(leaf.num_rows, 10 ** (kind.scale - total.type.scale))
        return decimals(divide(times(unscaled(total), factor), count), arrow_type(kind), count == 0)

    return of
