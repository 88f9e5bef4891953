"""What aggregates are made of, kept exactly: how it absorbs a change, how Spark fills it, and how it becomes the
buffer that Spark's own final expression reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, LongType

from headrace.ir.nodes import MOMENTS, AggregateCall
from headrace.plans.trees import Java, data_type, items
from headrace.rules.aggregate_values import ChangedValues
from headrace.state.arrow_types import arrow_type, nullable_type
from headrace.state.delta import Delta
from headrace.state.exact import decimals, plus, sum_by, times, unscaled

_LONG = LongType()

Values = dict[tuple[int, ...], ChangedValues]


@dataclass(frozen=True, eq=False)
class Partial:
    """One partial result per group."""

    kind: str
    places: tuple[int, ...]
    type: DataType
    scales: tuple[int, ...] = ()

    @property
    def remembers(self) -> bool:
        """Whether the group's values must be kept."""
        return self.kind in ("min", "max", "distinct_count", "distinct_sum")

    def absorb(
        self,
        before: pa.ChunkedArray,
        change: Delta,
        groups: npt.NDArray[np.int64],
        count: int,
        values: Values,
        hashes: tuple[Any, Any],
    ) -> pa.Array:
        """The partial after a change, for each touched group."""
        if self.kind in ("min", "max"):
            return values[self.places].extremes(before.combine_chunks(), *hashes, self.kind == "max")
        if self.kind == "rows":
            added = sum_by(change.weights, groups, count)
        elif self.kind == "count":
            added = sum_by(np.where(_present(change, self.places), change.weights, 0), groups, count)
        elif self.kind in ("distinct_count", "distinct_sum"):
            changed = values[self.places]
            crossings = changed.crossings()
            if self.kind == "distinct_sum":
                crossings = times(crossings, unscaled(changed.values()))
            added = sum_by(crossings, changed.groups, count)
        else:
            factors = [change.weights, *(unscaled(change.rows.column(i)) for i in self._factors())]
            product = reduce(times, factors)
            if self.kind == "pair_sum":
                product = np.where(_present(change, self.places), product, 0)
            added = sum_by(product, groups, count)
        total = plus(unscaled(before), added)
        if isinstance(self.type, LongType):
            return pa.array(total.astype(np.int64))
        return decimals(total, arrow_type(self.type))

    def _factors(self) -> tuple[int, ...]:
        if self.kind == "power":
            return (self.places[0], self.places[0])
        if self.kind == "pair_sum":
            return (self.places[0],)
        return self.places

    def fill(self) -> Any:
        """The Spark expression that computes the partial from all rows, columns c0, c1, ..."""
        columns = [F.col(f"c{i}") for i in self.places]
        present = reduce(lambda a, b: a & b, [c.isNotNull() for c in columns]) if columns else F.lit(True)
        if self.kind == "rows":
            return F.count(F.lit(1))
        if self.kind == "count":
            return F.count(F.when(present, F.lit(1)))
        if self.kind == "distinct_count":
            return F.count_distinct(*columns)
        if self.kind in ("min", "max"):
            return F.min(columns[0]) if self.kind == "min" else F.max(columns[0])
        assert isinstance(self.type, DecimalType)
        if self.kind in ("sum", "distinct_sum"):
            wide = columns[0].cast(DecimalType(38, self.type.scale))
            return F.coalesce((F.sum if self.kind == "sum" else F.sum_distinct)(wide), F.lit(0).cast(self.type))
        narrow = [c.cast(DecimalType(18, scale)) for c, scale in zip(columns, self.scales, strict=True)]
        if self.kind == "power":
            product = narrow[0] * narrow[0]
        elif self.kind == "cross":
            product = narrow[0] * narrow[1]
        else:
            product = F.when(present, narrow[0])
        return F.coalesce(F.sum(product), F.lit(0)).cast(self.type)


def _present(change: Delta, places: Sequence[int]) -> npt.NDArray[np.bool_]:
    present = np.ones(len(change), dtype=bool)
    for place in places:
        column = change.rows.column(place)
        if column.null_count:
            present &= np.asarray(column.is_valid())
    return present


def _scale(kind: DataType) -> int:
    return kind.scale if isinstance(kind, DecimalType) else 0


