"""Pieces of partitions hold everything that must be computed anew, and everything needed to compute it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType

from headrace.rules import window_pieces
from headrace.rules.window_reach import FirstRows, FrameReach, OrderBy, WindowReach
from headrace.rules.window_running import Running
from headrace.state.arranged import Arrangement, Order, OrderColumn, sort_keys
from headrace.state.delta import Delta, consolidate, weights_of
from headrace.state.run import Run

SCHEMA = pa.schema([("c0", pa.int32()), ("c1", pa.int32()), ("c2", pa.int64())])
ORDER = Order((0,), (OrderColumn(1, False, True),))
ORDER_BY = (OrderBy(1, False, True, IntegerType()),)
ROWS = Running("rows")

# A row is its partition, its place in the order, and a number of its own that settles ties.
Row = tuple[int, int | None, int]
Values = list[Any]
Model = Callable[[Sequence[Row], Values, int, int], Values]


def lag(offset: int) -> Model:
    def of(rows: Sequence[Row], values: Values, _rows_before: int, _sum_before: int) -> Values:
        return [values[i - offset] if 0 <= i - offset < len(rows) else None for i in range(len(rows))]

    return of


def by_rows(low: int, high: int) -> Model:
    def of(rows: Sequence[Row], values: Values, _rows_before: int, _sum_before: int) -> Values:
        return [tuple(values[max(0, i + low) : max(0, i + high + 1)]) for i in range(len(rows))]

    return of


def by_range(low: int, high: int) -> Model:
    def inside(own: int | None, other: int | None) -> bool:
        if own is None or other is None:
            return own is other
        return own + low <= other <= own + high

    def of(rows: Sequence[Row], values: Values, _rows_before: int, _sum_before: int) -> Values:
        return [tuple(v for v, r in zip(values, rows, strict=True) if inside(row[1], r[1])) for row in rows]

    return of


def running(last: int) -> Model:
    """The number of all rows up to one so far on, and the sum of their own numbers."""

    def of(rows: Sequence[Row], values: Values, rows_before: int, sum_before: int) -> Values:
        ends = [max(0, i + last + 1) for i in range(len(rows))]
        return [(rows_before + min(e, len(rows)), sum_before + sum(r[2] for r in rows[:e])) for e in ends]

    return of


WINDOWS: dict[str, tuple[list[tuple[FrameReach, ...]], list[Model]]] = {
    "lag": ([(FrameReach(rows_behind=1),)], [lag(1)]),
    "lag and lead": ([(FrameReach(rows_behind=3, rows_ahead=0), FrameReach(rows_ahead=2))], [lag(-2)]),
    "rows": ([(FrameReach(rows_behind=2, rows_ahead=1),)], [by_rows(-2, 1)]),
    "rows behind": ([(FrameReach(rows_behind=4),)], [by_rows(-4, -2)]),
    "rows ahead": ([(FrameReach(rows_ahead=3),)], [by_rows(1, 3)]),
    "range": ([(FrameReach(behind=2, ahead=1),)], [by_range(-2, 1)]),
    "range behind": ([(FrameReach(behind=5),)], [by_range(-5, -3)]),
    "lag of lead": ([(FrameReach(rows_ahead=2),), (FrameReach(rows_behind=1),)], [lag(-2), lag(1)]),
    "lag of range": ([(FrameReach(behind=2),), (FrameReach(rows_behind=2),)], [by_range(-2, 0), lag(2)]),
    "range of lead": ([(FrameReach(rows_ahead=1),), (FrameReach(behind=1, ahead=2),)], [lag(-1), by_range(-1, 2)]),
    "running": ([(FrameReach(from_start=True, running=ROWS),)], [running(0)]),
    "running behind": ([(FrameReach(rows_behind=2, from_start=True, running=ROWS),)], [running(-2)]),
    "running ahead": ([(FrameReach(rows_ahead=2, from_start=True, running=ROWS),)], [running(2)]),
    "running and lag": ([(FrameReach(from_start=True, running=ROWS), FrameReach(rows_behind=2))], [lag(2)]),
}


def key(row: Row) -> tuple[Any, ...]:
    return (row[0], row[1] is not None, row[1] or 0, row[2])


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.table([pa.array([row[i] for row in rows], SCHEMA.field(i).type) for i in range(3)], schema=SCHEMA)


def delta(rows: Sequence[Row], weights: Sequence[int]) -> Delta:
    return consolidate(table(rows), weights_of(list(weights)))


def results(rows: Sequence[Row], models: Sequence[Model], rows_before: int = 0, sum_before: int = 0) -> dict[Row, Any]:
    """What windows, one over the other, give for the rows of one partition or of a piece of it."""
    ordered = sorted(rows, key=key)
    values: Values = [row[2] for row in ordered]
    for model in models:
        values = model(ordered, values, rows_before, sum_before)
    return dict(zip(ordered, values, strict=True))


def changed_rows(chance: random.Random, rows: list[Row], number: int) -> tuple[list[Row], list[int]]:
    """Some deletes, inserts and moves, as signed rows; the list of rows follows."""
    changes: list[Row] = []
    weights: list[int] = []
    for i in range(chance.choice([1, 1, 2, 4])):
        if rows and chance.random() < 0.5:
            changes.append(rows.pop(chance.randrange(len(rows))))
            weights.append(-1)
        if chance.random() < 0.7:
            order = None if chance.random() < 0.1 else chance.randrange(-2, 40)
            rows.append((chance.randrange(2), order, number + i))
            changes.append(rows[-1])
            weights.append(1)
    return changes, weights


def changing(
    epochs: int, chance: random.Random, rows: list[Row], before: Arrangement, reach: WindowReach
) -> Iterator[tuple[list[Row], Arrangement, window_pieces.Pieces]]:
    """Each epoch that changes something: the rows before it, as a list and arranged, and the pieces; `rows` follows."""
    for epoch in range(epochs):
        old = list(rows)
        changes, weights = changed_rows(chance, rows, 1000 + 10 * epoch)
        if changes:
            change = delta(changes, weights)
            after = before.and_also(change)
            keys = np.unique(sort_keys(change.rows, ORDER))
            yield old, before, window_pieces.find_pieces(reach, before, after, keys)
            before = after


def start(chance: random.Random) -> tuple[list[Row], Arrangement]:
    rows: list[Row] = [
        (chance.randrange(2), None if chance.random() < 0.05 else chance.randrange(40), i) for i in range(60)
    ]
    half = len(rows) // 2
    return rows, Arrangement(ORDER, SCHEMA, tuple(Run(delta(p, [1] * len(p))) for p in (rows[:half], rows[half:])))


@pytest.mark.thorough
@pytest.mark.parametrize("name", WINDOWS)
def test_rows_outside_feel_nothing_and_rows_inside_are_computed_from_the_piece(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_pieces, "FEW", 0)
    frames, models = WINDOWS[name]
    reach = WindowReach(ORDER_BY, tuple(frames), None)
    chance = random.Random(name)
    rows, before = start(chance)
    read = total = 0
    for old, held, found in changing(25, chance, rows, before, reach):
        affected: list[set[Row]] = []
        for side in (old, rows):
            whole = {r: v for g in (0, 1) for r, v in results([r for r in side if r[0] == g], models).items()}
            keys = sort_keys(table(side), ORDER)
            numbers = found.numbers(keys)
            counts = held.counts_before(found.starts)
            sums = held.sums_before(found.starts, 2)
            affected.append(set())
            for i in range(len(found)):
                inside = [row for row, number in zip(side, numbers, strict=True) if number == i]
                own = results(inside, models, int(counts[i]), int(sums[i]))
                flags = found.affected(sort_keys(table(inside), ORDER), np.full(len(inside), i))
                for row, flag in zip(inside, flags, strict=True):
                    if flag:
                        affected[-1].add(row)
                        assert own[row] == whole[row], row
                read += len(inside)
            total += len(side)
            affected[-1] = {row for row in whole if row not in affected[-1]}
        one, other = (
            {r: v for g in (0, 1) for r, v in results([r for r in side if r[0] == g], models).items() if r in quiet}
            for side, quiet in zip((old, rows), affected, strict=True)
        )
        assert one == other
    assert read < total, "the pieces are no smaller than the partitions"


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_the_first_rows_are_all_there(limit: int, distinct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_pieces, "FEW", 0)
    reach = WindowReach(
        ORDER_BY, ((FrameReach(from_start=True), FrameReach(rows_ahead=1)),), FirstRows(limit, distinct)
    )
    chance = random.Random(limit)
    rows, before = start(chance)

    def wanted(side: Sequence[Row], group: int) -> dict[Row, Any]:
        """The rows up to the limit, each with the one that follows it."""
        own = results([row for row in side if row[0] == group], [lag(-1)])
        positions = sorted({row[1] if row[1] is not None else -99 for row in own})
        return {
            row: value
            for position, (row, value) in enumerate(own.items(), start=1)
            if (positions.index(row[1] if row[1] is not None else -99) + 1 if distinct else position) <= limit
        }

    skipped = 0
    for old, _, found in changing(40, chance, rows, before, reach):
        for group in (0, 1):
            inside = [
                [r for r, n in zip(side, found.numbers(sort_keys(table(side), ORDER)), strict=True) if n >= 0]
                for side in (old, rows)
            ]
            if not any(r[0] == group for side in inside for r in side):
                assert wanted(old, group) == wanted(rows, group)
                skipped += 1
                continue
            for side, part in zip((old, rows), inside, strict=True):
                assert wanted(part, group) == wanted(side, group)
    assert skipped or limit == 100


def test_small_partitions_are_read_whole() -> None:
    chance = random.Random(5)
    rows, before = start(chance)
    change = delta([(1, 20, 999)], [1])
    reach = WindowReach(ORDER_BY, ((FrameReach(rows_behind=1),),), None)
    found = window_pieces.find_pieces(reach, before, before.and_also(change), sort_keys(change.rows, ORDER))
    numbers = found.numbers(sort_keys(table(rows), ORDER))
    assert [number >= 0 for number in numbers] == [row[0] == 1 for row in rows]
    assert bool(np.all(found.affected(sort_keys(table(rows), ORDER)[numbers >= 0], numbers[numbers >= 0])))
