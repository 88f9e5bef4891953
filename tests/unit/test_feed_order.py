"""Events of an epoch in an order that a sink with a key of its own can follow."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.feeds.batch import Events
from headrace.feeds.cursor import change_events
from headrace.reading.history import EpochChanges
from headrace.state.change_images import change_images
from headrace.state.delta import weights_of


def test_of_a_relation_without_a_key_all_that_goes_is_told_before_what_comes() -> None:
    """A join that is updated is the old row gone and the new one come; by its own key a sink has one row of it."""
    count = 200
    rows = pa.table({"id": [*range(count)] * 2, "status": ["old"] * count + ["new"] * count})
    kinds = pa.array(["delete"] * count + ["insert"] * count)
    events = change_events(EpochChanges(5, datetime(2026, 1, 1, tzinfo=UTC), kinds, rows), [0, 1])
    assert events.operations.tolist() == ["DELETE"] * count + ["INSERT"] * count
    held: dict[int, str] = {}
    for operation, row in zip(events.operations, events.rows.to_pylist(), strict=True):
        if operation == "DELETE":
            held.pop(row["id"], None)
        else:
            held[row["id"]] = row["status"]
    assert held == dict.fromkeys(range(count), "new")
    again = change_events(
        EpochChanges(
            5, datetime(2026, 1, 1, tzinfo=UTC), kinds[::-1], rows.take(pa.array(range(2 * count - 1, -1, -1)))
        ),
        [0, 1],
    )
    assert again.rows.to_pylist() == events.rows.to_pylist()


Row = tuple[int, int, int]


def events_between(
    before: set[Row], after: set[Row], own_key: list[int], key: list[int], dice: random.Random
) -> Events:
    """The events, by a key, of an epoch that changes a relation with a key of its own."""
    changed = [(row, -1) for row in before - after] + [(row, 1) for row in after - before]
    dice.shuffle(changed)
    columns = [pa.array([row[index] for row, _ in changed], pa.int64()) for index in range(3)]
    table = pa.table(columns, names=["id", "login", "n"])
    positions, kinds = change_images(table, weights_of([weight for _, weight in changed]), own_key)
    taken = table.take(pa.array(positions))
    return change_events(EpochChanges(7, datetime(2026, 1, 1, tzinfo=UTC), kinds, taken), key)


def applied(held: dict[Any, Any], events: Events, columns: list[str]) -> dict[Any, Any]:
    """What a receiver holds that keeps the newest row of each key; each operation must be possible."""
    rows, old_rows = events.rows.to_pylist(), events.old_rows.to_pylist()
    for operation, row, old_row in zip(events.operations, rows, old_rows, strict=True):
        key = tuple(row[name] for name in columns)
        if operation == "INSERT":
            assert key not in held
            assert set(old_row.values()) == {None}
            held[key] = row
        elif operation == "UPDATE":
            assert held[key] == old_row
            held[key] = row
        else:
            assert held.pop(key) == row
    return held


@pytest.mark.parametrize("own_key", [[0], []], ids=["keyed", "without a key"])
def test_a_receiver_that_keeps_rows_by_another_key_has_what_the_relation_has(own_key: list[int]) -> None:
    dice = random.Random(5)
    rows: set[Row] = set()
    held: dict[Any, Any] = {}
    for _ in range(300):
        # Logins are handed on, swapped, given up and taken over within an epoch.
        ids, logins = (dice.sample(range(8), 8) for _ in range(2))
        after = {(ids[i], logins[i], dice.randrange(3)) for i in range(dice.randrange(9))}
        after = {row for row in rows if row[0] % 2 and dice.random() < 0.5} or after
        events = events_between(rows, after, own_key, [1], dice)
        assert len({row["login"] for row in events.rows.to_pylist()}) == len(events)
        held = applied(held, events, ["login"])
        assert held == {(login,): {"id": id_, "login": login, "n": n} for id_, login, n in after}
        rows = after


def test_events_by_another_key_have_one_order_whatever_order_their_rows_have() -> None:
    before, after = {(1, 10, 0), (2, 20, 0), (3, 30, 0)}, {(1, 20, 0), (2, 10, 0), (4, 40, 0)}
    told = [events_between(before, after, [0], [1], random.Random(seed)).rows.to_pylist() for seed in range(5)]
    assert all(one == told[0] for one in told)
    swapped = events_between(before, after, [0], [1], random.Random(1))
    found = dict(zip((row["login"] for row in swapped.rows.to_pylist()), swapped.operations.tolist(), strict=True))
    assert found == {10: "UPDATE", 20: "UPDATE", 30: "DELETE", 40: "INSERT"}


@pytest.mark.parametrize("own_key", [[0], []], ids=["keyed", "without a key"])
def test_a_key_of_all_columns_loses_no_update(own_key: list[int]) -> None:
    events = events_between({(1, 10, 0), (2, 20, 0)}, {(1, 10, 5), (2, 20, 0)}, own_key, [0, 1, 2], random.Random(1))
    assert list(zip(events.operations, events.rows.to_pylist(), strict=True)) == [
        ("DELETE", {"id": 1, "login": 10, "n": 0}),
        ("INSERT", {"id": 1, "login": 10, "n": 5}),
    ]
