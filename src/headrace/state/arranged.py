"""A relation arranged by partition and order: a slice of one partition is found without reading the rest of it.

Every row has a sort key of fixed width: the 128 bits of its partition, then its order columns as bytes that compare as
Spark compares the values (NULL where the order says, NaN above every number, 0.0 equal to -0.0, strings by their
bytes). Strings are cut, so rows with equal sort keys may still differ in order, but no two keys are ever out of order:
whoever cuts a partition must cut between sort keys. Cancelled rows need no pairing: the weights of a range of keys add
up to the number of its rows, and weighted values to their sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.state import mapped
from headrace.state.delta import Delta, Positions, Weights, concat, gather, project
from headrace.state.exact import Numbers, times, unscaled
from headrace.state.hashing import identity, identity_of_one
from headrace.state.run import Run, spans

SortKeys = npt.NDArray[np.bytes_]
Bytes = npt.NDArray[np.uint8]

PARTITION = 16
# Bytes of a text that a sort key has.
STRING = 32
_VALUE = 1
_SIGN = np.uint64(1 << 63)
_SAFE = 1 << 62


@dataclass(frozen=True)
class OrderColumn:
    """One column of an order."""

    index: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Order:
    """The columns that make a partition, and those that order it."""

    partition: tuple[int, ...]
    columns: tuple[OrderColumn, ...]


def sort_keys(rows: pa.Table, order: Order) -> SortKeys:
    """The sort key of each row."""
    low, high = identity([rows.column(i) for i in order.partition], rows.num_rows)
    parts = [_big_endian(low), _big_endian(high)]
    for column in order.columns:
        parts.extend(_column_bytes(rows.column(column.index), column))
    return _joined(parts)


def key_width(schema: pa.Schema, order: Order) -> int:
    """How many bytes a sort key has."""
    return PARTITION + sum(1 + _value_width(schema.field(column.index).type) for column in order.columns)


def _value_width(kind: pa.DataType) -> int:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return STRING
    return 16 if pa.types.is_decimal128(kind) and kind.precision > 18 else 8


def partition_bounds(values: Sequence[pa.Array], width: int) -> tuple[SortKeys, SortKeys]:
    """The start and the end of the partition of these values, of sort keys of a width."""
    partition = b"".join(half.to_bytes(8, "big") for half in identity_of_one(values))
    rest = width - PARTITION
    # Of bytes, not of a list of them: NumPy would cut the zeros at the end.
    start, end = (np.frombuffer(partition + byte * rest, dtype=f"S{width}") for byte in (b"\0", b"\xff"))
    return start, end


def _joined(parts: Sequence[Bytes]) -> SortKeys:
    matrix = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return matrix.view(f"S{matrix.shape[1]}").ravel()


def _matrix(keys: SortKeys) -> Bytes:
    return np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), keys.dtype.itemsize)


def _big_endian(values: npt.NDArray[np.uint64]) -> Bytes:
    return values.astype(">u8").view(np.uint8).reshape(len(values), 8)


def _column_bytes(column: pa.ChunkedArray, order: OrderColumn) -> list[Bytes]:
    """A byte that tells NULLs from values, and the bytes of the values, turned around where the order descends."""
    gone = np.asarray(column.is_null())
    flags = np.full((len(column), 1), _VALUE, dtype=np.uint8)
    flags[gone] = 0 if order.nulls_first else _VALUE + 1
    values = _value_bytes(column)
    if order.descending:
        values = ~values
    if column.null_count:
        values[gone] = 0
    return [flags, values]


def _value_bytes(column: pa.ChunkedArray) -> Bytes:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        filled = column.cast(pa.binary()).fill_null(b"")
        texts = np.asarray(filled.to_numpy(zero_copy_only=False), dtype=object).astype(f"S{STRING}")
        return _matrix(texts).copy()
    if pa.types.is_floating(kind):
        numbers = np.asarray(column.cast(pa.float64()).fill_null(0.0)).astype(np.float64) + 0.0
        bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
        return _big_endian(np.where(bits & _SIGN, ~bits, bits | _SIGN))
    if pa.types.is_decimal128(kind) and kind.precision > 18:
        array = column.combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        words = np.frombuffer(array.buffers()[1], dtype=np.uint64) if len(array) else np.zeros(0, dtype=np.uint64)
        words = words[array.offset * 2 : (array.offset + len(array)) * 2]
        return np.concatenate([_big_endian(words[1::2] ^ _SIGN), _big_endian(words[0::2].copy())], axis=1)
    return _big_endian(_whole_numbers(column).view(np.uint64) ^ _SIGN)


def _whole_numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Values of up to 64 bits as numbers: days, microseconds, and decimals times ten to their scale."""
    kind = column.type
    if pa.types.is_decimal128(kind):
        return unscaled(column).astype(np.int64)
    if pa.types.is_date(kind):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    return np.asarray(column.fill_null(0)).astype(np.int64)


