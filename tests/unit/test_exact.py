"""Sums of integers and decimals are exact at any size, and say when they no longer fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.state.exact import decimals, plus, sum_by, times, unscaled

FIXED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG_MAX = 2**63 - 1

longs = st.integers(-3, 3) | st.integers(-(2**63), LONG_MAX) | st.sampled_from([LONG_MAX, -LONG_MAX - 1, 2**62])
whole = st.integers(-3, 3) | st.integers(-(10**38) + 1, 10**38 - 1)


def long_array(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


def decimal_array(values: list[int | None], scale: int = 0) -> pa.Array:
    exact = [None if value is None else Decimal(f"{value}E-{scale}") for value in values]
    return pa.array(exact, type=pa.decimal128(38, scale))


@settings(FIXED, max_examples=200)
@given(st.lists(st.none() | whole, max_size=8), st.integers(0, 20), st.integers(0, 8))
def test_decimals_are_whole_numbers_behind_a_scale(values: list[int | None], scale: int, start: int) -> None:
    array = decimal_array(values, scale)
    expected = [value or 0 for value in values]
    assert unscaled(array).tolist() == expected
    assert unscaled(array.slice(start)).tolist() == expected[start:]
    assert unscaled(pa.chunked_array([array.slice(0, 3), array.slice(3)])).tolist() == expected


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_integers_of_any_width_are_themselves(kind: pa.DataType) -> None:
    assert unscaled(pa.array([1, None, -128], kind)).tolist() == [1, 0, -128]
    assert unscaled(pa.array([1, None, -128], kind).slice(1)).tolist() == [0, -128]
    assert unscaled(pa.chunked_array([], kind)).tolist() == []


def test_what_lies_under_a_null_is_not_counted() -> None:
    words = np.array([7, 0, 8, 99], dtype=np.int64)
    array = pa.Array.from_buffers(pa.decimal128(38, 0), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(words.tobytes())])
    assert unscaled(array).tolist() == [7, 0]


def test_numbers_stay_in_64_bits_while_they_fit() -> None:
    assert unscaled(decimal_array([LONG_MAX, -LONG_MAX - 1])).dtype == np.int64
    assert unscaled(decimal_array([LONG_MAX + 1])).dtype == object
    assert plus(long_array([1]), long_array([2])).dtype == np.int64
    assert sum_by(long_array([1, 2]), long_array([0, 0]), 1).dtype == np.int64


@pytest.mark.thorough
@settings(FIXED, max_examples=300)
@given(st.lists(st.tuples(longs, longs), max_size=6))
def test_products_and_sums_of_longs_are_exact(pairs: list[tuple[int, int]]) -> None:
    left, right = long_array([a for a, _ in pairs]), long_array([b for _, b in pairs])
    assert times(left, right).tolist() == [a * b for a, b in pairs]
    assert plus(left, right).tolist() == [a + b for a, b in pairs]


@settings(FIXED, max_examples=200)
@given(st.lists(st.tuples(whole, longs), max_size=6))
def test_products_and_sums_of_wide_numbers_are_exact(pairs: list[tuple[int, int]]) -> None:
    left, right = unscaled(decimal_array([a for a, _ in pairs])), long_array([b for _, b in pairs])
    assert times(left, right).tolist() == [a * b for a, b in pairs]
    assert plus(right, left).tolist() == [a + b for a, b in pairs]


@settings(FIXED, max_examples=300)
@given(st.lists(st.tuples(longs | whole, st.integers(0, 3)), max_size=10))
def test_each_group_gets_its_own_exact_sum(some: list[tuple[int, int]]) -> None:
    numbers = unscaled(decimal_array([number for number, _ in some]))
    totals = sum_by(numbers, long_array([group for _, group in some]), 4)
    assert totals.tolist() == [sum(number for number, group in some if group == one) for one in range(4)]


def test_sums_beyond_64_bits_are_exact() -> None:
    totals = sum_by(long_array([LONG_MAX] * 5), long_array([0, 0, 0, 1, 1]), 2)
    assert totals.tolist() == [3 * LONG_MAX, 2 * LONG_MAX]
    assert plus(totals, long_array([-LONG_MAX, -LONG_MAX])).tolist() == [2 * LONG_MAX, LONG_MAX]


def test_no_rows_sum_to_zero() -> None:
    assert sum_by(long_array([]), long_array([]), 2).tolist() == [0, 0]
    assert times(long_array([]), long_array([])).tolist() == []


@settings(FIXED, max_examples=200)
@given(st.lists(whole, max_size=6), st.integers(0, 38))
def test_whole_numbers_become_decimals_and_come_back(values: list[int], scale: int) -> None:
    numbers = unscaled(decimal_array(values))
    column = decimals(numbers, pa.decimal128(38, scale))
    assert unscaled(column).tolist() == values
    column.validate(full=True)
    assert column.to_pylist() == [Decimal(f"{value}E-{scale}") for value in values]


@pytest.mark.parametrize("values", [[5, 0, -7], [10**30, 0, -(10**37)]])
def test_what_is_gone_becomes_null(values: list[int]) -> None:
    numbers = unscaled(decimal_array(values))
    column = decimals(numbers, pa.decimal128(38, 2), np.array([False, True, False]))
    assert column.is_null().to_pylist() == [False, True, False]
    assert unscaled(column).tolist() == values


@pytest.mark.parametrize("precision", [1, 5, 18, 19, 38])
def test_what_does_not_fit_overflows(precision: int) -> None:
    kind = pa.decimal128(precision, 1)
    largest = 10**precision - 1
    for sign in (1, -1):
        fits = np.array([sign * largest], dtype=object)
        assert unscaled(decimals(fits, kind)).tolist() == [sign * largest]
        with pytest.raises(OverflowError):
            decimals(np.array([0, sign * (largest + 1)], dtype=object), kind)
        if largest < LONG_MAX:
            assert unscaled(decimals(long_array([sign * largest]), kind)).tolist() == [sign * largest]
            with pytest.raises(OverflowError):
                decimals(long_array([0, sign * (largest + 1)]), kind)
