"""Rows have equal identities exactly when Spark's GROUP BY would put them into one group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.state.hashing import hash_columns, identity, identity_of_one

FIXED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TAGS = pa.map_(pa.string(), pa.int32())
POINT = pa.struct([("x", pa.int32()), ("y", pa.float64())])


def identities(values: Sequence[Any], kind: pa.DataType) -> list[tuple[int, int]]:
    """The identity of each value, as the only column of a row."""
    return of_array(pa.array(values, type=kind))


def of_array(*columns: pa.Array | pa.ChunkedArray) -> list[tuple[int, int]]:
    low, high = identity(columns, len(columns[0]))
    return list(zip(low.tolist(), high.tolist(), strict=True))


@FIXED
@given(
    st.lists(
        st.tuples(st.sampled_from([pa.int8(), pa.int32(), pa.int64()]), st.integers(-128, 127))
        | st.tuples(st.just(pa.int64()), st.integers(-(2**63), 2**63 - 1) | st.none())
        | st.tuples(st.just(pa.string()), st.text(st.characters(codec="utf-8")) | st.none()),
        max_size=4,
    )
)
def test_one_row_has_the_identity_that_it_has_among_many(row: list[tuple[pa.DataType, Any]]) -> None:
    arrays = [pa.array([value], kind) for kind, value in row]
    low, high = identity(arrays, 1)
    assert identity_of_one(arrays) == (int(low[0]), int(high[0]))


def differ(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether all values have different identities, in each half of the bits too."""
    found = identities(values, kind)
    return all(len(set(half)) == len(values) for half in (*zip(*found, strict=True), found))


def same(values: Sequence[Any], kind: pa.DataType) -> bool:
    return len(set(identities(values, kind))) == 1


TYPES = [
    pytest.param(pa.bool_(), [False, True], id="boolean"),
    pytest.param(pa.int8(), [0, 1, -1, 127, -128], id="tinyint"),
    pytest.param(pa.int16(), [0, 1, -1, 2**15 - 1], id="smallint"),
    pytest.param(pa.int32(), [0, 1, -1, 2**31 - 1], id="int"),
    pytest.param(pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)], id="bigint"),
    pytest.param(pa.float32(), [0.0, 1.5, -1.5, math.inf, -math.inf, math.nan], id="float"),
    pytest.param(pa.float64(), [0.0, 5e-324, 1.5, -1.5, math.inf, -math.inf, math.nan], id="double"),
    pytest.param(pa.decimal128(10, 2), [Decimal("0.00"), Decimal("0.01"), Decimal("-0.01")], id="decimal"),
    pytest.param(
        pa.decimal128(38, 0),
        [Decimal(0), Decimal(1), Decimal(-1), Decimal(2**64), Decimal(-(2**64)), Decimal(10**37)],
        id="wide decimal",
    ),
    pytest.param(pa.string(), ["", " ", "a", "A", "ab", "ä", "a\u0308", "a\0"], id="string"),
    pytest.param(pa.large_string(), ["", "a", "b"], id="large string"),
    pytest.param(pa.binary(), [b"", b"\0", b"\0\0", b"a"], id="binary"),
    pytest.param(pa.large_binary(), [b"", b"a"], id="large binary"),
    pytest.param(pa.binary(2), [b"ab", b"ba"], id="fixed binary"),
    pytest.param(pa.date32(), [date(1970, 1, 1), date(1969, 12, 31), date(9999, 12, 31)], id="date"),
    pytest.param(pa.date64(), [date(1970, 1, 1), date(1969, 12, 31)], id="date of milliseconds"),
    pytest.param(pa.time32("s"), [time(0), time(0, 0, 1)], id="time of seconds"),
    pytest.param(pa.time64("us"), [time(0), time(0, 0, 0, 1)], id="time"),
    pytest.param(
        pa.timestamp("us", "UTC"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
        id="timestamp",
    ),
    pytest.param(pa.timestamp("us"), [datetime(1970, 1, 1), datetime(2024, 1, 1)], id="timestamp_ntz"),
    pytest.param(pa.duration("us"), [timedelta(0), timedelta(days=1), timedelta(microseconds=-1)], id="interval"),
    pytest.param(pa.list_(pa.int32()), [[], [None], [0], [1, 2], [2, 1], [1, 2, None]], id="array"),
    pytest.param(pa.large_list(pa.string()), [[], [""], ["a", "b"], ["ab"]], id="large array"),
    pytest.param(
        pa.list_(pa.list_(pa.int32())), [[], [[]], [[], []], [None], [[1], [2]], [[1, 2]]], id="array of arrays"
    ),
    pytest.param(TAGS, [[], [("a", 1)], [("a", None)], [("a", 2)], [("b", 1)], [("a", 1), ("b", 1)]], id="map"),
    pytest.param(POINT, [{"x": 1, "y": 2.0}, {"x": 2, "y": 1.0}, {"x": None, "y": None}], id="struct"),
    pytest.param(
        pa.list_(pa.struct([("m", TAGS)])),
        [[], [None], [{"m": None}], [{"m": []}], [{"m": [("a", 1)]}], [{"m": [("a", 2)]}]],
        id="deep",
    ),
]


