"""The one feed that owns a place in a sink, and how another takes it over; without a server."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import FeedError
from headrace.feeds.sink import SinkEnded, SinkUnavailable, Target
from headrace.feeds.sink_owner import SinkOwner, check_take_over, refuse_former, refuse_second
from tests.feed_batches import target_of


def target(feed: str = "oslo", feed_id: str = "a", home: str = "here", **options: Any) -> Target:
    return target_of("redis://h/0", feed=feed, feed_id=feed_id, home=home, options=options)


OWNER = SinkOwner.of(target())


def test_an_owner_and_a_place_without_one_are_taken() -> None:
    assert not refuse_second(None, target(), "t")
    assert not refuse_second(OWNER, target(), "t")
    refuse_former(None, target(), "t")
    refuse_former(OWNER, target(), "t")
    assert SinkOwner.from_json(OWNER.as_json()) == OWNER
    assert SinkOwner.from_json(None) is None


@pytest.mark.parametrize(
    ("other", "named"),
    [(target("rome", "b"), "changefeed oslo "), (target(home="copy"), "changefeed oslo of another home ")],
)
def test_another_feed_and_another_home_are_refused(other: Target, named: str) -> None:
    with pytest.raises(SinkUnavailable, match=f"{named}delivers to t already"):
        refuse_second(OWNER, other, "t")
    with pytest.raises(SinkEnded, match=f"{named}has taken over t"):
        refuse_former(OWNER, other, "t")


def test_who_may_take_over_does() -> None:
    assert refuse_second(OWNER, target("rome", "b", take_over=True), "t")
    # One of the same name in the same home was dropped.
    assert refuse_second(OWNER, target(feed_id="b"), "t")
    with pytest.raises(SinkUnavailable):
        refuse_second(OWNER, target(feed_id="b", home="copy"), "t")


def test_take_over_is_true_or_false() -> None:
    check_take_over(target(take_over=False))
    with pytest.raises(FeedError, match="take_over cannot be 'yes'"):
        check_take_over(target(take_over="yes"))
