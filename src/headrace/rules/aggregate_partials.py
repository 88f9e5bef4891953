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

from headrace.rules.aggregate_calls import MOMENTS, AggregateCall
from headrace.rules.aggregate_values import ChangedValues, GrownValues
from headrace.rules.inputs import has_null_key
from headrace.state.arrow_types import arrow_type, nullable_type
from headrace.state.delta import Delta
from headrace.state.exact import decimals, plus, sum_by, times, unscaled

_LONG = LongType()

Values = dict[tuple[int, ...], ChangedValues | GrownValues]


@dataclass(frozen=True, eq=False)
class Partial:
    """One partial result per group."""

    kind: str
    columns: tuple[int, ...]
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
            return values[self.columns].extremes(before.combine_chunks(), *hashes, self.kind == "max")
        if self.kind == "rows":
            added = sum_by(change.weights, groups, count)
        elif self.kind == "count":
            added = sum_by(np.where(~has_null_key(change, self.columns), change.weights, 0), groups, count)
        elif self.kind in ("distinct_count", "distinct_sum"):
            changed = values[self.columns]
            assert isinstance(changed, ChangedValues), "what is distinct is remembered"
            crossings = changed.crossings()
            if self.kind == "distinct_sum":
                crossings = times(crossings, unscaled(changed.values()))
            added = sum_by(crossings, changed.groups, count)
        else:
            factors = [change.weights, *(unscaled(change.rows.column(i)) for i in self._factors())]
            product = reduce(times, factors)
            if self.kind in ("pair_sum", "pair_power"):
                product = np.where(~has_null_key(change, self.columns), product, 0)
            added = sum_by(product, groups, count)
        total = plus(unscaled(before), added)
        if isinstance(self.type, LongType):
            return pa.array(total.astype(np.int64))
        return decimals(total, arrow_type(self.type))

    def _factors(self) -> tuple[int, ...]:
        if self.kind in ("power", "pair_power"):
            return (self.columns[0], self.columns[0])
        if self.kind == "pair_sum":
            return (self.columns[0],)
        return self.columns

    def fill(self) -> Any:
        """The Spark expression that computes the partial from all rows, columns c0, c1, ..."""
        columns = [F.col(f"c{i}") for i in self.columns]
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
        elif self.kind == "pair_power":
            product = F.when(present, narrow[0] * narrow[0])
        else:
            product = F.when(present, narrow[0])
        return F.coalesce(F.sum(product), F.lit(0)).cast(self.type)


def _scale(kind: DataType) -> int:
    return kind.scale if isinstance(kind, DecimalType) else 0


def _wanted(call: AggregateCall) -> list[tuple[str, tuple[int, ...]]]:
    """The partials that one aggregate needs."""
    inputs = call.inputs
    if call.name in ("Min", "Max"):
        return [(call.name.lower(), inputs)]
    if call.name == "Count":
        if not inputs:
            return []
        return (
            [("distinct_count", tuple(dict.fromkeys(inputs)))]
            if call.distinct
            else [("count", tuple(dict.fromkeys(inputs)))]
        )
    if call.name in ("Sum", "Average"):
        if call.distinct:
            return [("distinct_sum", inputs), ("distinct_count", inputs)]
        return [("sum", inputs), ("count", inputs)]
    if call.name in MOMENTS:
        return [("count", inputs), ("sum", inputs), ("power", inputs)]
    x, y = inputs
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
        for kind, columns in _wanted(call):
            found.setdefault((kind, columns), _partial(kind, columns, types))
    return list(found.values())


def _partial(kind: str, columns: tuple[int, ...], types: Sequence[DataType]) -> Partial:
    scales = tuple(_scale(types[i]) for i in columns)
    if kind in ("count", "distinct_count"):
        return Partial(kind, columns, _LONG)
    if kind in ("min", "max"):
        return Partial(kind, columns, types[columns[0]])
    if kind in ("power", "pair_power"):
        return Partial(kind, columns, DecimalType(38, 2 * scales[0]), scales)
    if kind == "cross":
        return Partial(kind, columns, DecimalType(38, sum(scales)), scales)
    return Partial(kind, columns, DecimalType(38, scales[0]), scales)


def fill_groups(frame: Any, width: int, partials: Sequence[Partial]) -> Any:
    """All groups with their partials, computed by Spark."""
    groups = [F.col(f"c{i}").alias(f"g{i}") for i in range(width)]
    columns = [partial.fill().cast(nullable_type(partial.type)).alias(f"p{i}") for i, partial in enumerate(partials)]
    return frame.groupBy(*groups).agg(*columns)


# One column of the buffer that Spark's final expression of an aggregate reads, made of the partials that come after so
# many columns of groups.
Buffer = Callable[[pa.Table, int], Any]


def buffers_of(calls: Sequence[AggregateCall], partials: Sequence[Partial], types: Sequence[DataType]) -> list[Buffer]:
    """The buffers of all aggregates, in order."""
    positions = {(partial.kind, partial.columns): i for i, partial in enumerate(partials)}
    buffers: list[Buffer] = []
    for call in calls:
        made = _buffers(call, positions, types)
        assert len(made) == len(call.buffers), f"the buffers of {call.name}"
        buffers.extend(made)
    return buffers


def buffer_columns(calls: Sequence[AggregateCall], partials: Sequence[Partial]) -> list[int] | None:
    """Which partial each buffer of all aggregates is, in order, if each is one as it stands: counts and extremes."""
    positions = {(partial.kind, partial.columns): i for i, partial in enumerate(partials)}
    found: list[int] = []
    for call in calls:
        if call.name not in ("Count", "Min", "Max"):
            return None
        found.extend(positions[key] for key in _wanted(call) or [("rows", ())])
    return found


def _buffers(
    call: AggregateCall, positions: dict[tuple[str, tuple[int, ...]], int], types: Sequence[DataType]
) -> list[Buffer]:
    wanted = [positions[key] for key in _wanted(call)]
    buffer_types = [buffer.type for buffer in call.buffers]
    if call.name == "Count":
        counted = wanted[0] if wanted else positions[("rows", ())]
        return [lambda rows, width: rows.column(width + counted)]
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


def _moment(wanted: Sequence[int], scales: Sequence[int], part: int) -> Buffer:
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


def _pair(wanted: Sequence[int], scales: Sequence[int], part: int) -> Buffer:
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
