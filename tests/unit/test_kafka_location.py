"""Where a Kafka source is: brokers and topics of one text, and where it begins."""

from __future__ import annotations

import pytest

from headrace.capture.connector import Description
from headrace.capture.kafka import KAFKA, split_location
from headrace.errors import SourceError


@pytest.mark.parametrize(
    ("location", "servers", "matches", "others"),
    [
        ("h:9092/shop.orders", "h:9092", ["shop.orders"], ["shop.orders2", "shopXorders"]),
        ("a:1,b:2/shop.*", "a:1,b:2", ["shop.orders", "shop.public.t"], ["other.orders", "shop"]),
        ("kafka://h:1/t", "h:1", ["t"], ["tt"]),
    ],
)
def test_a_location_names_brokers_and_topics(
    location: str, servers: str, matches: list[str], others: list[str]
) -> None:
    found, topics = split_location(location)
    assert found == servers
    assert all(topics.fullmatch(one) for one in matches)
    assert not any(topics.fullmatch(one) for one in others)


def test_topics_of_many_stars_are_told_as_soon_as_others() -> None:
    _, topics = split_location(f"h:9092/{'*a' * 30}*b")
    # To try each way of matching would never end.
    assert topics.fullmatch("a" * 100) is None
    assert topics.fullmatch("a" * 100 + "b") is not None


@pytest.mark.parametrize("location", ["h:9092", "h:9092/", "/topic", ""])
def test_what_names_no_topic_is_refused(location: str) -> None:
    with pytest.raises(SourceError, match="names no topic"):
        split_location(location)


@pytest.mark.parametrize("start", ["offset:x", "yesterday", "earlist"])
def test_a_start_that_is_none_is_refused(start: str) -> None:
    with pytest.raises(SourceError, match="start cannot be"):
        KAFKA.check(Description("s", "h:1/t", {"start": start}))
