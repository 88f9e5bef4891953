"""Lines for a table of PostgreSQL whose key is not the relation's: rows that exchange their keys are never lost."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.feeds.batch import Batch
from headrace.feeds.postgres_names import Described, read_target
from headrace.feeds.postgres_rows import lines_of
from tests.feed_batches import batch_of, target_of

USERS = StructType([StructField("id", IntegerType(), False), StructField("login", StringType())])
Event = tuple[Any, ...]


def described(mode: str = "mirror") -> Described:
    return read_target(target_of("postgresql://u@h/d/users", USERS, options={"keys": "login", "mode": mode}))


def user(number: int, login: str) -> dict[str, Any]:
    return {"id": number, "login": login}


def move(number: int, old: str, new: str) -> Event:
    return ("UPDATE", user(number, new), user(number, old))


def batch_at(events: list[Event], epochs: list[int]) -> Batch:
    return batch_of(events, columns=USERS, epochs=epochs)


def written(table: dict[str, int], batch: Batch, target: Described) -> None:
    """Do to a table of ids by login what PostgreSQL does with the lines of a batch."""
    lines, faults = lines_of(batch, np.arange(len(batch)), target)
    assert not faults
    newest = lines.taken(lines.newest())
    parts = [text.rstrip("\n").split("\t") for text in newest.texts.to_pylist()]
    assert [part[0] for part in parts] == sorted((part[0] for part in parts), reverse=True)
    for gone, number, login in parts:
        if gone == "t" and table.get(login) == int(number):
            del table[login]
    for gone, number, login in parts:
        if gone == "f":
            table[login] = int(number)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([move(1, "a", "b"), move(2, "b", "c")], {"b": 1, "c": 2}),
        ([move(1, "a", "b"), move(2, "b", "a")], {"b": 1, "a": 2}),
        ([move(1, "a", "b"), ("DELETE", user(2, "b"))], {"b": 1}),
        ([("INSERT", user(3, "b")), move(2, "b", "c")], {"a": 1, "b": 3, "c": 2}),
    ],
)
@pytest.mark.parametrize("size", [1, 2])
def test_a_row_that_takes_the_key_of_another_stays(events: list[Event], expected: dict[str, int], size: int) -> None:
    for order in (events, events[::-1]):
        table = {"a": 1, "b": 2}
        for start in range(0, 2, size):
            written(table, batch_at(order[start : start + size], [7] * size), described())
        assert table == expected


def test_a_row_of_an_earlier_batch_goes_although_its_key_changed_hands_within_this_one() -> None:
    table = {"a": 1}
    events = [("DELETE", user(1, "a")), ("INSERT", user(2, "a")), ("DELETE", user(2, "a"))]
    written(table, batch_at(events, [1, 1, 2]), described())
    assert table == {}


def test_mode_upsert_moves_rows_and_deletes_none() -> None:
    table = {"a": 1, "b": 2}
    events = [move(1, "a", "b"), move(2, "b", "c"), ("DELETE", user(1, "b"))]
    written(table, batch_at(events, [1, 1, 2]), described("upsert"))
    assert table == {"b": 1, "c": 2}


@given(st.integers(0, 2**32), st.integers(2, 7), st.integers(1, 6), st.integers(1, 12))
def test_any_permutation_of_keys_in_any_batches_is_what_a_dict_holds(
    seed: int, people: int, epochs: int, size: int
) -> None:
    chance = random.Random(seed)
    logins = [f"l{number}" for number in range(people + 1)]
    held: dict[int, str] = {}
    events: list[Event] = []
    numbers: list[int] = []
    for epoch in range(epochs):
        present = [number for number in range(people) if chance.random() < 0.7]
        after = dict(zip(present, chance.sample(logins, len(present)), strict=True))
        for number in held:
            # Some stay as they are.
            if number in after and held[number] not in after.values() and chance.random() < 0.3:
                after[number] = held[number]
        changed: list[Event] = [("DELETE", user(one, held[one])) for one in held if one not in after]
        changed += [("INSERT", user(one, after[one])) for one in after if one not in held]
        changed += [move(one, held[one], after[one]) for one in after if held.get(one, after[one]) != after[one]]
        chance.shuffle(changed)
        events += changed
        numbers += [epoch] * len(changed)
        held = after
    table: dict[str, int] = {}
    for start in range(0, len(events), size):
        written(table, batch_at(events[start : start + size], numbers[start : start + size]), described())
    assert table == {login: number for number, login in held.items()}