@pytest.mark.parametrize(("kind", "values"), TYPES)
def test_every_type_tells_its_values_apart(kind: pa.DataType, values: list[Any]) -> None:
    assert differ([*values, None], kind)


@pytest.mark.parametrize(("kind", "values"), TYPES)
def test_equal_values_are_equal_wherever_they_stand(kind: pa.DataType, values: list[Any]) -> None:
    around = [*values, None, *reversed(values), None]
    found = identities(around, kind)
    assert found[: len(values)] == found[len(values) + 1 : -1][::-1]
    assert found[len(values)] == found[-1]
    assert found == [identities([value], kind)[0] for value in around]


@pytest.mark.parametrize(("kind", "values"), TYPES)
def test_slices_and_chunks_hash_like_the_whole(kind: pa.DataType, values: list[Any]) -> None:
    around = [None, *values, None, *values]
    whole = pa.array(around, type=kind)
    found = of_array(whole)
    for start in range(len(around)):
        for stop in range(start, len(around) + 1):
            assert of_array(whole.slice(start, stop - start)) == found[start:stop]
    chunked = pa.chunked_array([whole.slice(0, 2), whole.slice(2, 0), whole.slice(2)])
    assert of_array(chunked) == found
    assert of_array(pa.chunked_array([], type=kind)) == []


@pytest.mark.parametrize(("kind", "values"), TYPES)
def test_no_rows_have_no_identities(kind: pa.DataType, values: list[Any]) -> None:
    assert identities([], kind) == []


def test_many_strings_hash_like_one() -> None:
    words = [f"word {i % 50}" for i in range(500)]
    assert identities(words, pa.string()) == [identities([word], pa.string())[0] for word in words]


def test_strings_of_every_length_hash_alike_in_any_company() -> None:
    words = ["", *(letter * length for length in range(1, 150) for letter in ("a", "\0", "ü"))]
    alone = [identities([word], pa.string())[0] for word in words]
    assert identities(words, pa.string()) == alone
    assert identities(words[::-1], pa.large_string()) == alone[::-1]
    assert identities([word.encode() for word in words], pa.binary()) == alone
    assert differ(words, pa.string())


def test_strings_that_differ_in_a_bit_or_two_differ_in_each_half() -> None:
    rng = np.random.default_rng(1)
    text = rng.integers(0, 256, 24, dtype=np.uint8)
    bits = np.unpackbits(text)
    flips = [(i, j) for i in range(len(bits)) for j in range(i, len(bits))]
    near = np.tile(bits, (len(flips), 1))
    for row, (i, j) in zip(near, flips, strict=True):
        row[i] ^= 1
        row[j] ^= i != j
    assert differ([text.tobytes(), *(one.tobytes() for one in np.packbits(near, axis=1))], pa.binary())


def test_identities_are_what_older_homes_wrote() -> None:
    assert of_array(pa.array(["a", "Zürich", None, ""]), pa.array([1, None, -3, 2**40])) == [
        (17190813996687111, 13023386404448408430),
        (5645843000105188642, 3682362307797308349),
        (14166935974095014317, 14434121073260215810),
        (2298691080777538709, 8491463111913559179),
    ]


def test_null_equals_null_and_nan_equals_nan() -> None:
    assert same([None, None], pa.int32())
    other_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    assert same([math.nan, -math.nan, *other_nan], pa.float64())
    assert same([math.nan, -math.nan], pa.float32())


def test_the_two_zeros_are_equal_at_any_depth() -> None:
    assert same([0.0, -0.0], pa.float64())
    assert same([0.0, -0.0], pa.float32())
    assert same([[0.0], [-0.0]], pa.list_(pa.float64()))
    assert same([{"x": 1, "y": 0.0}, {"x": 1, "y": -0.0}], POINT)
    assert same([[("a", 0.0)], [("a", -0.0)]], pa.map_(pa.string(), pa.float64()))


def test_maps_are_equal_by_their_entries() -> None:
    assert same([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)]], TAGS)
    assert differ([[("a", 1), ("b", 2)], [("a", 2), ("b", 1)]], TAGS)
    assert same([[[("a", 1), ("b", 2)]], [[("b", 2), ("a", 1)]]], pa.list_(TAGS))


def test_integers_meet_whatever_their_width() -> None:
    for value in (0, 1, -1, 127, -128):
        found = {identities([value], kind)[0] for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())}
        assert len(found) == 1


