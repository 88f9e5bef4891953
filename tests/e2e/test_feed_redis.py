"""A real Redis as a sink: a hash for each key, and each event once."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

from headrace.errors import FeedError
from headrace.feeds.batch import Mark
from headrace.feeds.redis import RedisSink
from headrace.feeds.sink import SinkEnded, SinkUnavailable
from tests.feed_batches import ITEMS, batch_of, target_of
from tests.feed_database import item
from tests.redis_server import MISSING, PROGRAM, RedisServer

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)


class Store:
    """A Redis of its own, and feeds into it."""

    def __init__(self, server: RedisServer) -> None:
        self.url = server.url
        self.client = redis.Redis(port=server.port, decode_responses=True)
        self.opened: list[Any] = []

    def open(self, columns: StructType = ITEMS, **parts: Any) -> Any:
        target = target_of(self.url, columns, **parts)
        RedisSink().check(target)
        self.opened.append(RedisSink().open(target))
        return self.opened[-1]

    def items(self) -> dict[str, Any]:
        return {key: self.client.hgetall(key) for key in sorted(self.client.scan_iter("*items:*"))}

    def close(self) -> None:
        for one in self.opened:
            one.close()
        self.client.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with RedisServer(tmp_path) as server:
        made = Store(server)
        yield made
        made.close()


def test_a_hash_for_each_key(store: Store) -> None:
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(1)), ("INSERT", item(2, "ü\0")), ("UPDATE", item(1, "x", None))]))
    expected = {
        'items:{"id":1}': {"id": "1", "name": "x"},
        'items:{"id":2}': {"id": "2", "name": "ü\0", "price": "1.50"},
    }
    assert store.items() == expected
    assert delivery.known_mark() == Mark(3, 1, 3)
    delivery.deliver(batch_of([("DELETE", item(2)), ("INSERT", item(3)), ("DELETE", item(3))], 4))
    assert list(store.items()) == ['items:{"id":1}']


def test_nested_values_prefix_and_ttl(store: Store) -> None:
    columns = StructType([StructField("id", IntegerType(), False), StructField("tags", ArrayType(StringType()))])
    delivery = store.open(columns, options={"key_prefix": "shop[1]:", "ttl": "100000"})
    delivery.deliver(batch_of([("INSERT", {"id": 1, "tags": ["a", "b"]})], columns=columns))
    assert store.items() == {'shop[1]:items:{"id":1}': {"id": "1", "tags": '["a","b"]'}}
    assert 0 < store.client.ttl('shop[1]:items:{"id":1}') <= 100_000
    delivery.begin_scan(columns)
    delivery.end_scan(Mark(5, 0, 1))
    assert store.items() == {}


def test_what_was_told_is_not_told_again(store: Store) -> None:
    delivery = store.open()
    first = batch_of([("INSERT", item(1)), ("UPDATE", item(1, "second"))])
    delivery.deliver(first)
    delivery.deliver(batch_of([("UPDATE", item(1, "third"))], 3))
    delivery.deliver(first)
    assert store.items()['items:{"id":1}']["name"] == "third"
    # A value of another kind that somebody left there gives way.
    store.client.set('items:{"id":2}', "x")
    delivery.deliver(batch_of([("INSERT", item(2))], 4))
    assert store.items()['items:{"id":2}']["name"] == "n2"


@pytest.mark.slow
def test_a_scan_takes_away_what_it_does_not_tell(store: Store) -> None:
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(number)) for number in range(3000)]))
    store.client.hset('items_too:{"id":1}', "id", "1")
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(number)) for number in range(2500, 3500)], 3001, scan=True))
    assert len(store.items()) == 3500
    delivery = store.open(fence=1)
    delivery.end_scan(Mark(5000, 0, 4000))
    delivery.end_scan(Mark(5000, 0, 4000))
    assert sorted(int(one["id"]) for one in store.items().values()) == list(range(2500, 3500))
    assert store.client.exists('items_too:{"id":1}')
    assert store.client.keys("headrace:*:scan") == []


def test_an_owner_that_was_replaced_ends(store: Store) -> None:
    first = store.open(fence=1)
    first.deliver(batch_of([("INSERT", item(1))]))
    second = store.open(fence=2)
    second.deliver(batch_of([("UPDATE", item(1, "second"))], 2))
    for late in (lambda: first.deliver(batch_of([("UPDATE", item(1, "late"))], 2)), first.known_mark):
        with pytest.raises(SinkEnded, match="with the number 2"):
            late()
    with pytest.raises(SinkEnded):
        store.open(fence=1)
    assert store.items()['items:{"id":1}']["name"] == "second"
    assert second.known_mark() == Mark(2, 1, 2)


def test_a_server_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        store = Store(server)
        delivery = store.open()
        delivery.deliver(batch_of([("INSERT", item(number)) for number in range(100)]))
        server.kill()
        with pytest.raises(SinkUnavailable):
            delivery.deliver(batch_of([("INSERT", item(100))], 101))
        server.start()
        again = store.open(fence=1)
        assert again.known_mark() == Mark(100, 1, 100)
        again.deliver(batch_of([("INSERT", item(100))], 101))
        assert len(store.items()) == 101
        # One that has lost everything says so, rather than go on with a part.
        store.client.flushall()
        with pytest.raises(SinkEnded, match="RESYNC CHANGEFEED"):
            store.open(fence=2).deliver(batch_of([("INSERT", item(101))], 102))
        store.close()


def test_what_cannot_be_is_refused(store: Store) -> None:
    for location in ("redis://", "http://host/0", "redis://host:x/0", "redis://host/name"):
        with pytest.raises(FeedError, match="needs the URL"):
            RedisSink().check(target_of(location))
    with pytest.raises(FeedError, match="ttl cannot be '0'"):
        RedisSink().check(target_of(store.url, options={"ttl": 0}))
    with pytest.raises(FeedError, match="has no key"):
        RedisSink().check(target_of(store.url, has_key=False))
    store.client.config_set("requirepass", "right")
    with pytest.raises(SinkUnavailable) as refused:
        RedisSink().open(target_of(store.url, options={"password": "wrong-secret"}))
    assert "wrong-secret" not in str(refused.value)
    RedisSink().open(target_of(store.url, options={"password": "right"})).close()
    store.client.config_set("requirepass", "")
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", {"id": 1, "name": None, "price": Decimal("1")})]))
    RedisSink().forget(target_of(store.url))
    assert store.client.keys("headrace:*") == []
    assert len(store.items()) == 1
