"""A real Redis as a sink: a hash for each key, and each event once."""

from __future__ import annotations

import socket
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
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable
from headrace.local.ports import HOST
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
        return {key: self.client.hgetall(key) for key in sorted(self.client.scan_iter("*items:*", _type="hash"))}

    def state_size(self) -> int:
        return len(str(self.client.get("headrace:feed:id-of-f")))

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
    delivery.end_scan(Mark(5, None, 1))
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
    delivery.end_scan(Mark(5000, None, 4000))
    delivery.end_scan(Mark(5000, None, 4000))
    assert sorted(int(one["id"]) for one in store.items().values()) == list(range(2500, 3500))
    assert store.client.exists('items_too:{"id":1}')
    assert store.client.keys("headrace:*:scan") == []


def test_a_value_that_is_too_large_is_refused_alone(store: Store) -> None:
    store.client.config_set("proto-max-bulk-len", 1024 * 1024)
    large = "x" * (1024 * 1024 + 1)
    delivery = store.open()
    batch = batch_of([("INSERT", item(1)), ("INSERT", item(2, large)), ("INSERT", item(3)), ("UPDATE", item(3, large))])
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch)
    assert sorted(refused.value.refused) == [1, 3]
    assert "1,048,577 bytes" in refused.value.refused[1]
    # Of the third key the event before the refused one has taken effect.
    assert [one["name"] for one in store.items().values()] == ["n1", "n3"]
    assert delivery.known_mark() == batch.mark_before(1)
    delivery.deliver(batch_of([("INSERT", item(2, "small"))], 2, after=Mark(3, 1, 3)))
    assert [one["name"] for one in store.items().values()] == ["n1", "small", "n3"]


def test_parked_events_are_kept_apart_and_delivered_unless_overtaken(store: Store) -> None:
    store.client.config_set("proto-max-bulk-len", 1024 * 1024)
    large = "x" * (1024 * 1024 + 1)
    delivery = store.open()
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(number, large)) for number in (1, 2, 3)]))
    before = store.state_size()
    delivery.give_up([1, 2, 3, 99])
    assert store.state_size() < before
    delivery.deliver(batch_of([("UPDATE", item(2, "newer"))], 4))
    delivery.deliver(batch_of([("DELETE", item(3))], 5))
    delivery = store.open(fence=1)
    for number in (1, 2, 3):
        delivery.deliver(batch_of([("INSERT", item(number, "late"))], number, after=Mark(5, 1, 5)))
    # A later event of its key has overtaken the second, and removed the third.
    assert {key: one["name"] for key, one in store.items().items()} == {
        'items:{"id":1}': "late",
        'items:{"id":2}': "newer",
    }
    assert store.client.keys("headrace:feed:*:parked") == []
    # Whatever was delivered is not delivered again.
    delivery.deliver(batch_of([("INSERT", item(1, "again"))], 1, after=Mark(5, 1, 5)))
    assert store.items()['items:{"id":1}']["name"] == "late"


def test_a_second_feed_of_a_prefix_is_refused_until_it_takes_over(store: Store) -> None:
    oslo = store.open(feed="oslo", feed_id="a")
    oslo.deliver(batch_of([("INSERT", item(number)) for number in (1, 2, 3)]))
    with pytest.raises(SinkUnavailable, match=r"changefeed oslo delivers to the hashes items:\* already"):
        store.open(feed="rome", feed_id="b")
    store.open(feed="rome", feed_id="b", options={"key_prefix": "rome:"})
    rome = store.open(feed="rome", feed_id="b", options={"take_over": True})
    rome.begin_scan(ITEMS)
    rome.deliver(batch_of([("INSERT", item(7))], scan=True))
    rome.end_scan(Mark(1, None, 1))
    with pytest.raises(SinkEnded, match="changefeed rome has taken over"):
        oslo.deliver(batch_of([("INSERT", item(4))], 4))
    with pytest.raises(SinkEnded, match="changefeed rome has taken over"):
        oslo.end_scan(Mark(4, None, 4))
    assert list(store.items()) == ['items:{"id":7}']
    # The owner may be opened again, and a dropped feed leaves its prefix to others.
    store.open(feed="rome", feed_id="b", fence=1)
    RedisSink().forget(target_of(store.url, feed="rome", feed_id="b", fence=1))
    # What the first one had delivered is gone, as it says.
    oslo = store.open(feed="oslo", feed_id="a", fence=1)
    assert oslo.known_mark() is None
    with pytest.raises(SinkEnded, match="RESYNC"):
        oslo.deliver(batch_of([("INSERT", item(4))], 4))