def _wanted(call: AggregateCall) -> list[tuple[str, tuple[int, ...]]]:
    """The partials that one aggregate needs."""
    places = call.inputs
    if call.name in ("Min", "Max"):
        return [(call.name.lower(), places)]
    if call.name == "Count":
        if not places:
            return []
        return (
            [("distinct_count", tuple(dict.fromkeys(places)))]
            if call.distinct
            else [("count", tuple(dict.fromkeys(places)))]
        )
    if call.name in ("Sum", "Average"):
        if call.distinct:
            return [("distinct_sum", places), ("distinct_count", places)]
        return [("sum", places), ("count", places)]
    if call.name in MOMENTS:
        return [("count", places), ("sum", places), ("power", places)]
    x, y = places
    wanted: list[tuple[str, tuple[int, ...]]] = [
        ("count", (x, y)),
        ("pair_sum", (x, y)),
        ("pair_sum", (y, x)),
        ("cross", (x, y)),
    ]
    return [*wanted, ("pair_power", (x, y)), ("pair_power", (y, x))] if call.name == "Corr" else wanted


def partials_of(calls: Sequence[AggregateCall], types: Sequence[DataType]) -> list[Partial]:
    """All partials of a GROUP BY, each once; the number of rows comes first."""
    found: dict[tuple[str, tuple[int, ...]], Partial] = {("rows", ()): Partial("rows", (), _LONG)}
    for call in calls:
        for kind, places in _wanted(call):
            found.setdefault((kind, places), _partial(kind, places, types))
    return list(found.values())


def _partial(kind: str, places: tuple[int, ...], types: Sequence[DataType]) -> Partial:
    scales = tuple(_scale(types[i]) for i in places)
    if kind in ("count", "distinct_count"):
        return Partial(kind, places, _LONG)
    if kind in ("min", "max"):
        return Partial(kind, places, types[places[0]])
    if kind == "power":
        return Partial(kind, places, DecimalType(38, 2 * scales[0]), scales)
    if kind == "cross":
        return Partial(kind, places, DecimalType(38, sum(scales)), scales)
    if kind == "pair_power":
        return PairPower(kind, places, DecimalType(38, 2 * scales[0]), scales)
    return Partial(kind, places, DecimalType(38, scales[0]), scales)


class PairPower(Partial):
    """The sum of squares of one column where another is not NULL either."""

    def _factors(self) -> tuple[int, ...]:
        return (self.places[0], self.places[0])

    def absorb(
        self,
        before: pa.ChunkedArray,
        change: Delta,
        groups: npt.NDArray[np.int64],
        count: int,
        values: Values,
        hashes: tuple[Any, Any],
    ) -> pa.Array:
        """The partial after a change, for each touched group."""
        numbers = unscaled(change.rows.column(self.places[0]))
        product = times(change.weights, times(numbers, numbers))
        added = sum_by(np.where(_present(change, self.places), product, 0), groups, count)
        return decimals(plus(unscaled(before), added), arrow_type(self.type))

    def fill(self) -> Any:
        """The Spark expression that computes the partial from all rows."""
        x, y = (F.col(f"c{i}").cast(DecimalType(18, s)) for i, s in zip(self.places, self.scales, strict=True))
        return F.coalesce(F.sum(F.when(y.isNotNull(), x * x)), F.lit(0)).cast(self.type)


def fill_groups(frame: Any, width: int, partials: Sequence[Partial]) -> Any:
    """All groups with their partials, computed by Spark."""
    groups = [F.col(f"c{i}").alias(f"g{i}") for i in range(width)]
    columns = [partial.fill().cast(nullable_type(partial.type)).alias(f"p{i}") for i, partial in enumerate(partials)]
    return frame.groupBy(*groups).agg(*columns)


@dataclass(frozen=True, eq=False)
class Buffer:
    """One column of the buffer that Spark's final expression of an aggregate reads."""

    java: Java
    of: Callable[[pa.Table, int], Any]


