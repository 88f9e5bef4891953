"""A DynamoDB as a sink, as moto's server answers for it: an item for each key, and each event once."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

from headrace.errors import FeedError
from headrace.feeds.batch import Mark
from headrace.feeds.dynamodb import DynamoSink
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable
from tests.feed_batches import ITEMS, batch_of, target_of
from tests.feed_database import item
from tests.waiting import PATIENCE

LOCATION = "dynamodb://eu-north-1/items"


class Store:
    """Feeds into one table."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Any] = []
        self.table = boto3.resource("dynamodb", "eu-north-1", endpoint_url=url).Table("items")

    def open(self, **parts: Any) -> Any:
        target = target_of(LOCATION, options={"endpoint_url": self.url}, **parts)
        DynamoSink().check(target)
        self.opened.append(DynamoSink().open(target))
        return self.opened[-1]

    def names(self) -> dict[int, str]:
        return {int(one["id"]): one["name"] for one in self.table.scan()["Items"]}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "moto")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "moto")
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made = Store(f"http://{host}:{port}")
    # Servers of one process share what they hold.
    assert httpx.post(f"{made.url}/moto-api/reset", timeout=PATIENCE).status_code == 200
    yield made
    for one in made.opened:
        one.close()
    made.table.meta.client.close()
    server.stop()


def test_an_item_for_each_key_in_pieces(store: Store) -> None:
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(number)) for number in range(250)]))
    delivery.deliver(batch_of([("UPDATE", item(1, "x")), ("DELETE", item(2)), ("UPDATE", item(1, "y"))], 251))
    assert store.names() == {number: f"n{number}" if number != 1 else "y" for number in range(250) if number != 2}
    assert delivery.known_mark() == Mark(253, 1, 253)
    # An older one, or one that is told again, has no effect.
    delivery.deliver(batch_of([("INSERT", item(1, "old")), ("INSERT", item(2, "old"))], 2))
    assert store.names()[1] == "y"
    assert store.table.get_item(Key={"_key": '{"id":3}'})["Item"]["price"] == Decimal("1.50")


def test_an_item_that_is_too_large_is_refused_alone_and_comes_late(store: Store) -> None:
    delivery = store.open()
    batch = batch_of([("INSERT", item(1)), ("INSERT", item(2, "x" * 500_000)), ("INSERT", item(3))])
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch)
    assert list(refused.value.refused) == [1]
    assert delivery.known_mark() == batch.mark_before(1)
    assert sorted(store.names()) == [1, 3]
    delivery.deliver(batch_of([("INSERT", item(2, "small"))], 2, after=Mark(3, 1, 3)))
    assert store.names()[2] == "small"
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch_of([("UPDATE", item(3, "fits")), ("UPDATE", item(3, "x" * 500_000))], 4))
    assert list(refused.value.refused) == [1]
    assert store.names()[3] == "fits"


def test_a_scan_takes_away_what_it_does_not_tell(store: Store) -> None:
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(number)) for number in range(30)]))
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(number, "new")) for number in range(20, 40)], 31, scan=True))
    delivery = store.open(fence=1)
    for _ in range(2):
        delivery.end_scan(Mark(60, 0, 50))
    assert store.names() == dict.fromkeys(range(20, 40), "new")


def test_an_owner_that_was_replaced_ends(store: Store) -> None:
    first = store.open(fence=1)
    first.deliver(batch_of([("INSERT", item(1))]))
    store.open(fence=2).deliver(batch_of([("UPDATE", item(1, "second"))], 2))
    with pytest.raises(SinkEnded, match="with the number 2"):
        first.deliver(batch_of([("UPDATE", item(1, "late"))], 2))
    assert store.names() == {1: "second"}


def test_what_cannot_be_is_refused(store: Store) -> None:
    with pytest.raises(FeedError, match="needs a region"):
        DynamoSink().check(target_of("dynamodb://items"))
    with pytest.raises(FeedError, match="has no key"):
        DynamoSink().check(target_of(LOCATION, has_key=False))
    with pytest.raises(SinkUnavailable):
        DynamoSink().open(target_of(LOCATION, options={"endpoint_url": "http://127.0.0.1:1"}))
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(1))]))
    DynamoSink().forget(target_of(LOCATION, options={"endpoint_url": store.url}))
    with pytest.raises(SinkEnded, match="RESYNC"):
        store.open().deliver(batch_of([("INSERT", item(2))], 2))
