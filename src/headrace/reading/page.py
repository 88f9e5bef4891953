"""A page of a relation's rows, straight from its state: looked up by the key or walked along an index, without Spark.

Rows are in a total order: the columns of the order, NULL as the largest value, then the 128 bits of the row. So a
position is the same place whatever changes between two pages, and equal rows are told as often as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.reading.access import Access, Condition
from headrace.reading.ranks import of_rank, ranks
from headrace.reading.walk import Walk, arrangement_of, is_made
from headrace.state.delta import Delta, gather
from headrace.state.hashing import hash_columns
from headrace.state.state import State

Ranks = tuple[Any, ...]


@dataclass(frozen=True)
class Position:
    """A row's place in the order; where that is not of it alone, its 128 bits, and how often that row was told."""

    ranks: Ranks
    identity: tuple[int, int]
    times: int


@dataclass(frozen=True, eq=False)
class Page:
    """Rows in order, the place of each, and whether others follow."""

    rows: pa.Table
    position: Callable[[int], Position]
    more: bool

    @property
    def positions(self) -> list[Position]:
        """The places of all rows."""
        return [self.position(index) for index in range(self.rows.num_rows)]


@dataclass(frozen=True)
class Wanted:
    """Which rows: so many after a position, or so far from the first, with some columns."""

    access: Access
    # Whether the order's columns tell all rows apart: then a row that changed elsewhere still stands where it stood.
    keyed: bool
    conditions: tuple[Condition, ...]
    fields: tuple[str, ...]
    limit: int
    offset: int = 0
    after: Position | None = None


def read_page(state: State, schema: StructType, wanted: Wanted) -> Page:
    """The rows that are wanted."""
    reading = _Reading(schema, state.schema, wanted)
    if wanted.access.kind == "index":
        return _along_index(state, reading, wanted)
    return reading.page(_found(state, reading, wanted), wanted.offset)


def is_ready(state: State, schema: StructType, access: Access) -> bool:
    """Whether no index has to be made before rows are found this way."""
    return access.kind == "key" or (access.kind == "index" and is_made(arrangement_of(state, schema, access)))


def make_ready(state: State, schema: StructType, access: Access) -> None:
    """Make the index that this way needs."""
    if access.kind == "index":
        _ = arrangement_of(state, schema, access).parts


def _found(state: State, reading: _Reading, wanted: Wanted) -> Delta:
    if wanted.access.kind == "scan":
        return state.all(reading.columns)
    values = {one.column: one.value for one in wanted.conditions if one.operator == "eq"}
    key = wanted.access.equal
    hashes = hash_columns([reading.array(name, values[name]) for name in key], 1)
    return state.lookup(tuple(reading.places[name] for name in key), hashes, reading.columns)


def _along_index(state: State, reading: _Reading, wanted: Wanted) -> Page:
    """Stretch after stretch of the index, until there are rows enough."""
    walk = Walk(state, reading.schema, wanted.access, wanted.conditions)
    skipped = 0
    if wanted.after is not None:
        names = [one.name for one in wanted.access.order]
        walk.begin_at([of_rank(*one) for one in zip(wanted.after.ranks, map(reading.type_of, names), strict=True)])
    elif wanted.offset and walk.exact:
        skipped = walk.skip(wanted.offset)
    left = wanted.offset - skipped
    held: list[Delta] = []
    page = None
    while page is None or not page.more:
        found = walk.next(left + wanted.limit + 1, reading.columns)
        if found is None:
            break
        held.append(found)
        page = reading.page(held[0] if len(held) == 1 else _joined(held), left)
    return reading.nothing() if page is None else page


def _joined(parts: Sequence[Delta]) -> Delta:
    """Stretches of an index one after the other: no row is in two of them."""
    return Delta(
        pa.concat_tables([part.rows for part in parts]).combine_chunks(),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
    )


