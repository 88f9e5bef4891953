"""Which events a sink has: each counts once, whatever order they come in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.feeds.delivered import DeliveredSequences


def test_nothing_is_told_at_first_and_a_feed_may_begin_anywhere() -> None:
    assert DeliveredSequences().lacks([5, 6]).tolist() == [True, True]
    assert DeliveredSequences().with_events([5, 6]) == DeliveredSequences(6)
    assert DeliveredSequences().with_events([]) == DeliveredSequences()


def test_what_is_refused_or_skipped_is_missing_until_it_comes() -> None:
    told = DeliveredSequences(3).with_events([4, 5, 6, 9], {5: "a"})
    assert told == DeliveredSequences(9, ((5, 5), (7, 8)), {5: "a"})
    assert told.lacks([3, 5, 6, 7, 9, 10]).tolist() == [False, True, False, True, False, True]
    assert told.with_events([7]) == DeliveredSequences(9, ((5, 5), (8, 8)), {5: "a"})
    assert told.with_events([5, 7, 8]) == DeliveredSequences(9)
    assert DeliveredSequences.from_json(told.as_json()) == told
    assert DeliveredSequences.from_json(None) == DeliveredSequences.from_json("") == DeliveredSequences()


def test_a_refused_event_does_not_come_over_a_later_one_of_its_key() -> None:
    told = DeliveredSequences(3).with_events([4, 5], {4: "a", 5: "b"})
    later = told.with_events([6], newest={"a": 6, "c": 6})
    assert later.lacks([4, 5]).tolist() == [False, True]
    assert later == DeliveredSequences(6, ((5, 5),), {5: "b"})
    # An earlier one that waited is no reason.
    assert told.with_events([6], newest={"a": 3}).lacks([4])[0]


def test_what_is_given_up_is_not_missing_any_more() -> None:
    delivered = DeliveredSequences(3).with_events([4, 5, 6, 7], {4: "a", 5: "b", 7: "c"})
    left = delivered.give_up([5, 7, 99])
    assert left == DeliveredSequences(7, ((4, 4),), {4: "a"})
    assert left.lacks([4, 5, 7, 8]).tolist() == [True, False, False, True]
    # An event that waits behind a refused one was never tried: it is missing until it comes.
    gap = DeliveredSequences(3).with_events([4, 6], {4: "a"})
    assert gap.give_up([4, 5]) == DeliveredSequences(6, ((5, 5),))


@pytest.mark.thorough
@given(st.lists(st.tuples(st.sets(st.integers(1, 30), min_size=1), st.sets(st.integers(1, 30)))))
def test_it_knows_what_a_set_would_know(steps: list[tuple[set[int], set[int]]]) -> None:
    told, come = DeliveredSequences(0), set[int]()
    for numbers, refused in steps:
        due = [number for number in sorted(numbers) if told.lacks([number])[0]]
        assert due == sorted(numbers - come)
        told = told.with_events(sorted(numbers), dict.fromkeys(refused & set(due), "k"))
        come |= set(due) - refused
    assert [number for number in range(1, 31) if not told.lacks([number])[0]] == sorted(come)