def buffers_of(calls: Sequence[AggregateCall], partials: Sequence[Partial], types: Sequence[DataType]) -> list[Buffer]:
    """The buffers of all aggregates, in order."""
    places = {(p.kind, p.places): i for i, p in enumerate(partials)}
    buffers: list[Buffer] = []
    for call in calls:
        attributes = items(call.java.aggregateFunction().aggBufferAttributes())
        makers = _makers(call, places, types, [data_type(a.dataType()) for a in attributes])
        buffers.extend(Buffer(java, maker) for java, maker in zip(attributes, makers, strict=True))
    return buffers


def _makers(
    call: AggregateCall,
    places: dict[tuple[str, tuple[int, ...]], int],
    types: Sequence[DataType],
    buffer_types: list[DataType],
) -> list[Callable[[pa.Table, int], Any]]:
    wanted = [places[key] for key in _wanted(call)]
    if call.name == "Count":
        place = wanted[0] if wanted else places[("rows", ())]
        return [lambda rows, width: rows.column(width + place)]
    if call.name in ("Min", "Max"):
        return [lambda rows, width: rows.column(width + wanted[0])]
    if call.name in ("Sum", "Average"):
        total, count = wanted

        def sums(rows: pa.Table, width: int) -> Any:
            empty = np.asarray(rows.column(width + count)) == 0
            return _number(rows.column(width + total), empty, arrow_type(buffer_types[0]), call.name)

        if call.name == "Average":
            return [sums, lambda rows, width: rows.column(width + count)]
        if len(buffer_types) == 1:
            return [sums]
        return [sums, lambda rows, width: pa.array(np.asarray(rows.column(width + count)) == 0)]
    scales = [_scale(types[i]) for i in call.inputs]
    if call.name in MOMENTS:
        return [_moment(wanted, scales, i) for i in range(3)]
    return [_pair(wanted, scales, i) for i in range(len(buffer_types))]


def _number(column: pa.ChunkedArray, empty: npt.NDArray[np.bool_], kind: pa.DataType, name: str) -> pa.Array:
    """An exact sum in the type of the buffer; where nothing was summed, NULL (for AVG: zero)."""
    gone = empty if name == "Sum" else None
    numbers = unscaled(column)
    if pa.types.is_decimal(kind):
        return decimals(numbers, kind, gone)
    if pa.types.is_floating(kind):
        return pa.array(numbers.astype(np.float64) / float(10**column.type.scale), mask=gone)
    if numbers.dtype == object:
        raise OverflowError
    return pa.array(numbers.astype(np.int64), mask=gone)


def _moment(wanted: Sequence[int], scales: Sequence[int], part: int) -> Callable[[pa.Table, int], Any]:
    def of(rows: pa.Table, width: int) -> Any:
        count, total, power = (unscaled(rows.column(width + i)) for i in wanted)
        unit = 10 ** scales[0]
        result: list[float] = []
        for n, s, q in zip(count.tolist(), total.tolist(), power.tolist(), strict=True):
            if part == 0:
                result.append(float(n))
            elif n == 0:
                result.append(0.0)
            elif part == 1:
                result.append(float(Fraction(s, n * unit)))
            else:
                result.append(float(Fraction(q * n - s * s, n * unit * unit)))
        return pa.array(result, type=pa.float64())

    return of


def _pair(wanted: Sequence[int], scales: Sequence[int], part: int) -> Callable[[pa.Table, int], Any]:
    def of(rows: pa.Table, width: int) -> Any:
        columns = [unscaled(rows.column(width + i)).tolist() for i in wanted]
        unit_x, unit_y = 10 ** scales[0], 10 ** scales[1]
        result: list[float] = []
        for values in zip(*columns, strict=True):
            n, x, y, xy = values[:4]
            if part == 0:
                result.append(float(n))
            elif n == 0:
                result.append(0.0)
            elif part == 1:
                result.append(float(Fraction(x, n * unit_x)))
            elif part == 2:
                result.append(float(Fraction(y, n * unit_y)))
            elif part == 3:
                result.append(float(Fraction(xy * n - x * y, n * unit_x * unit_y)))
            elif part == 4:
                result.append(float(Fraction(values[4] * n - x * x, n * unit_x * unit_x)))
            else:
                result.append(float(Fraction(values[5] * n - y * y, n * unit_y * unit_y)))
        return pa.array(result, type=pa.float64())

    return of