class _Reading:
    """What is looked at in each row, and how a page is cut from candidates."""

    def __init__(self, schema: StructType, types: pa.Schema, wanted: Wanted) -> None:
        self.schema = schema
        self.places = {name: index for index, name in enumerate(schema.names)}
        self._types = types
        self._wanted = wanted
        names = [*wanted.fields, *(one.name for one in wanted.access.order), *(one.column for one in wanted.conditions)]
        self._read = list(dict.fromkeys(names))
        self.columns = [self.places[name] for name in self._read]

    def type_of(self, name: str) -> pa.DataType:
        return self._types.field(self.places[name]).type

    def array(self, name: str, value: Any) -> pa.Array:
        return pa.array([value], self.type_of(name))

    def nothing(self) -> Page:
        rows = pa.table([pa.array([], self.type_of(name)) for name in self._wanted.fields], names=self._wanted.fields)
        return Page(rows, _nowhere, False)

    def page(self, found: Delta, skipped: int) -> Page:
        """The rows of the page among those found, which are all up to some place in the order."""
        wanted = self._wanted
        there = np.flatnonzero(found.weights > 0)
        if not len(there):
            return self.nothing()
        if len(there) < len(found):
            found = gather(found, there)
        by_name = {name: found.rows.column(index) for index, name in enumerate(self._read)}
        chosen = self._fitting(by_name, len(found))
        order = [ranks(by_name[one.name]) for one in wanted.access.order]
        low, high, weights = found.low.tolist(), found.high.tolist(), found.weights.tolist()
        if not wanted.keyed:
            chosen.sort(key=lambda row: (low[row], high[row]))
        for column, values in reversed(list(zip(wanted.access.order, order, strict=True))):
            chosen.sort(key=_largest_null(values), reverse=column.descending)
        # The rows, and how often each has been told with it.
        told: list[int] = []
        times: list[int] = []
        most = skipped + wanted.limit + 1
        for row in chosen:
            before = 0
            if wanted.after is not None:
                place = tuple(values[row] for values in order)
                before = _told(wanted, place, (low[row], high[row]), wanted.after)
            if before >= 0:
                count = min(weights[row] - before, most - len(told))
                told.extend([row] * count)
                times.extend(range(before + 1, before + count + 1))
            if len(told) == most:
                break

        def position(index: int) -> Position:
            row = told[skipped + index]
            place = tuple(values[row] for values in order)
            return Position(place, (0, 0) if wanted.keyed else (low[row], high[row]), times[skipped + index])

        cut = slice(skipped, skipped + wanted.limit)
        rows = pa.table([by_name[name] for name in wanted.fields], names=wanted.fields)
        # Along an index they mostly come as they are wanted.
        if told[cut] != list(range(rows.num_rows)):
            rows = rows.take(pa.array(told[cut], pa.int64()))
        return Page(rows, position, len(told) == most)

    def _fitting(self, by_name: Mapping[str, pa.ChunkedArray], count: int) -> list[int]:
        """The rows that meet every condition exactly; an index may have found some that do not."""
        chosen = list(range(count))
        for one in self._wanted.conditions:
            values = ranks(by_name[one.column])
            value = ranks(pa.chunked_array([self.array(one.column, one.value)]))[0]
            chosen = [row for row in chosen if values[row] is not None and _meets(one.operator, values[row], value)]
        return chosen


def _nowhere(_: int) -> Position:
    raise IndexError("a page without rows")


def _largest_null(values: Sequence[Any]) -> Callable[[int], tuple[bool, Any]]:
    return lambda row: (values[row] is None, values[row])


def _meets(operator: str, left: Any, right: Any) -> bool:
    match operator:
        case "eq":
            return bool(left == right)
        case "gt":
            return bool(left > right)
        case "gte":
            return bool(left >= right)
        case "lt":
            return bool(left < right)
        case _:
            return bool(left <= right)


def _told(wanted: Wanted, place: Ranks, identity: tuple[int, int], after: Position) -> int:
    """How often a row was told before a position: -1 if it stands before it."""
    for column, mine, theirs in zip(wanted.access.order, place, after.ranks, strict=True):
        if mine == theirs:
            continue
        larger = mine is None or (theirs is not None and mine > theirs)
        return 0 if larger != column.descending else -1
    if wanted.keyed:
        return -1
    if identity == after.identity:
        return after.times
    return 0 if identity > after.identity else -1
