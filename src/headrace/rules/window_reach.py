"""How much of a touched partition a window must read: its first rows, the rows within reach of a change, or those from
the first change on.

Each window function looks from its row so far back and so far ahead, counted in rows or in the values of its order.
Where all of them look ahead a bounded way, a filter on the row's number leaves only the first rows to be read. Where
all look back a bounded way, too, or go on from a running value that is known without reading what it is made of, only
rows near a change are read. Everything else takes whole partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    StringType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from headrace.plans.trees import Java, children, conjuncts, data_type, id_of, items, kind_of
from headrace.rules.base import is_floating
from headrace.rules.window_running import Running, running_of
from headrace.types import INTEGERS, ORDERED

_MOST_COLUMNS = 3
_PICKS = frozenset({"Lag", "Lead", "First", "Last", "NthValue", "Min", "Max"})
_NUMBERS_ROWS = frozenset({"RowNumber", "Rank", "DenseRank"})
_OF_THE_WHOLE = frozenset({"NTile", "PercentRank", "CumeDist"})
_DAY = 86_400_000_000
_LONGEST_MONTH = 31
_BOUNDS: dict[str, Callable[[int], int]] = {
    "LessThanOrEqual": lambda n: n,
    "LessThan": lambda n: n - 1,
    "EqualTo": lambda n: n,
    "EqualNullSafe": lambda n: n,
}
_MIRRORED = {"GreaterThanOrEqual": "LessThanOrEqual", "GreaterThan": "LessThan"}


@dataclass(frozen=True)
class OrderBy:
    """One column that a partition is cut by."""

    id: int
    descending: bool
    nulls_first: bool
    type: DataType


@dataclass(frozen=True)
class FrameReach:
    """How far a window function looks from a row, in rows and in the values of its order.

    One that looks back to the start of the partition either goes on from a running value, or must see the start.
    """

    rows_behind: int = 0
    rows_ahead: int = 0
    behind: int = 0
    ahead: int = 0
    from_start: bool = False
    running: Running | None = None


@dataclass(frozen=True)
class FirstRows:
    """Only rows numbered up to the limit are wanted; ranks without gaps count distinct values."""

    limit: int
    distinct: bool


@dataclass(frozen=True)
class WindowReach:
    """What of a touched partition is read; frames are those of each window, the bottom one first.

    The numbers are the columns that number rows, and whether they count distinct values: a filter on one of them
    leaves only the first rows to be read.
    """

    order: tuple[OrderBy, ...]
    frames: tuple[tuple[FrameReach, ...], ...]
    first: FirstRows | None
    numbers: tuple[tuple[int, bool], ...] = ()

    @property
    def onward(self) -> bool:
        """Whether a change affects all rows after it."""
        return any(frame.from_start for frames in self.frames for frame in frames)

    @property
    def running(self) -> tuple[Running, ...]:
        """The running values that slices go on from; the first rows of a partition need none."""
        if self.first is not None:
            return ()
        return tuple(frame.running for frames in self.frames for frame in frames if frame.running is not None)

    def sentence(self) -> str:
        """The reach, for EXPLAIN."""
        if self.first is not None:
            what = "values" if self.first.distinct else "rows"
            return f"the first {what} of the partitions touched, up to {self.first.limit}"
        return "rows from the first change on" if self.onward else "rows within reach of a change"


def is_inexact(steps: Sequence[Java]) -> bool:
    """Whether a window computes floating-point values from many rows; to pick one of them is exact."""
    return any(
        is_floating(data_type(alias.dataType())) and kind_of(_function(alias)) not in _PICKS
        for alias in _expressions(steps)
    )


def find_reach(steps: Sequence[Java], keys: Sequence[int], stored: Set[int]) -> WindowReach | None:
    """What windows with these partition keys look at, whatever of their rows is wanted; None where that is all."""
    windows = [step for step in steps if kind_of(step) == "Window"]
    if any(kind_of(step) not in ("Window", "Project") for step in steps):
        return None
    if any(_partition(window) != set(keys) for window in windows) or not stored >= set(keys):
        return None
    order = _common([_order(window, stored, set(keys)) for window in windows])
    frames: list[tuple[FrameReach, ...]] = []
    for window in windows:
        found = [_frame_reach(alias, order, stored) for alias in _expressions([window])]
        frames.append(tuple(frame for frame in found if frame is not None))
        if not order or len(frames[-1]) < len(found):
            return None
    if any(frame.behind or frame.ahead for of_window in frames for frame in of_window):
        order = order[:1]
    numbers = [
        (id_of(alias), kind_of(_function(alias)) == "DenseRank")
        for alias in _expressions(windows)
        if kind_of(_function(alias)) in _NUMBERS_ROWS
    ]
    return WindowReach(order, tuple(frames), None, tuple(numbers))


def limited(reach: WindowReach, steps: Sequence[Java]) -> WindowReach | None:
    """What is read where the steps above may want only the first rows; None where it is all."""
    first = _first_rows(dict(reach.numbers), steps)
    if first is not None:
        return replace(reach, first=first)
    if any(frame.from_start and frame.running is None for frames in reach.frames for frame in frames):
        return None
    return reach


def _expressions(steps: Sequence[Java]) -> list[Java]:
    """The window functions of all windows among some steps, each under its name."""
    return [alias for step in steps if kind_of(step) == "Window" for alias in items(step.windowExpressions())]


def _function(alias: Java) -> Java:
    function = items(alias.child().children())[0]
    return function.aggregateFunction() if kind_of(function) == "AggregateExpression" else function


def _partition(window: Java) -> set[int]:
    """The partition's columns; -1 stands for what is none."""
    return {id_of(k) if kind_of(k) == "AttributeReference" else -1 for k in items(window.partitionSpec())}