def starts_of(keys: SortKeys) -> SortKeys:
    """The start of each key's partition: no key of the partition is smaller."""
    return _filled(keys, 0)


def ends_of(keys: SortKeys) -> SortKeys:
    """The end of each key's partition: every key of the partition is smaller."""
    return _filled(keys, 255)


def _filled(keys: SortKeys, byte: int) -> SortKeys:
    matrix = _matrix(keys).copy()
    matrix[:, PARTITION:] = byte
    return matrix.view(keys.dtype).ravel()


def moved(keys: SortKeys, distance: int) -> SortKeys:
    """Keys whose one order column, a whole number of 64 bits, stands so much further on in the order."""
    matrix = _matrix(keys).copy()
    numbers = matrix[:, PARTITION + 1 :].copy().view(">u8").ravel().astype(np.uint64)
    step = np.uint64(min(abs(distance), 2**64 - 1))
    with np.errstate(over="ignore"):
        shifted = numbers + step if distance > 0 else numbers - step
    beyond = shifted < numbers if distance > 0 else shifted > numbers
    shifted = np.where(beyond, np.uint64(2**64 - 1 if distance > 0 else 0), shifted)
    # NULLs, and the ends of a partition, stand nowhere in particular.
    valued = matrix[:, PARTITION] == _VALUE
    matrix[valued, PARTITION + 1 :] = _big_endian(shifted[valued])
    return matrix.view(keys.dtype).ravel()


@dataclass(frozen=True, eq=False)
class Arranged:
    """One run under one order."""

    keys: SortKeys
    positions: Positions
    counts: Weights
    sums: dict[int, Numbers] = field(default_factory=dict[int, Numbers])
    values: dict[int, Weights] = field(default_factory=dict[int, Weights])

    def sum_of(self, run: Run, column: int) -> Numbers:
        """The weighted sum of a column before each position."""
        found = self.sums.get(column)
        if found is None:
            numbers = unscaled(run.delta.rows.column(column))
            found = _running(times(numbers, run.delta.weights)[self.positions])
            self.sums[column] = found
        return found

    def values_of(self, run: Run, column: int) -> Weights:
        """How many values of a column, NULLs left out, stand before each position."""
        found = self.values.get(column)
        if found is None:
            present = np.asarray(run.delta.rows.column(column).is_valid())
            found = _running(np.where(present, run.delta.weights, np.int64(0))[self.positions])
            self.values[column] = found
        return found


def _running(values: Numbers) -> Numbers:
    """The sum before each position, and of all at last; exact, however large."""
    if values.dtype != object and len(values):
        peak = max(abs(int(values.max())), abs(int(values.min())))
        if peak * len(values) >= _SAFE:
            values = values.astype(object)
    total = np.zeros(len(values) + 1, dtype=values.dtype)
    np.cumsum(values, out=total[1:])
    return total if total.dtype == object else mapped.numbers(total)


