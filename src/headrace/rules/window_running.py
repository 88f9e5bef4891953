"""Running values: numbers of rows, exact sums and averages over all rows up to the current one, for a slice alone.

f(rows before ∪ slice) = f(rows before) ⊕ f(slice): what the rows before amount to is handed in as extra columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column
from pyspark.sql.types import DataType, DecimalType, LongType

from headrace.plans.catalyst import Catalyst, rewrite
from headrace.plans.trees import Java, children, data_type, id_of, items, kind_of, may_be_null_for_size
from headrace.state.arranged import Arrangement, SortKeys
from headrace.state.arrow_types import arrow_type
from headrace.state.exact import Numbers, decimals
from headrace.types import INTEGERS

_LONG = LongType()
_ROWS = "rows"
# One digit is left for the sum of two parts.
_MOST_DIGITS = 37


@dataclass(frozen=True)
class Running:
    """What a window function goes on from: the number of rows, or the values of a column."""

    kind: str
    column: int | None = None
    type: DataType = _LONG

    @property
    def sums(self) -> bool:
        """Whether it needs the sum of the values, not only their number."""
        return self.kind in ("sum", "average")


def running_of(alias: Java, stored: Set[int]) -> Running | None:
    """How a function over all rows up to the current one goes on from the rows before; None when it cannot."""
    function = items(alias.child().children())[0]
    if kind_of(function) in ("RowNumber", "Rank"):
        return Running("rows")
    if kind_of(function) != "AggregateExpression" or function.filter().isDefined():
        return None
    aggregate = function.aggregateFunction()
    name, inputs = kind_of(aggregate), children(aggregate)
    if len(inputs) != 1:
        return None
    if name == "Count" and kind_of(inputs[0]) == "Literal" and inputs[0].value() is not None:
        return Running("rows")
    if kind_of(inputs[0]) != "AttributeReference" or inputs[0].exprId().id() not in stored:
        return None
    column, kind = inputs[0].exprId().id(), data_type(inputs[0].dataType())
    if name == "Count":
        return Running("count", column)
    if name in ("Sum", "Average") and may_be_null_for_size(aggregate):
        return None
    if name == "Sum" and _summable(kind):
        return Running("sum", column, kind)
    # Spark adds up BIGINTs for an average as floating-point numbers.
    if name == "Average" and _summable(kind) and not isinstance(kind, LongType):
        return Running("average", column, kind)
    return None


def _summable(kind: DataType) -> bool:
    """Whether sums over a type are exact and leave a digit to spare."""
    return isinstance(kind, INTEGERS) or (isinstance(kind, DecimalType) and kind.precision + 10 <= _MOST_DIGITS)


def _sum_type(kind: DataType) -> DataType:
    """The type of Spark's sum over a type."""
    return DecimalType(kind.precision + 10, kind.scale) if isinstance(kind, DecimalType) else _LONG


def extra_columns(running: Sequence[Running]) -> dict[str, Running]:
    """The extra columns of a slice by name: the rows before it, the sum and the number of values of each column."""
    found: dict[str, Running] = {}
    for one in running:
        if one.column is None:
            found[_ROWS] = one
        else:
            found[f"count{one.column}"] = one
            if one.sums:
                found[f"sum{one.column}"] = one
    return found


def extra_type(name: str, one: Running) -> DataType:
    """The type of an extra column."""
    return _sum_type(one.type) if name.startswith("sum") else _LONG


def before_slices(
    arrangement: Arrangement, starts: SortKeys, extra: Mapping[str, Running], positions: Mapping[int, int]
) -> list[pa.Array]:
    """What stands before each slice, as the extra columns; positions are those of the columns in the store."""
    found: list[pa.Array] = []
    for name, one in extra.items():
        if one.column is None:
            found.append(pa.array(arrangement.counts_before(starts)))
            continue
        count = arrangement.values_before(starts, positions[one.column])
        if name.startswith("count"):
            found.append(pa.array(count))
        else:
            total = arrangement.sums_before(starts, positions[one.column])
            found.append(_nullable(total, _sum_type(one.type), count == 0))
    return found


def nothing_before(extra: Mapping[str, Running]) -> list[pa.Array]:
    """What stands before a whole partition, as the extra columns."""
    return [
        pa.array([None if name.startswith("sum") else 0], type=arrow_type(extra_type(name, one)))
        for name, one in extra.items()
    ]


def _nullable(total: Numbers, kind: DataType, gone: Any) -> pa.Array:
    if isinstance(kind, DecimalType):
        return decimals(total, arrow_type(kind), gone)
    return pa.array([None if g else int(t) for t, g in zip(total, gone, strict=True)], type=arrow_type(kind))


def go_on(
    catalyst: Catalyst, function: Java, spec: Java, running: Running, extra: Mapping[str, Java]
) -> tuple[list[Java], Java]:
    """A running function as window expressions over a slice, under names of their own, and its result of these."""
    if running.kind == "average":
        return _go_on_averaging(catalyst, function, spec, running, extra)
    part = _windowed(catalyst, function, spec)
    here = _column(catalyst, part.toAttribute())
    kind = function.dataType().sql()
    if running.kind == "sum":
        total = _plus(_column(catalyst, extra[f"sum{running.column}"]), here)
    else:
        total = here + _column(catalyst, extra[_ROWS if running.column is None else f"count{running.column}"])
    return [part], catalyst.expression(total.cast(kind))


def _go_on_averaging(
    catalyst: Catalyst, function: Java, spec: Java, running: Running, extra: Mapping[str, Java]
) -> tuple[list[Java], Java]:
    """An average keeps a sum and a count; Spark's own expression makes the result of both."""
    average = function.aggregateFunction()
    (value,) = children(average)
    summed = catalyst.expression_class("aggregate.Sum")(value).toAggregateExpression()
    counted = catalyst.expression_class("aggregate.Count")(catalyst.seq([value])).toAggregateExpression()
    parts = [_windowed(catalyst, one, spec) for one in (summed, counted)]
    here = [_column(catalyst, part.toAttribute()) for part in parts]
    given = [_column(catalyst, extra[f"{name}{running.column}"]) for name in ("sum", "count")]
    buffers = items(average.aggBufferAttributes())
    values = {
        buffers[0].exprId().id(): F.coalesce(_plus(given[0], here[0]), F.lit(0)).cast(buffers[0].dataType().sql()),
        buffers[1].exprId().id(): given[1] + here[1],
    }

    def replace(expression: Java) -> Java | None:
        if kind_of(expression) != "AttributeReference":
            return None
        return catalyst.expression(values[id_of(expression)])

    return parts, rewrite(catalyst, average.evaluateExpression(), replace)


def _windowed(catalyst: Catalyst, function: Java, spec: Java) -> Java:
    return catalyst.alias(catalyst.expression_class("WindowExpression")(function, spec), "part")


def _plus(left: Any, right: Any) -> Any:
    """The sum of two sums, either of which may be NULL for want of values."""
    return F.coalesce(left + right, left, right)


def _column(catalyst: Catalyst, expression: Java) -> Any:
    """An expression as PySpark's column of it."""
    return Column(catalyst.module("org.apache.spark.sql.classic.ExpressionUtils").column(expression))