def _order(window: Java, stored: Set[int], keys: Set[int]) -> tuple[OrderBy, ...]:
    """The first columns of a window's order, as far as they can be compared as bytes."""
    found: list[OrderBy] = []
    for one in items(window.orderSpec()):
        column = one.child()
        if kind_of(column) != "AttributeReference" or id_of(column) not in stored:
            break
        id_, kind = id_of(column), data_type(column.dataType())
        if id_ in keys or any(known.id == id_ for known in found):
            continue
        if not isinstance(kind, ORDERED):
            break
        descending = kind_of(one.direction()) == "Descending"
        found.append(OrderBy(id_, descending, kind_of(one.nullOrdering()) == "NullsFirst", kind))
        # Only the first bytes of a string are compared, so what comes after it does not count.
        if len(found) == _MOST_COLUMNS or isinstance(kind, (StringType, BinaryType)):
            break
    return tuple(found)


def _common(orders: Sequence[tuple[OrderBy, ...]]) -> tuple[OrderBy, ...]:
    shared: list[OrderBy] = []
    for columns in zip(*orders, strict=False):
        if any(column != columns[0] for column in columns):
            break
        shared.append(columns[0])
    return tuple(shared)


def _frame_reach(alias: Java, order: tuple[OrderBy, ...], stored: Set[int]) -> FrameReach | None:
    """How far a window function looks; None when it needs the whole partition."""
    function, name = _function(alias), kind_of(_function(alias))
    if name in ("Lag", "Lead"):
        if function.ignoreNulls():
            return None
        offset = int(function.offset().eval(None))
        return FrameReach(rows_behind=max(0, -offset), rows_ahead=max(0, offset))
    if name in _OF_THE_WHOLE:
        return None
    if name in _NUMBERS_ROWS:
        return FrameReach(from_start=True, running=running_of(alias, stored))
    if kind_of(items(alias.child().children())[0]) != "AggregateExpression" and name != "NthValue":
        return None
    frame = items(alias.child().children())[1].frameSpecification()
    if kind_of(frame) != "SpecifiedWindowFrame" or kind_of(frame.upper()) == "UnboundedFollowing":
        return None
    by_rows = kind_of(frame.frameType()) == "RowFrame"
    from_start = kind_of(frame.lower()) == "UnboundedPreceding"
    upper = _offset(frame.upper(), by_rows, order)
    lower = upper if from_start else _offset(frame.lower(), by_rows, order)
    if upper is None or lower is None:
        return None
    behind, ahead = max(0, -lower, -upper), max(0, lower, upper)
    running = running_of(alias, stored) if from_start else None
    if by_rows:
        return FrameReach(behind, ahead, from_start=from_start, running=running)
    return FrameReach(behind=behind, ahead=ahead, from_start=from_start, running=running)


