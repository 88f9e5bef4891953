"""A small fixed part of the checks of changefeeds; `make feeds-check` has many seeds."""

from __future__ import annotations

from tests.checks.feeds import FeedsCheck


def test_lives_that_are_killed_lose_nothing() -> None:
    with FeedsCheck() as check:
        for seed in (1, 2):
            check.seed(seed)
        check.two_owners(3)
    assert check.tally.faults == []
    assert check.tally.events["log"] > 0
