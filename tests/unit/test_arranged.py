"""A slice of a partition is found among signed runs as if the partition had been read whole."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.state.arranged import Arrangement, Order, OrderColumn, ends_of, moved, sort_keys, starts_of
from headrace.state.delta import consolidate, weights_of
from headrace.state.extremes import sort_key
from headrace.state.run import Run

Draw = Callable[[random.Random], Any]

KINDS: list[Any] = [
    pytest.param(pa.int8(), lambda c: c.randrange(-128, 128), id="tinyint"),
    pytest.param(pa.int64(), lambda c: c.choice([-(2**63), -1, 0, 1, 2**63 - 1, 2**53 + c.randrange(3)]), id="bigint"),
    pytest.param(pa.bool_(), lambda c: c.random() < 0.5, id="boolean"),
    pytest.param(
        pa.float64(), lambda c: c.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 5e-324]), id="double"
    ),
    pytest.param(pa.float32(), lambda c: c.choice([math.nan, 0.5, -0.5, 0.0, -0.0, 2.0]), id="float"),
    pytest.param(pa.decimal128(9, 2), lambda c: Decimal(c.randrange(-300, 300)).scaleb(-2), id="decimal"),
    pytest.param(
        pa.decimal128(38, 4),
        lambda c: Decimal(c.choice([-1, 1]) * (2 ** c.choice([10, 63, 64, 100]) + c.randrange(3))).scaleb(-4),
        id="wide decimal",
    ),
    pytest.param(pa.date32(), lambda c: date(1970, 1, 1) + timedelta(days=c.randrange(-9, 9)), id="date"),
    pytest.param(
        pa.timestamp("us", "UTC"),
        lambda c: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=c.randrange(-9, 9)),
        id="timestamp",
    ),
    pytest.param(pa.string(), lambda c: c.choice(["", "a", "B", "é", "a ", "zz"]) + "x" * c.randrange(3), id="string"),
    pytest.param(pa.binary(), lambda c: bytes([255, 1, c.randrange(1, 4)])[: c.randrange(4)], id="binary"),
]


def compared(left: Any, right: Any, column: OrderColumn) -> int:
    """How Spark orders two values of one column."""
    if (left is None) != (right is None):
        return -1 if (left is None) == column.nulls_first else 1
    one, other = sort_key(left), sort_key(right)
    return ((one > other) - (one < other)) * (-1 if column.descending else 1)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize(("kind", "draw"), KINDS)
def test_sort_keys_compare_as_spark_compares(
    kind: pa.DataType, draw: Draw, nulls_first: bool, descending: bool
) -> None:
    chance = random.Random(1)
    values = [None if chance.random() < 0.2 else draw(chance) for _ in range(40)]
    column = OrderColumn(0, descending, nulls_first)
    rows = pa.table([pa.chunked_array([pa.array(values[:15], kind), pa.array(values[15:], kind)])], names=["c0"])
    keys = sort_keys(rows, Order((), (column,)))
    for i, left in enumerate(values):
        for j, right in enumerate(values):
            wanted = compared(left, right, column)
            assert (keys[i] > keys[j]) - (keys[i] < keys[j]) == wanted, (left, right)


def test_long_strings_are_cut_but_never_out_of_order() -> None:
    values = ["x" * 40 + "a", "x" * 40 + "b", "x" * 39, "x" * 31 + "y"]
    keys = sort_keys(pa.table([values], names=["c0"]), Order((), (OrderColumn(0, False, True),)))
    assert keys[0] == keys[1] == keys[2]
    assert keys[3] > keys[0]


def test_a_key_is_moved_along_its_order_and_stops_at_the_end_of_its_type() -> None:
    def keys(values: list[int | None], descending: bool) -> Any:
        rows = pa.table([pa.array(values, pa.int64())], names=["c0"])
        return sort_keys(rows, Order((), (OrderColumn(0, descending, True),)))

    for descending, sign in ((False, 1), (True, -1)):
        start = keys([5, -3, None], descending)
        assert list(moved(start, 4)) == list(keys([5 + 4 * sign, -3 + 4 * sign, None], descending))
        assert list(moved(start, -4)) == list(keys([5 - 4 * sign, -3 - 4 * sign, None], descending))
    assert list(moved(keys([2**63 - 2], False), 2**70)) == list(keys([2**63 - 1], False))
    ends = ends_of(keys([1], False))
    assert list(moved(ends, -7)) == list(ends)


SCHEMA = pa.schema([("c0", pa.string()), ("c1", pa.int32()), ("c2", pa.int64())])
ORDER = Order((0,), (OrderColumn(1, False, True),))
Row = tuple[Any, ...]


def filled(chance: random.Random, epochs: int) -> tuple[Arrangement, list[Row]]:
    """The runs of some epochs of inserts and deletes, and the rows that they must amount to."""
    runs, rows = list[Run](), list[Row]()
    for _ in range(epochs):
        changes: list[tuple[Row, int]] = []
        for _ in range(chance.randrange(1, 30)):
            if rows and chance.random() < 0.4:
                changes.append((rows.pop(chance.randrange(len(rows))), -1))
            else:
                row = (
                    chance.choice(["a", "b", None]),
                    None if chance.random() < 0.1 else chance.randrange(12),
                    None if chance.random() < 0.2 else chance.choice([-1, 2, 2**62]),
                )
                rows.append(row)
                changes.append((row, 1))
        columns = [pa.array([row[i] for row, _ in changes], SCHEMA.field(i).type) for i in range(3)]
        runs.append(Run(consolidate(pa.table(columns, schema=SCHEMA), weights_of([weight for _, weight in changes]))))
    return Arrangement(ORDER, SCHEMA, tuple(runs)), rows


def keys_of(rows: list[Row]) -> Any:
    columns = [pa.array([row[i] for row in rows], SCHEMA.field(i).type) for i in range(3)]
    return sort_keys(pa.table(columns, schema=SCHEMA), ORDER)


@pytest.mark.parametrize("seed", range(12))
def test_slices_counts_sums_and_walks_equal_those_of_the_rows(seed: int) -> None:
    chance = random.Random(seed)
    held, rows = filled(chance, 12)
    probes: list[Row] = [(g, v, 0) for g in ("a", "b", None, "absent") for v in (None, 0, 3, 7, 11, 99)]
    keys, all_keys = keys_of(probes), keys_of(rows)
    starts, ends = starts_of(keys), ends_of(keys)
    for i, key in enumerate(keys):
        own = [(k, row) for k, row in zip(all_keys, rows, strict=True) if starts[i] <= k <= ends[i]]
        own.sort(key=cmp_to_key(lambda x, y: (x[0] > y[0]) - (x[0] < y[0])))
        earlier, later = [pair for pair in own if pair[0] < key], [pair for pair in own if pair[0] > key]
        one = keys[i : i + 1]
        assert held.sizes(one)[0] >= len({row for _, row in own})
        assert held.counts_before(one)[0] == len(earlier)
        values = [row[2] for _, row in earlier if row[2] is not None]
        assert held.values_before(one, 2)[0] == len(values)
        assert held.sums_before(one, 2)[0] == sum(values)
        found = held.rows(one, ends_of(one), [2, 1])
        assert int(found.weights.sum()) == len(own) - len(earlier)
        for count in (1, 2, 5, 40):
            back = earlier[-count][0] if len(earlier) >= count else starts[i]
            on = later[count - 1][0] if len(later) >= count else ends[i]
            assert held.behind(one, count)[0] == back
            assert held.ahead(one, count)[0] == on
            distinct = sorted({k for k, _ in own})
            last = distinct[count - 1] if len(distinct) >= count else ends[i]
            assert held.ahead(starts[i : i + 1], count, distinct=True, inclusive=True)[0] == last


def test_ranges_are_read_from_all_runs_and_cancelled_rows_are_not_seen() -> None:
    chance = random.Random(99)
    held, rows = filled(chance, 20)
    probes = keys_of([("a", 2, 0), ("a", 5, 0), ("b", 7, 0), ("b", 7, 0)])
    found = held.rows(probes[[0, 2]], probes[[1, 3]], [0, 1, 2])
    expected = [
        r for r in rows if r[1] is not None and ((r[0] == "a" and 2 <= r[1] <= 5) or (r[0] == "b" and r[1] == 7))
    ]
    repeated = found.rows.take(pa.array(np.repeat(np.arange(len(found)), found.weights)))
    assert sorted(zip(*(c.to_pylist() for c in repeated.columns), strict=True), key=repr) == sorted(expected, key=repr)


def test_a_walk_over_cancelled_rows_misses_none_behind_them() -> None:
    def run(orders: Sequence[int], weight: int, own: int) -> Run:
        columns = [["a"] * len(orders), list(orders), [own] * len(orders)]
        return Run(consolidate(pa.table(columns, schema=SCHEMA), weights_of([weight] * len(orders))))

    runs = (run([0, 100, 200], 1, 1), run(range(200), 1, 2), run(range(160, 200), -1, 2), run(range(0, 30), -1, 2))
    held = Arrangement(ORDER, SCHEMA, runs)
    last, first = keys_of([("a", 201, 0)]), keys_of([("a", None, 0)])
    assert list(held.behind(last, 2)) == list(keys_of([("a", 159, 0)]))
    assert list(held.ahead(first, 2)) == list(keys_of([("a", 30, 0)]))
    assert list(held.ahead(first, 3, distinct=True)) == list(keys_of([("a", 31, 0)]))
