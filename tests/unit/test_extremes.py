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

from headrace.state.delta import consolidate, weights_of
from headrace.state.extremes import extreme, rank, value_numbers
from headrace.state.hashing import identity
from headrace.state.store import Store

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

Draw = Callable[[random.Random], Any]
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
]


def mark(value: Any) -> Any:
    """A value that equals itself, NaN included."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


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
        return mark((max if largest else min)(values, key=rank)) if values else None

    def found(self, group: tuple[Any, ...], largest: bool) -> Any:
        low, high = identity([pa.array([part], pa.string()) for part in group], 1)
        hashes = (low[0], high[0]) if self.width else (np.uint64(0), np.uint64(0))
        return mark(extreme(self.store.snapshot().runs, self.width, *hashes, largest))


@pytest.mark.parametrize("width", [0, 1, 2])
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
    assert groups.found(("a",), False) == 300
    assert groups.found(("a",), True) == 699


def test_an_emptied_group_has_no_extreme() -> None:
    groups = Groups(pa.string(), 1)
    groups.apply([(("a", "x"), 2), (("b", "y"), 1), (("c", "z"), 1)])
    groups.apply([(("a", "x"), -2)])
    assert groups.found(("a",), False) is None
    assert groups.found(("b",), True) == "y"


def test_groups_that_share_half_their_hash_are_told_apart() -> None:
    groups = Groups(pa.int32(), 1)
    groups.apply([(("a", 1), 1)])
    low, high = identity([pa.array(["a"])], 1)
    runs = groups.store.snapshot().runs
    assert extreme(runs, 1, low[0], high[0], True) == 1
    assert extreme(runs, 1, low[0], high[0] + np.uint64(1), True) is None


@pytest.mark.parametrize(("kind", "draw"), KINDS)
def test_numbers_never_contradict_the_order(kind: pa.DataType, draw: Draw) -> None:
    chance = random.Random(3)
    values = sorted((draw(chance) for _ in range(200)), key=rank)
    numbers = value_numbers(pa.chunked_array([pa.array(values, kind)]))
    assert np.all(numbers[1:] >= numbers[:-1])


def test_nan_is_larger_than_every_number() -> None:
    assert max([math.inf, math.nan, 1.0], key=rank) is math.nan
    assert min([math.nan, math.inf], key=rank) == math.inf