def arrange(run: Run, order: Order) -> Arranged:
    """A run under an order; made when first asked for."""
    found = run.arranged.get(order)
    if found is None:
        with run.making:
            found = run.arranged.get(order)
            if found is None:
                keys = sort_keys(run.delta.rows, order)
                positions = np.argsort(keys, kind="stable")
                counts = _running(run.delta.weights[positions])
                found = Arranged(mapped.numbers(keys[positions]), mapped.numbers(positions), counts)
                run.arranged[order] = found
    return cast("Arranged", found)


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Runs that make up one relation, under one order."""

    order: Order
    schema: pa.Schema
    runs: tuple[Run, ...]

    def and_also(self, delta: Delta) -> Arrangement:
        """The same with one more run."""
        return Arrangement(self.order, self.schema, (*self.runs, Run(delta)))

    @property
    def parts(self) -> list[Arranged]:
        """Each run under the order."""
        return [arrange(run, self.order) for run in self.runs]

    def rows(self, starts: SortKeys, ends: SortKeys, columns: Sequence[int]) -> Delta:
        """The rows of the closed ranges of keys, which must not overlap."""
        found: list[Delta] = []
        for run, part in zip(self.runs, self.parts, strict=True):
            positions = part.positions[spans(*_range(part, starts, ends))]
            if len(positions):
                found.append(gather(project(run.delta, columns), positions))
        if len(found) == 1:
            return found[0]
        schema = pa.schema([pa.field(f"c{i}", self.schema.field(index).type) for i, index in enumerate(columns)])
        return concat(schema, found)

    def sizes(self, partitions: SortKeys) -> Positions:
        """How many signed rows each partition has: at least the number of its rows."""
        total = np.zeros(len(partitions), dtype=np.int64)
        starts, ends = starts_of(partitions), ends_of(partitions)
        for part in self.parts:
            low, high = _range(part, starts, ends)
            total += high - low
        return total

    def counts_before(self, keys: SortKeys) -> Weights:
        """How many rows of its partition stand before each key."""
        total = np.zeros(len(keys), dtype=np.int64)
        for part in self.parts:
            first, here = _positions_before(part, keys)
            total += part.counts[here] - part.counts[first]
        return total

    def sums_before(self, keys: SortKeys, column: int) -> Numbers:
        """The sum of a column over the rows of its partition that stand before each key."""
        total: Numbers = np.zeros(len(keys), dtype=object)
        for run, part in zip(self.runs, self.parts, strict=True):
            first, here = _positions_before(part, keys)
            sums = part.sum_of(run, column)
            total = total + (sums[here].astype(object) - sums[first].astype(object))
        return total

    def values_before(self, keys: SortKeys, column: int) -> Weights:
        """How many values of a column, NULLs left out, stand before each key in its partition."""
        total = np.zeros(len(keys), dtype=np.int64)
        for run, part in zip(self.runs, self.parts, strict=True):
            first, here = _positions_before(part, keys)
            values = part.values_of(run, column)
            total += values[here] - values[first]
        return total

    def behind(self, keys: SortKeys, rows: int) -> SortKeys:
        """For each key the one so many rows before it, or the start of its partition."""
        starts = starts_of(keys)
        parts = self.parts
        edges = [(np.searchsorted(p.keys, starts, "left"), np.searchsorted(p.keys, keys, "left")) for p in parts]
        return _walked(parts, edges, starts, rows, backward=True, distinct=False)

    def ahead(self, keys: SortKeys, rows: int, *, distinct: bool = False, inclusive: bool = False) -> SortKeys:
        """For each key the one so many rows (or distinct keys) after it, or the end of its partition."""
        ends = ends_of(keys)
        parts = self.parts
        side = "left" if inclusive else "right"
        edges = [(np.searchsorted(p.keys, keys, side), np.searchsorted(p.keys, ends, "right")) for p in parts]
        return _walked(parts, edges, ends, rows, backward=False, distinct=distinct)


def _range(part: Arranged, starts: SortKeys, ends: SortKeys) -> tuple[Positions, Positions]:
    return np.searchsorted(part.keys, starts, "left"), np.searchsorted(part.keys, ends, "right")


def _positions_before(part: Arranged, keys: SortKeys) -> tuple[Positions, Positions]:
    return np.searchsorted(part.keys, starts_of(keys), "left"), np.searchsorted(part.keys, keys, "left")


_Edges = Sequence[tuple[Positions, Positions]]


def _walked(
    parts: Sequence[Arranged], edges: _Edges, beyond: SortKeys, rows: int, *, backward: bool, distinct: bool
) -> SortKeys:
    found = beyond.copy()
    for i in range(len(beyond)):
        bounds = [(part, int(low[i]), int(high[i])) for part, (low, high) in zip(parts, edges, strict=True)]
        key = _walk([bound for bound in bounds if bound[1] < bound[2]], rows, backward, distinct)
        if key is not None:
            found[i] = key
    return found


def _walk(bounds: Iterable[tuple[Arranged, int, int]], rows: int, backward: bool, distinct: bool) -> Any:
    """The key at which so many rows have been passed, or None when there are fewer."""
    runs = list(bounds)
    chunk = rows + 8
    while runs:
        keys: list[SortKeys] = []
        weights: list[Weights] = []
        edge: Any = None
        for part, low, high in runs:
            first, last = (max(low, high - chunk), high) if backward else (low, min(high, low + chunk))
            keys.append(part.keys[first:last])
            weights.append(np.diff(part.counts[first : last + 1]))
            if last - first < high - low:
                # Keys from here on are not all at hand.
                stop = part.keys[first] if backward else part.keys[last - 1]
                edge = stop if edge is None else (max(edge, stop) if backward else min(edge, stop))
        distinct_keys, numbers = np.unique(np.concatenate(keys), return_inverse=True)
        counts = np.zeros(len(distinct_keys), dtype=np.int64)
        np.add.at(counts, numbers, np.concatenate(weights))
        if distinct:
            counts = (counts > 0).astype(np.int64)
        if backward:
            distinct_keys, counts = distinct_keys[::-1], counts[::-1]
        passed = np.flatnonzero(np.cumsum(counts) >= rows)
        if len(passed):
            key = distinct_keys[passed[0]]
            if edge is None or (key > edge if backward else key < edge):
                return key
        if edge is None:
            return None
        chunk *= 4
    return None
