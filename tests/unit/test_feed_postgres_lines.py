"""Lines for a table of PostgreSQL by any key: rows that hand their keys on are never lost."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

from headrace.feeds.batch import Batch
from headrace.feeds.postgres_names import Described, read_target
from headrace.feeds.postgres_rows import Lines, lines_of
from tests.feed_batches import batch_of, changes_between, target_of

USERS = StructType([StructField("id", IntegerType(), False), StructField("login", StringType())])
NUMBERS = StructType([StructField("x", DoubleType()), StructField("text", StringType())])
KEY = ("login",)
People = dict[str, int]


def described(mode: str = "mirror", columns: StructType = USERS, key: tuple[str, ...] = KEY) -> Described:
    return read_target(target_of("postgresql://u@h/d/users", columns, key=key, options={"mode": mode}))


def users(people: People) -> list[dict[str, Any]]:
    return [{"id": number, "login": login} for login, number in people.items()]


def changes(before: People, after: People, own_key: Sequence[str] = ("id",)) -> list[Any]:
    return changes_between(users(before), users(after), own_key, KEY, USERS)


def parts_of(lines: Lines) -> list[list[str]]:
    return [text.rstrip("\n").split("\t") for text in lines.texts.to_pylist()]


def written(table: People, batch: Batch, target: Described) -> None:
    """Do to a table of ids by login what PostgreSQL does with the lines of a batch."""
    lines, faults = lines_of(batch, np.arange(len(batch)), target)
    assert not faults
    parts = parts_of(lines if target.mode == "insert" else lines.taken(lines.newest()))
    if target.mode != "insert":
        assert [part[0] for part in parts] == sorted((part[0] for part in parts), reverse=True)
        assert len({part[2] for part in parts}) == len(parts)
    for gone, number, login in parts:
        if gone == "t":
            assert number == "\\N"
            table.pop(login, None)
        elif target.mode == "insert":
            table.setdefault(login, int(number))
        else:
            table[login] = int(number)


@pytest.mark.parametrize(
    "after",
    [
        {"b": 1, "c": 2},
        {"b": 1, "a": 2},
        {"b": 1},
        {"a": 1, "b": 3, "c": 2},
        {"b": 3},
        {},
    ],
)
@pytest.mark.parametrize("own_key", [("id",), ()], ids=["keyed", "without a key"])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_row_that_takes_the_key_of_another_stays(after: People, own_key: tuple[str, ...], size: int) -> None:
    events = changes({"a": 1, "b": 2}, after, own_key)
    for order in (events, events[::-1]):
        table = {"a": 1, "b": 2}
        for start in range(0, len(order), size):
            some = order[start : start + size]
            written(table, batch_of(some, columns=USERS, key=KEY, epochs=[7] * len(some)), described())
        assert table == after


def test_modes_upsert_and_insert_delete_no_row() -> None:
    before = {"a": 1, "b": 2}
    events = [*changes(before, {"b": 1, "c": 2}), *changes({"b": 1, "c": 2}, {"c": 2})]
    expected = {"mirror": {"c": 2}, "upsert": {"a": 1, "b": 1, "c": 2}, "insert": {"a": 1, "b": 2, "c": 2}}
    for mode, rows in expected.items():
        table = dict(before)
        written(table, batch_of(events, columns=USERS, key=KEY), described(mode))
        assert table == rows


def test_both_zeros_are_one_key() -> None:
    events: list[Any] = [("INSERT", {"x": -0.0, "text": "old"}), ("UPDATE", {"x": 0.0, "text": "new"})]
    events += [("INSERT", {"x": None, "text": "none"}), ("INSERT", {"x": 1.0}), ("DELETE", {"x": 1.0})]
    target = described(columns=NUMBERS, key=("x",))
    lines, _ = lines_of(batch_of(events, columns=NUMBERS, key=("x",)), np.arange(5), target)
    newest = lines.taken(lines.newest())
    assert parts_of(newest) == [["t", "1", "\\N"], ["f", "0", "new"], ["f", "\\N", "none"]]
    assert newest.null_key.tolist() == [False, False, True]


def test_of_a_row_that_is_gone_the_key_alone_must_be_what_postgresql_holds() -> None:
    events: list[Any] = [("DELETE", {"x": 1.0, "text": "a\0b"}), ("INSERT", {"x": 2.0, "text": "a\0b"})]
    batch = batch_of(events, columns=NUMBERS, key=("x",))
    lines, faults = lines_of(batch, np.arange(2), described(columns=NUMBERS, key=("x",)))
    assert (lines.events.tolist(), list(faults)) == ([0, 1], [1])
    # What PostgreSQL cannot hold was never there.
    lines, faults = lines_of(batch, np.arange(2), described(columns=NUMBERS, key=("text",)))
    assert (lines.events.tolist(), lines.null_key.tolist()) == ([1], [False])
    assert 1 in faults


@given(st.integers(0, 2**32), st.integers(2, 7), st.integers(1, 6), st.integers(1, 12), st.booleans())
def test_any_permutation_of_keys_in_any_batches_is_what_a_dict_holds(
    seed: int, people: int, epochs: int, size: int, keyed: bool
) -> None:
    chance = random.Random(seed)
    logins = [f"l{number}" for number in range(people + 1)]
    held: People = {}
    events: list[Any] = []
    numbers: list[int] = []
    for epoch in range(epochs):
        present = [number for number in range(people) if chance.random() < 0.7]
        after = dict(zip(chance.sample(logins, len(present)), present, strict=True))
        for login, number in held.items():
            # Some stay as they are.
            if login not in after and chance.random() < 0.3:
                after = {login: number, **{one: other for one, other in after.items() if other != number}}
        changed = changes(held, after, ("id",) if keyed else ())
        chance.shuffle(changed)
        events += changed
        numbers += [epoch] * len(changed)
        held = after
    table: People = {}
    for start in range(0, len(events), size):
        some, at = events[start : start + size], numbers[start : start + size]
        written(table, batch_of(some, columns=USERS, key=KEY, epochs=at), described())
    assert table == held
