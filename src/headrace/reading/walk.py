"""A walk along an index of a state: from a place on, stretch by stretch, each of a few rows.

What an index holds of a text is its first bytes; where a column has longer ones, the index ends with it. So a stretch
may have rows that stand outside the bounds, or not in their final order; it never lacks one, and never ends among rows
that are equal in the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from headrace.errors import QueryError
from headrace.reading.access import Access, Condition
from headrace.state.arranged import (
    PARTITION,
    STRING,
    Arrangement,
    Order,
    OrderColumn,
    SortKeys,
    key_width,
    partition_bounds,
    sort_keys,
)
from headrace.state.delta import Delta
from headrace.state.run import Run
from headrace.state.state import State

# Signed rows that one stretch may have beyond those that were asked for: rows that are equal in the index.
_MOST_EQUAL = 20_000
# Rows that are brought into order while one waits.
_QUICK = 5_000


def arrangement_of(state: State, schema: StructType, access: Access) -> Arrangement:
    """A state under the order of an index, up to the first column with text that the index would have to cut."""
    places = {name: index for index, name in enumerate(schema.names)}
    partition = tuple(places[name] for name in access.equal)
    runs = state.arranged(Order(partition, ())).runs
    columns: list[OrderColumn] = []
    for one in access.order:
        place = places[one.name]
        columns.append(OrderColumn(place, one.descending, one.descending))
        if _is_text(state.schema.field(place).type) and any(_is_cut(run, place) for run in runs):
            break
    return state.arranged(Order(partition, tuple(columns)))


def is_made(arrangement: Arrangement) -> bool:
    """Whether the index is there, but for what is made in no time."""
    return sum(len(run.delta) for run in arrangement.runs if arrangement.order not in run.arranged) <= _QUICK


class Walk:
    """The way along one index among the rows of looked-up values, where conditions on its first column can hold."""

    def __init__(self, state: State, schema: StructType, access: Access, conditions: Sequence[Condition]) -> None:
        types = dict(zip(schema.names, state.schema.types, strict=True))
        values = {one.column: one.value for one in conditions if one.operator == "eq"}
        self._access = access
        self._arrangement = arrangement_of(state, schema, access)
        self._equal = [pa.array([values[name]], types[name]) for name in access.equal]
        self._along = access.order[: len(self._arrangement.order.columns)]
        width = key_width(state.schema, self._arrangement.order)
        self._start, self._end = partition_bounds(self._equal, width)
        self._over = False
        # Whether every row between the bounds meets all conditions.
        self.exact = True
        ranges = [one for one in conditions if one.operator != "eq"]
        if ranges:
            self._start, self._end = self._valued(0), self._valued(255)
            self.exact = not _is_text(types[access.order[0].name])
        for one in ranges:
            array = pa.array([one.value], types[one.column])
            strict = one.operator in ("gt", "lt") and self.exact
            if (one.operator in ("gt", "gte")) != access.order[0].descending:
                self._start = max(self._start, self._prefix(array, 255 if strict else 0))
            else:
                self._end = min(self._end, self._prefix(array, 0 if strict else 255))

    def begin_at(self, arrays: Sequence[pa.Array]) -> None:
        """Begin with the rows of a place, which are among those told next."""
        self._start = max(self._start, self._key(arrays[: len(self._along)]))

    def skip(self, rows: int) -> int:
        """Begin so many rows further on, or a few less; how many were passed over."""
        place = min(self._arrangement.ahead(self._start, rows, inclusive=True), self._end)
        passed = self._arrangement.counts_before(place) - self._arrangement.counts_before(self._start)
        self._start = place
        return int(passed[0])

    def next(self, rows: int, columns: Sequence[int]) -> Delta | None:
        """The next stretch, of at least so many rows unless it is the last; None behind the last."""
        if self._over or self._start > self._end:
            return None
        stop = self._end
        if self._signed_rows(stop) > 2 * rows:
            stop = min(self._arrangement.ahead(self._start, rows, inclusive=True), self._end)
            if self._signed_rows(stop) > 2 * rows + _MOST_EQUAL:
                raise QueryError(
                    "too many rows are equal in the index to be brought into order",
                    detail=f"An index holds the first 32 bytes of a text; more than {_MOST_EQUAL} rows begin alike.",
                    hint="order by another index, or ask for fewer rows with a condition",
                )
        found = self._arrangement.rows(self._start, stop, columns)
        self._over = bool(stop >= self._end)
        if not self._over:
            self._start = _following(stop)
        return found

    def _signed_rows(self, stop: SortKeys) -> int:
        parts = self._arrangement.parts
        return sum(
            int(np.searchsorted(part.keys, stop, "right")[0] - np.searchsorted(part.keys, self._start, "left")[0])
            for part in parts
        )

    def _key(self, arrays: Sequence[pa.Array]) -> SortKeys:
        """The sort key of a place among the looked-up values."""
        table = pa.table([*self._equal, *arrays], names=[f"c{i}" for i in range(len(self._equal) + len(arrays))])
        columns = [
            OrderColumn(len(self._equal) + index, one.descending, one.descending)
            for index, one in enumerate(self._along[: len(arrays)])
        ]
        return sort_keys(table, Order(tuple(range(len(self._equal))), tuple(columns)))

    def _prefix(self, array: pa.Array, byte: int) -> SortKeys:
        """The first or last key of all whose first column has a value."""
        return _padded(self._key([array]), self._start.dtype, byte)

    def _valued(self, byte: int) -> SortKeys:
        """The first or last key of all whose first column is not NULL."""
        matrix = np.frombuffer(self._start.tobytes(), dtype=np.uint8).copy()
        matrix[PARTITION] = 1
        matrix[PARTITION + 1 :] = byte
        return matrix.view(self._start.dtype)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _is_cut(run: Run, place: int) -> bool:
    """Whether some text of a column is not whole in a sort key; looked up once."""
    found = run.arranged.get(("cut", place))
    if found is None:
        column = run.delta.rows.column(place)
        longest = pc.call_function("max", [pc.call_function("binary_length", [column])]).as_py() or 0
        ends = pc.call_function("match_substring", [column], pc.MatchSubstringOptions("\0"))
        found = longest > STRING or bool(pc.call_function("any", [ends]).as_py())
        run.arranged[("cut", place)] = found
    return bool(found)


def _padded(key: SortKeys, dtype: Any, byte: int) -> SortKeys:
    matrix = np.full(dtype.itemsize, byte, dtype=np.uint8)
    matrix[: key.dtype.itemsize] = np.frombuffer(key.tobytes(), dtype=np.uint8)
    return matrix.view(dtype)


def _following(key: SortKeys) -> SortKeys:
    """The next key that there could be."""
    number = int.from_bytes(key.tobytes(), "big") + 1
    width = key.dtype.itemsize
    raw = min(number, 2 ** (8 * width) - 1).to_bytes(width, "big")
    return np.frombuffer(raw, dtype=np.uint8).copy().view(key.dtype)
