"""Pages of a relation, read from its state, are what a plain sort of all its rows says."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.errors import QueryError
from headrace.reading.access import Access, Condition, Index, IndexColumn, find_access, total
from headrace.reading.page import Page, Position, Wanted, is_ready, make_ready, read_page
from headrace.reading.ranks import rank_from_json, rank_to_json, ranks
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import consolidate, weights_of
from headrace.state.state import State
from headrace.state.store import Store

Draw = Callable[[random.Random], Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: list[tuple[DataType, Draw]] = [
    (LongType(), lambda dice: dice.randrange(-5, 5)),
    (StringType(), lambda dice: dice.choice(["", "a", "é", "zz"]) + "x" * dice.choice([0, 31, 40]) + dice.choice("ab")),
    (TimestampType(), lambda dice: BEGIN + timedelta(microseconds=dice.randrange(8))),
    (DecimalType(30, 2), lambda dice: Decimal(dice.randrange(-400, 400)).scaleb(-2)),
    (DoubleType(), lambda dice: dice.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.5])),
    (DateType(), lambda dice: date(2026, 1, dice.randrange(1, 6))),
    (BooleanType(), lambda dice: dice.random() < 0.5),
    (BinaryType(), lambda dice: bytes([dice.randrange(1, 4), 255, 1])),
]


def held(store_rows: list[tuple[Any, ...]], schema: StructType, dice: random.Random) -> State:
    """The rows in several runs, with others that came and went."""
    types = arrow_schema([field.dataType for field in schema.fields])
    store = Store("t", types)
    gone = [(10_000 + i, *row[1:]) for i, row in enumerate(store_rows[::3])]
    parts = [(row, 1) for row in [*store_rows, *gone]]
    dice.shuffle(parts)
    parts += [(row, -1) for row in gone]
    while parts:
        piece, parts = parts[:40], parts[40:]
        columns = [pa.array([row[i] for row, _ in piece], types.field(i).type) for i in range(len(schema))]
        store.add(consolidate(pa.table(columns, schema=types), weights_of([weight for _, weight in piece])))
    return store.snapshot()


def rank(value: Any) -> Any:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def expected(rows: list[tuple[Any, ...]], names: list[str], conditions: list[Condition], order: Index) -> list[Any]:
    """What a plain sort gives."""
    meets = {
        "eq": lambda a, b: a == b,
        "gt": lambda a, b: a > b,
        "gte": lambda a, b: a >= b,
        "lt": lambda a, b: a < b,
        "lte": lambda a, b: a <= b,
    }

    def fits(row: tuple[Any, ...]) -> bool:
        values = dict(zip(names, row, strict=True))
        return all(
            values[one.column] is not None and meets[one.operator](rank(values[one.column]), rank(one.value))
            for one in conditions
        )

    def compare(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
        for one in order:
            a, b = left[names.index(one.name)], right[names.index(one.name)]
            if rank(a) == rank(b):
                continue
            larger = a is None or (b is not None and rank(a) > rank(b))
            return (1 if larger else -1) * (-1 if one.descending else 1)
        return 0

    return sorted((row for row in rows if fits(row)), key=cmp_to_key(compare))


def comparable(rows: list[tuple[Any, ...]]) -> list[Any]:
    return [tuple(rank(value) for value in row) for row in rows]


def tuples(page: Page) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in page.rows.to_pylist()]


@pytest.mark.parametrize("seed", range(80))
def test_pages_are_what_a_sort_says(seed: int) -> None:
    dice = random.Random(seed)
    kinds = [dice.choice(KINDS), dice.choice(KINDS)]
    names = ["id", "a", "b"]
    schema = StructType(
        [StructField("id", LongType())] + [StructField(n, k) for n, (k, _) in zip("ab", kinds, strict=True)]
    )
    rows = [
        (i, *(None if dice.random() < 0.1 else draw(dice) for _, draw in kinds)) for i in range(dice.randrange(0, 150))
    ]
    state = held(rows, schema, dice)
    index = tuple(IndexColumn(name, dice.random() < 0.5) for name in dice.sample(["a", "b"], dice.randrange(1, 3)))
    rest, conditions = list(index), list[Condition]()
    draws = dict(zip("ab", (draw for _, draw in kinds), strict=True))
    if dice.random() < 0.4:
        first = rest.pop(0)
        conditions.append(Condition(first.name, "eq", draws[first.name](dice)))
    if rest and dice.random() < 0.5:
        operators = dice.sample(["gt", "gte", "lt", "lte"], dice.randrange(1, 3))
        conditions += [Condition(rest[0].name, one, draws[rest[0].name](dice)) for one in operators]  # type: ignore[arg-type]
    order = tuple(one.turned() if seed % 2 else one for one in rest)
    access = find_access(("id",), [index], conditions, order)
    assert access is not None
    assert access.kind == "index"
    wanted = comparable(expected(rows, names, conditions, access.order))
    limit = dice.choice([1, 3, 50])
    if dice.random() < 0.3:
        access = Access("scan", (), total(order, ("id",)))
        wanted = comparable(expected(rows, names, conditions, access.order))
    told: list[Any] = []
    after: Position | None = None
    for _ in range(len(rows) + 1):
        page = read_page(state, schema, Wanted(access, True, tuple(conditions), ("id", "a", "b"), limit, after=after))
        told += comparable(tuples(page))
        assert page.more == (len(told) < len(wanted))
        if not page.more:
            break
        after = page.positions[-1]
        kept = [rank_to_json(one) for one in after.ranks]
        read = [rank_from_json(one, pa_type(schema, by.name)) for one, by in zip(kept, access.order, strict=True)]
        assert tuple(read) == after.ranks
    assert told == wanted
    offset = dice.randrange(0, 30)
    page = read_page(state, schema, Wanted(access, True, tuple(conditions), ("id", "a", "b"), limit, offset))
    assert comparable(tuples(page)) == wanted[offset : offset + limit]
    assert page.more == (len(wanted) > offset + limit)


def pa_type(schema: StructType, name: str) -> pa.DataType:
    return arrow_schema([schema[name].dataType]).field(0).type


PAIRS = StructType([StructField("a", LongType()), StructField("b", StringType())])


def test_equal_rows_are_told_as_often_as_they_are_there_also_over_pages() -> None:
    rows = [(1, "x"), (1, "x"), (1, "x"), (1, "y"), (1, "y"), (2, "x")]
    state = held(rows, PAIRS, random.Random(1))
    access = find_access((), [(IndexColumn("a"),)], [], ())
    assert access is not None
    told: list[Any] = []
    after = None
    while True:
        page = read_page(state, PAIRS, Wanted(access, False, (), ("a", "b"), 2, after=after))
        told += tuples(page)
        if not page.more:
            break
        after = page.positions[-1]
    assert sorted(told) == sorted(rows)
    assert [row[0] for row in told] == [1, 1, 1, 1, 1, 2]


def test_a_row_that_changes_elsewhere_is_not_told_again_and_none_is_passed_over() -> None:
    rows = [(i, "old") for i in range(10)]
    access = find_access(("a",), [], [], ())
    assert access is not None
    first = read_page(held(rows, PAIRS, random.Random(1)), PAIRS, Wanted(access, True, (), ("a", "b"), 4))
    changed = [(i, "new") for i in range(10) if i not in (2, 5)]
    after = first.positions[-1]
    rest = read_page(
        held(changed, PAIRS, random.Random(2)), PAIRS, Wanted(access, True, (), ("a", "b"), 99, after=after)
    )
    assert [row[0] for row in tuples(rest)] == [4, 6, 7, 8, 9]


def test_a_key_is_looked_up_and_other_conditions_still_hold() -> None:
    state = held([(i, "even" if i % 2 == 0 else "odd") for i in range(100)], PAIRS, random.Random(3))
    for word, count in (("even", 1), ("odd", 0)):
        conditions = (Condition("a", "eq", 4), Condition("b", "eq", word))
        access = find_access(("a",), [], conditions, (IndexColumn("b"),))
        assert access is not None
        assert access.kind == "key"
        assert read_page(state, PAIRS, Wanted(access, True, conditions, ("a",), 9)).rows.num_rows == count


def test_an_index_is_made_once_and_new_rows_need_no_more() -> None:
    types = arrow_schema([field.dataType for field in PAIRS.fields])
    store = Store("t", types)
    many = pa.table([pa.array(range(20_000), pa.int64()), pa.array(["x"] * 20_000)], schema=types)
    store.add(consolidate(many, weights_of([1] * 20_000)))
    access = find_access(("a",), [], [], ())
    assert access is not None
    assert not is_ready(store.snapshot(), PAIRS, access)
    make_ready(store.snapshot(), PAIRS, access)
    store.add(consolidate(pa.table([pa.array([-1]), pa.array(["x"])], schema=types), weights_of([1])))
    assert is_ready(store.snapshot(), PAIRS, access)
    page = read_page(store.snapshot(), PAIRS, Wanted(access, True, (), ("a",), 2, offset=19_999))
    assert page.rows.column(0).to_pylist() == [19_998, 19_999]
    assert not page.more


def test_rows_that_begin_alike_by_the_ten_thousands_are_refused_and_not_read() -> None:
    types = arrow_schema([field.dataType for field in PAIRS.fields])
    store = Store("t", types)
    alike = [f"{'x' * 40}{i:06}" for i in range(30_000)]
    store.add(consolidate(pa.table([pa.array(range(30_000)), pa.array(alike)], schema=types), weights_of([1] * 30_000)))
    access = find_access((), [(IndexColumn("b"),)], [], ())
    assert access is not None
    with pytest.raises(QueryError, match="equal in the index"):
        read_page(store.snapshot(), PAIRS, Wanted(access, False, (), ("b",), 5))


@pytest.mark.parametrize(
    ("conditions", "order", "found"),
    [
        ([], [], ("a",)),
        ([Condition("user", "eq", 1)], [IndexColumn("at", True)], ("at", "a")),
        ([Condition("user", "eq", 1)], [IndexColumn("at")], ("at", "a")),
        ([Condition("user", "eq", 1), Condition("at", "lt", 1)], [], ("at", "a")),
        ([Condition("user", "eq", 1)], [IndexColumn("user"), IndexColumn("at", True)], ("at", "a")),
        ([Condition("at", "lt", 1)], [], None),
        ([Condition("user", "eq", 1)], [IndexColumn("name")], None),
        ([Condition("user", "gt", 1)], [IndexColumn("at")], None),
        ([Condition("name", "eq", "x")], [], None),
        ([], [IndexColumn("user"), IndexColumn("at")], None),
        ([], [IndexColumn("user", True), IndexColumn("at")], ("user", "at", "a")),
    ],
)
def test_which_index_serves(
    conditions: list[Condition], order: list[IndexColumn], found: tuple[str, ...] | None
) -> None:
    access = find_access(("a",), [(IndexColumn("user"), IndexColumn("at", True))], conditions, order)
    assert (None if access is None else tuple(one.name for one in access.order)) == found


def test_ranks_of_what_python_cannot_hold() -> None:
    far = pa.chunked_array([pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))])
    assert ranks(far) == [2**62]
    for wrong in ["x", 1.5, True, 2**70, [1]]:
        with pytest.raises(ValueError, match=r"."):
            rank_from_json(wrong, pa.int64())
