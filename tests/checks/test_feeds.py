"""A small fixed part of the checks of changefeeds; `make feeds-check` has many seeds."""

from __future__ import annotations

import pytest

from tests.checks.feeds import FeedsCheck


@pytest.mark.slow
def test_lives_that_are_killed_lose_nothing() -> None:
    with FeedsCheck(servers=False) as check:
        for seed in (1, 2):
            check.seed(seed)
        check.two_owners(3)
    assert check.tally.faults == []
    assert check.tally.events["log"] > 0


@pytest.mark.slow
def test_real_servers_hold_what_the_relations_did_over_kills_and_two_owners() -> None:
    # Seeds that have all servers.
    with FeedsCheck() as check:
        check.seed(9)
        check.two_owners(16)
    assert check.tally.faults == []
    assert check.tally.events["once"] > 0
    assert check.tally.twice["once"] == 0
    assert check.tally.events["heap"] > 0
