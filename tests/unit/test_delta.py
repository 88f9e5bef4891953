"""Deltas are multisets with signs: they add up as a counter does, and equal rows are one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.state.delta import Delta, combine, concat, consolidate, empty, negate, number_identities, weights_of
from headrace.state.hashing import identity

FIXED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string())])

Signed = list[tuple[tuple[int | None, str | None], int]]
rows = st.tuples(st.none() | st.integers(0, 2), st.none() | st.sampled_from(["", "a"]))
signed = st.lists(st.tuples(rows, st.integers(-3, 3)), max_size=12)


def table(some: Signed) -> pa.Table:
    return pa.table([pa.array(column, kind) for column, kind in zip(columns(some), SCHEMA.types, strict=True)], SCHEMA)


def columns(some: Signed) -> tuple[list[Any], list[Any]]:
    return [row[0] for row, _ in some], [row[1] for row, _ in some]


def delta(some: Signed) -> Delta:
    return consolidate(table(some), weights_of([weight for _, weight in some]))


def counted(some: Signed) -> dict[Any, int]:
    """The naive sum."""
    total: Counter[Any] = Counter()
    for row, weight in some:
        total[row] += weight
    return {row: weight for row, weight in total.items() if weight}


def content(one: Delta) -> dict[Any, int]:
    """What a delta says; every promise of its shape holds."""
    found = [tuple(row.values()) for row in one.rows.to_pylist()]
    assert len(one) == len(found) == len(set(found)) == len(one.low) == len(one.high)
    assert one.weights.dtype == np.int64
    assert 0 not in one.weights
    low, high = identity(one.rows.columns, len(one))
    assert low.tolist() == one.low.tolist()
    assert high.tolist() == one.high.tolist()
    return dict(zip(found, one.weights.tolist(), strict=True))


@pytest.mark.thorough
@settings(FIXED, max_examples=300)
@given(signed)
def test_weights_of_equal_rows_are_summed(some: Signed) -> None:
    assert content(delta(some)) == counted(some)


@settings(FIXED, max_examples=100)
@given(signed)
def test_rows_keep_the_order_in_which_they_first_came(some: Signed) -> None:
    kept = counted(some)
    assert list(content(delta(some))) == [row for row in dict.fromkeys(row for row, _ in some) if row in kept]


@pytest.mark.thorough
@settings(FIXED, max_examples=200)
@given(st.lists(signed, max_size=5))
def test_a_sum_of_deltas_is_the_delta_of_all(parts: list[Signed]) -> None:
    assert content(concat(SCHEMA, [delta(part) for part in parts])) == counted([one for part in parts for one in part])


@settings(FIXED, max_examples=100)
@given(signed)
def test_a_delta_and_its_negative_are_nothing(some: Signed) -> None:
    one = delta(some)
    assert content(negate(one)) == {row: -weight for row, weight in content(one).items()}
    nothing = concat(SCHEMA, [one, negate(one)])
    assert len(nothing) == 0
    assert nothing.rows.num_rows == 0
    assert nothing.rows.schema == SCHEMA


def test_known_identities_decide_what_is_equal() -> None:
    rows = table([((1, "a"), 1), ((2, "b"), 1), ((3, "c"), 1)])
    low = np.array([7, 7, 7], dtype=np.uint64)
    high = np.array([1, 2, 1], dtype=np.uint64)
    one = combine(rows, weights_of([1, 1, 4]), low, high)
    assert one.rows.to_pylist() == [{"c0": 1, "c1": "a"}, {"c0": 2, "c1": "b"}]
    assert one.weights.tolist() == [5, 1]
    assert one.high.tolist() == [1, 2]


def test_a_zero_weight_is_dropped_even_alone() -> None:
    assert len(delta([((1, "a"), 0)])) == 0
    assert content(delta([((1, "a"), 0), ((2, "a"), 1)])) == {(2, "a"): 1}


def test_nothing_has_its_schema() -> None:
    assert len(empty(SCHEMA)) == 0
    assert empty(SCHEMA).rows.schema == SCHEMA
    assert concat(SCHEMA, []).rows.schema == SCHEMA
    assert concat(SCHEMA, [empty(SCHEMA), empty(SCHEMA)]).rows.schema == SCHEMA


@pytest.mark.parametrize(
    ("weights", "total"),
    [([1, 2, 4], [7]), ([1, -1, 0], []), ([3], [3]), ([], []), ([-1], [-1])],
)
def test_rows_without_columns_are_one_row(weights: list[int], total: list[int]) -> None:
    bare = pa.table({"gone": weights}).select([])
    one = consolidate(bare, weights_of(weights))
    assert one.weights.tolist() == total
    assert len(one) == len(one.low) == len(one.high) == len(total)
    assert concat(pa.schema([]), [one, one]).weights.tolist() == [2 * weight for weight in total]
    assert len(concat(pa.schema([]), [one, negate(one)])) == 0


@settings(FIXED, max_examples=200)
@given(st.lists(rows, max_size=12))
def test_groups_are_numbered_once_each(some: list[tuple[int | None, str | None]]) -> None:
    firsts, numbers = number_identities(*identity(table([(row, 1) for row in some]).columns, len(some)))
    assert [some[firsts[number]] for number in numbers] == some
    assert sorted(numbers[firsts]) == list(range(len(set(some))))
    assert all(some.index(some[first]) == first for first in firsts)
