"""The extreme value of a group is found among signed runs as if the group had been read whole."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.state import extremes
from headrace.state.delta import consolidate, weights_of
from headrace.state.extremes import extreme, order_ranks, sort_key
from headrace.state.hashing import identity
from headrace.state.store import Store
from tests.thinned import thinned

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

Draw = Callable[[random.Random], Any]

POINT = pa.struct([("d", pa.float64()), ("s", pa.string())])
ROW = pa.struct([("by", pa.int32()), ("point", POINT), ("xs", pa.list_(pa.int32())), ("n", pa.decimal128(38, 18))])


def maybe(chance: random.Random, value: Any) -> Any:
    """The value, or NULL one time in four."""
    return None if chance.random() < 0.25 else value


def draw_row(chance: random.Random) -> dict[str, Any]:
    """A struct that often ties with others in its first fields."""
    point = {"d": maybe(chance, chance.choice([math.nan, 0.0, -0.0, math.inf])), "s": maybe(chance, "a")}
    return {
        "by": maybe(chance, chance.randrange(2)),
        "point": maybe(chance, point),
        "xs": maybe(chance, [maybe(chance, chance.randrange(2)) for _ in range(chance.randrange(3))]),
        "n": Decimal(10**30 + chance.randrange(2)).scaleb(-18),
    }


KINDS: list[Any] = [
    pytest.param(pa.int32(), lambda chance: chance.randrange(-20, 20), id="int"),
    pytest.param(pa.int64(), lambda chance: chance.choice([-1, 1]) * (2**53 + chance.randrange(12)), id="bigint"),
    pytest.param(pa.bool_(), lambda chance: chance.random() < 0.5, id="boolean"),
    pytest.param(pa.string(), lambda chance: "prefix in common " + chance.choice("abcdefäöü"), id="common prefix"),
    pytest.param(pa.string(), lambda chance: "a" * chance.randrange(12), id="growing string"),
    pytest.param(pa.binary(), lambda chance: bytes([255, 0, chance.randrange(4)])[: chance.randrange(4)], id="binary"),
    pytest.param(
        pa.float64(),
        lambda chance: chance.choice([math.nan, math.inf, -math.inf, 0.0, 1.5, -1.5, 5e-324]),
        id="double",
    ),
    pytest.param(pa.float32(), lambda chance: chance.choice([math.nan, 0.5, -0.5, 2.0]), id="float"),
    pytest.param(pa.decimal128(38, 18), lambda chance: Decimal(10**30 + chance.randrange(9)).scaleb(-18), id="decimal"),
    pytest.param(pa.date32(), lambda chance: date(1970, 1, 1) + timedelta(days=chance.randrange(-9, 9)), id="date"),
    pytest.param(
        pa.timestamp("us", "UTC"), lambda chance: EPOCH + timedelta(microseconds=chance.randrange(20)), id="timestamp"
    ),
    pytest.param(
        pa.timestamp("us"),
        lambda chance: datetime(9999, 1, 1) - timedelta(microseconds=chance.randrange(20)),
        id="timestamp_ntz",
    ),
    pytest.param(ROW, draw_row, id="struct"),
    pytest.param(
        pa.list_(POINT), lambda chance: [draw_row(chance)["point"] for _ in range(chance.randrange(3))], id="array"
    ),
]


def mark(value: Any) -> Any:
    """A value that is the same as all values that Spark takes for equal."""
    return None if value is None else sort_key(value)


class Groups:
    """A store of (group columns, value), and the same as a counter."""

    def __init__(self, kind: pa.DataType, width: int) -> None:
        self.width = width
        self.schema = pa.schema([*((f"c{i}", pa.string()) for i in range(width)), (f"c{width}", kind)])
        self.store = Store("values", self.schema)
        self.model: Counter[tuple[Any, ...]] = Counter()
        self.values: dict[Any, Any] = {}

    def apply(self, some: list[tuple[tuple[Any, ...], int]]) -> None:
        columns = [pa.array([row[i] for row, _ in some], kind) for i, kind in enumerate(self.schema.types)]
        table = pa.table(columns, schema=self.schema)
        self.store.apply(consolidate(table, weights_of([weight for _, weight in some])))
        for row, weight in some:
            self.values[mark(row[-1])] = row[-1]
            self.model[(*row[:-1], mark(row[-1]))] += weight

    def live(self) -> list[tuple[Any, ...]]:
        return [(*row[:-1], self.values[row[-1]]) for row, count in self.model.items() if count > 0]

    def expected(self, group: tuple[Any, ...], largest: bool) -> Any:
        values = [row[-1] for row in self.live() if row[:-1] == group]
        return mark((max if largest else min)(values, key=sort_key)) if values else None

    def found(self, group: tuple[Any, ...], largest: bool) -> Any:
        low, high = identity([pa.array([part], pa.string()) for part in group], 1)
        hashes = (low[0], high[0]) if self.width else (np.uint64(0), np.uint64(0))
        return mark(extreme(self.store.snapshot().runs, self.width, *hashes, largest))


@pytest.mark.thorough
@pytest.mark.parametrize("width", thinned([1, 0, 2], 3))
@pytest.mark.parametrize(("kind", "draw"), KINDS)
def test_extremes_follow_inserts_and_deletes(kind: pa.DataType, draw: Draw, width: int) -> None:
    chance = random.Random(f"{kind} {width}")
    groups = Groups(kind, width)
    names = [None, "", "a", "b"]
    for epoch in range(40):
        some: list[tuple[tuple[Any, ...], int]] = [
            ((*(chance.choice(names) for _ in range(width)), draw(chance)), 1)
            for _ in range(chance.randrange(1, 12 if epoch < 25 else 3))
        ]
        doomed = chance.sample(groups.live(), min(len(groups.live()), chance.randrange(8)))
        some.extend((row, -groups.model[(*row[:-1], mark(row[-1]))]) for row in doomed)
        groups.apply(some)
        asked = {row[:-1] for row, _ in some} | {("never there",) * width}
        for group in asked:
            for largest in (False, True):
                assert groups.found(group, largest) == groups.expected(group, largest)


def test_deletes_may_hide_many_of_the_first_values() -> None:
    groups = Groups(pa.int32(), 1)
    groups.apply([(("a", value), 1) for value in range(1000)])
    groups.apply([(("a", value), -1) for value in range(300)])
    groups.apply([(("a", value), -1) for value in range(700, 1000)])
    assert groups.found(("a",), False) == sort_key(300)
    assert groups.found(("a",), True) == sort_key(699)


def test_an_emptied_group_has_no_extreme() -> None:
    groups = Groups(pa.string(), 1)
    groups.apply([(("a", "x"), 2), (("b", "y"), 1), (("c", "z"), 1)])
    groups.apply([(("a", "x"), -2)])
    assert groups.found(("a",), False) is None
    assert groups.found(("b",), True) == sort_key("y")


def test_groups_that_share_half_their_hash_are_told_apart() -> None:
    groups = Groups(pa.int32(), 1)
    groups.apply([(("a", 1), 1)])
    low, high = identity([pa.array(["a"])], 1)
    runs = groups.store.snapshot().runs
    assert extreme(runs, 1, low[0], high[0], True) == 1
    assert extreme(runs, 1, low[0], high[0] + np.uint64(1), True) is None


@pytest.mark.parametrize(("kind", "draw"), KINDS)
def test_ranks_are_the_order(kind: pa.DataType, draw: Draw) -> None:
    chance = random.Random(3)
    values = sorted((maybe(chance, draw(chance)) for _ in range(200)), key=sort_key)
    column = pa.chunked_array([pa.array(values[:50], kind), pa.array(values[50:], kind)])
    ranks = list(zip(*(one.tolist() for one in order_ranks(column)), strict=True))
    for before, after, left, right in zip(values, values[1:], ranks, ranks[1:], strict=False):
        assert left == right if sort_key(before) == sort_key(after) else left < right


def test_nan_is_larger_than_every_number() -> None:
    assert max([math.inf, math.nan, 1.0], key=sort_key) is math.nan
    assert min([math.nan, math.inf], key=sort_key) == math.inf


def shuffled(values: list[Any]) -> list[Any]:
    return random.Random(4).sample(values, len(values))


def test_spark_orders_structs_field_by_field_and_null_first() -> None:
    rows = [
        {"a": None, "b": "z"},
        {"a": 0.0, "b": None},
        {"a": -0.0, "b": "Z"},
        {"a": 0.0, "b": "a"},
        {"a": math.nan, "b": None},
    ]
    assert sorted(shuffled(rows), key=sort_key) == rows
    assert sort_key(rows[1]) == sort_key({"a": -0.0, "b": None})


def test_arrays_are_ordered_by_their_elements_and_then_by_their_length() -> None:
    arrays: list[Any] = [None, [], [None], [None, 1], [1], [1, None], [1, 1], [2]]
    assert sorted(shuffled(arrays), key=sort_key) == arrays


def test_many_values_that_tie_in_their_first_field_are_not_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pa.struct([("by", pa.int32()), ("name", pa.string())])
    groups = Groups(kind, 0)
    groups.apply([(({"by": 1, "name": f"same beginning {i:04}"},), 1) for i in range(1000)])
    groups.apply([(({"by": 1, "name": "same beginning 0999"},), -1)])
    read: list[int] = []
    combine = extremes.combine

    def counted(rows: pa.Table, *rest: Any) -> Any:
        read.append(rows.num_rows)
        return combine(rows, *rest)

    monkeypatch.setattr(extremes, "combine", counted)
    assert groups.found((), True) == sort_key({"by": 1, "name": "same beginning 0998"})
    assert sum(read) < 20