def test_what_lies_under_a_null_does_not_count() -> None:
    under = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\x00"), pa.py_buffer(np.int32([5, 6]).tobytes())])
    assert of_array(under) == identities([None, None], pa.int32())
    points = pa.StructArray.from_arrays(
        [pa.array([1, 2], pa.int32()), pa.array([1.0, 2.0])], fields=list(POINT), mask=pa.array([True, True])
    )
    assert of_array(points) == identities([None, None], POINT)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array([1, 2, 3]), mask=pa.array([True, True]))
    assert of_array(lists) == identities([None, None], pa.list_(pa.int64()))


def test_a_missing_struct_is_not_a_struct_of_nulls() -> None:
    assert differ([None, {"x": None, "y": None}], POINT)


def test_dictionaries_hash_like_their_values() -> None:
    plain = pa.array(["a", None, "b", "a"])
    assert of_array(plain.dictionary_encode()) == of_array(plain)


def test_a_column_of_nothing_is_all_null() -> None:
    assert of_array(pa.nulls(2)) == identities([None, None], pa.string())


def test_columns_count_by_their_place() -> None:
    one, two = pa.array([1, 2]), pa.array([2, 1])
    assert len(set(of_array(one, two))) == 2
    assert of_array(one, two)[0] == of_array(two, one)[1]
    assert of_array(pa.array(["a"]), pa.array(["bc"])) != of_array(pa.array(["ab"]), pa.array(["c"]))
    assert of_array(pa.array([None, "a"]), pa.array(["a", None]))[0] != of_array(pa.array(["a"]), pa.nulls(1))[0]


def test_rows_without_columns_are_all_equal() -> None:
    low, high = identity([], 3)
    assert len(set(low.tolist())) == len(set(high.tolist())) == 1
    assert [len(half) for half in identity([], 0)] == [0, 0]


def test_the_halves_are_not_the_same_bits() -> None:
    columns = [pa.array([1, 2, None])]
    low, high = identity(columns, 3)
    assert not np.any(low == high)
    assert np.array_equal(low, hash_columns(columns, 3))


def mark(value: Any) -> Any:
    """A value as Python compares it, made to follow Spark's equality."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return ("list", *map(mark, value))
    if isinstance(value, dict):
        return ("map", frozenset((mark(key), mark(one)) for key, one in value.items()))
    return value


ROW = pa.schema(
    [
        ("i", pa.int64()),
        ("d", pa.float64()),
        ("n", pa.decimal128(20, 2)),
        ("s", pa.string()),
        ("l", pa.list_(pa.float64())),
        ("m", TAGS),
    ]
)
doubles = st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, math.inf, 1e300])
rows = st.tuples(
    st.none() | st.integers(-2, 2) | st.integers(-(2**63), 2**63 - 1),
    st.none() | doubles,
    st.none() | st.integers(-2, 2).map(Decimal),
    st.none() | st.sampled_from(["", "a", "b"]),
    st.none() | st.lists(st.none() | doubles, max_size=2),
    st.none() | st.dictionaries(st.sampled_from(["a", "b", "c"]), st.none() | st.integers(0, 1), max_size=2),
)


@pytest.mark.thorough
@settings(FIXED, max_examples=300)
@given(st.lists(rows, max_size=12), st.integers(0, 5), st.permutations(range(6)))
def test_rows_are_equal_exactly_when_their_identities_are(
    some: list[tuple[Any, ...]], start: int, order: list[int]
) -> None:
    content = [
        (*row[:5], None if row[5] is None else list(row[5].items())) for row in [*some, *(row for row in some[::-1])]
    ]
    columns = [
        pa.array([row[index] for row in content], type=ROW.field(index).type).slice(min(start, len(content)))
        for index in order
    ]
    found = of_array(*columns)
    marks = [tuple(map(mark, row)) for row in [*some, *some[::-1]]][start:]
    for here, one in enumerate(marks):
        for there, other in enumerate(marks):
            assert (one == other) == (found[here] == found[there])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("distinct", [1, 3, 5000])
def test_strings_that_repeat_are_the_same_as_one_by_one(kind: pa.DataType, distinct: int) -> None:
    """A long column is hashed by its distinct values where they are few; nobody can tell."""
    values = [None if i % 11 == 0 else f"value {i % distinct}" for i in range(6000)]
    column = pa.array(values, type=kind)
    alone = {value: of_array(pa.array([value], type=kind))[0] for value in set(values)}
    assert of_array(column) == [alone[value] for value in values]
    assert of_array(column.slice(7, 3000)) == of_array(column)[7:3007]
    assert of_array(pa.nulls(6000, kind)) == [alone[None]] * 6000
    numbered = column.dictionary_encode()
    assert of_array(numbered) == of_array(column)
