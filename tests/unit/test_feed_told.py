"""Which events a sink has: each counts once, whatever order they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.feeds.told import Told


def test_nothing_is_told_at_first_and_a_feed_may_begin_anywhere() -> None:
    assert Told().lacks([5, 6]).tolist() == [True, True]
    assert Told().with_events([5, 6]) == Told(6)
    assert Told().with_events([]) == Told()


def test_what_is_refused_or_skipped_is_missing_until_it_comes() -> None:
    told = Told(3).with_events([4, 5, 6, 9], {5: "a"})
    assert told == Told(9, ((5, 5), (7, 8)), {5: "a"})
    assert told.lacks([3, 5, 6, 7, 9, 10]).tolist() == [False, True, False, True, False, True]
    assert told.with_events([7]) == Told(9, ((5, 5), (8, 8)), {5: "a"})
    assert told.with_events([5, 7, 8]) == Told(9)
    assert Told.from_json(told.as_json()) == told
    assert Told.from_json(None) == Told.from_json("") == Told()


def test_a_refused_event_does_not_come_over_a_later_one_of_its_key() -> None:
    told = Told(3).with_events([4, 5], {4: "a", 5: "b"})
    later = told.with_events([6], newest={"a": 6, "c": 6})
    assert later.lacks([4, 5]).tolist() == [False, True]
    assert later == Told(6, ((5, 5),), {5: "b"})
    # An earlier one that waited is no reason.
    assert told.with_events([6], newest={"a": 3}).lacks([4])[0]


@pytest.mark.thorough
@given(st.lists(st.tuples(st.sets(st.integers(1, 30), min_size=1), st.sets(st.integers(1, 30)))))
def test_it_knows_what_a_set_would_know(steps: list[tuple[set[int], set[int]]]) -> None:
    told, come = Told(0), set[int]()
    for numbers, refused in steps:
        due = [number for number in sorted(numbers) if told.lacks([number])[0]]
        assert due == sorted(numbers - come)
        told = told.with_events(sorted(numbers), dict.fromkeys(refused & set(due), "k"))
        come |= set(due) - refused
    assert [number for number in range(1, 31) if not told.lacks([number])[0]] == sorted(come)