def test_a_restored_copy_of_a_home_is_another_owner(store: Store) -> None:
    first = store.open(home="here", fence=1)
    first.deliver(batch_of([("INSERT", item(number)) for number in (1, 2)]))
    with pytest.raises(SinkUnavailable, match="changefeed f of another home delivers to"):
        store.open(home="copy", fence=2)
    first.deliver(batch_of([("INSERT", item(3))], 3))
    # To drop the copy's feed takes nothing from the first one.
    RedisSink().forget(target_of(store.url, home="copy", fence=2))
    assert first.known_mark() == Mark(3, 1, 3)
    copy = store.open(home="copy", fence=2, options={"take_over": True})
    with pytest.raises(SinkEnded, match="of another home has taken over"):
        first.known_mark()
    # What the first one has delivered since the copy was made, the copy does not know.
    assert copy.known_mark() is None
    with pytest.raises(SinkEnded, match="RESYNC"):
        copy.deliver(batch_of([("INSERT", item(9))], 3))


def test_a_server_that_says_nothing_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.feeds.redis._ANSWER_SECONDS", 0.1)
    with socket.create_server((HOST, 0)) as silent, pytest.raises(SinkUnavailable, match="Timeout"):
        RedisSink().open(target_of(f"redis://{HOST}:{silent.getsockname()[1]}/0"))


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


def test_a_server_that_is_an_older_copy_is_unavailable_once_without_an_error_of_its_own(store: Store) -> None:
    """The client connects again by itself, so the delivery has to compare what it reads with what it wrote."""
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(1))]))
    older = store.client.get("headrace:feed:id-of-f")
    delivery.deliver(batch_of([("INSERT", item(2))], 2))
    store.client.set("headrace:feed:id-of-f", str(older))
    with pytest.raises(SinkUnavailable, match="without its last writes"):
        delivery.deliver(batch_of([("INSERT", item(3))], 3))
    assert delivery.known_mark() == Mark(1, 1, 1)
    assert len(store.items()) == 2


def test_a_scan_that_redis_no_longer_knows_ends_the_feed(store: Store) -> None:
    delivery = store.open()
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(1))], scan=True))
    delivery.end_scan(Mark(1, None, 1))
    with pytest.raises(SinkEnded, match="no longer has the scan"):
        delivery.deliver(batch_of([("INSERT", item(2))], 2, scan=True))


def test_a_process_of_another_home_takes_over_whatever_its_number(store: Store) -> None:
    store.open(home="live", fence=9).deliver(batch_of([("INSERT", item(1))]))
    copy = store.open(home="copy", fence=2, options={"take_over": True})
    assert copy.known_mark() is None


def test_what_cannot_be_is_refused(store: Store) -> None:
    for location in ("redis://", "http://host/0", "redis://host:x/0", "redis://host/name"):
        with pytest.raises(FeedError, match="needs the URL"):
            RedisSink().check(target_of(location))
    for name in ("port", "host", "unix_socket_path", "nonsense"):
        with pytest.raises(FeedError, match=f"has no parameter '{name}'"):
            RedisSink().check(target_of(f"redis://host/0?{name}=6666"))
    RedisSink().check(target_of("rediss://host/0?ssl_ca_certs=/ca.pem&protocol=3"))
    with pytest.raises(FeedError, match="take_over cannot be 'yes'"):
        RedisSink().check(target_of(store.url, options={"take_over": "yes"}))
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