def _offset(bound: Java, by_rows: bool, order: tuple[OrderBy, ...]) -> int | None:
    """Where a frame ends: rows, or units of its order's column, after the current row; rounded away from it."""
    if kind_of(bound) == "CurrentRow":
        return 0
    if not bound.foldable():
        return None
    value: Any = bound.eval(None)
    if by_rows:
        return int(value)
    if not order:
        return None
    column, kind = order[0].type, data_type(bound.dataType())
    units: Decimal | None = None
    if isinstance(column, INTEGERS) and isinstance(kind, INTEGERS):
        units = Decimal(int(value))
    elif isinstance(column, DecimalType) and column.precision <= 18 and isinstance(kind, DecimalType):
        units = Decimal(str(value.toJavaBigDecimal())).scaleb(column.scale)
    elif isinstance(column, DateType) and isinstance(kind, INTEGERS):
        units = Decimal(int(value))
    elif isinstance(column, (DateType, TimestampType, TimestampNTZType)):
        unit = 1 if isinstance(column, DateType) else _DAY
        if isinstance(kind, YearMonthIntervalType):
            units = Decimal(int(value) * _LONGEST_MONTH * unit)
        elif isinstance(kind, DayTimeIntervalType):
            units = Decimal(int(value)) * unit / _DAY
    if units is None:
        return None
    away = int(abs(units).to_integral_value(rounding=ROUND_CEILING))
    return away if units >= 0 else -away


def _first_rows(numbers: dict[int, bool], steps: Sequence[Java]) -> FirstRows | None:
    """The smallest limit that a filter above sets to the number of a row."""
    found: list[FirstRows] = []
    for step in steps:
        if kind_of(step) == "Project":
            for one in items(step.projectList()):
                column = _column_of(one.child()) if kind_of(one) == "Alias" else None
                if column in numbers:
                    numbers[id_of(one)] = numbers[column]
        elif kind_of(step) == "Filter":
            for part in conjuncts(step.condition()):
                column, limit = _limit(part)
                if column in numbers and limit is not None:
                    found.append(FirstRows(max(limit, 1), numbers[column]))
        else:
            break
    return min(found, key=lambda one: (one.limit, one.distinct), default=None)


def _limit(part: Java) -> tuple[int | None, int | None]:
    """The column that a comparison bounds from above by a number, and the number."""
    name = kind_of(part)
    if name in _MIRRORED:
        literal, column = children(part)
        name = _MIRRORED[name]
    elif name in _BOUNDS:
        column, literal = children(part)
        if kind_of(column) == "Literal":
            if name in ("LessThan", "LessThanOrEqual"):
                return None, None
            column, literal = literal, column
    else:
        return None, None
    if kind_of(literal) != "Literal" or not isinstance(literal.value(), int):
        return None, None
    return _column_of(column), _BOUNDS[name](literal.value())


def _column_of(expression: Java) -> int | None:
    """The column that an expression is, seen through casts between whole numbers."""
    while kind_of(expression) == "Cast" and isinstance(data_type(expression.dataType()), INTEGERS):
        expression = children(expression)[0]
    return id_of(expression) if kind_of(expression) == "AttributeReference" else None
