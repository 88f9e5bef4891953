"""A DynamoDB as a sink, as moto's server answers for it: an item for each key, and each event once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.errors import FeedError
from headrace.feeds.batch import Mark
from headrace.feeds.dynamodb import DynamoSink
from headrace.feeds.sink import EventsRefused, SinkEnded, SinkUnavailable, Target
from headrace.local.ports import HOST
from tests.feed_batches import ITEMS, batch_of, target_of
from tests.feed_database import item
from tests.waiting import PATIENCE

LOCATION = "dynamodb://eu-north-1/items"


class Store:
    """Feeds into one table."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Any] = []
        resource: Any = boto3.resource("dynamodb", "eu-north-1", endpoint_url=url)
        self.table, self.states = resource.Table("items"), resource.Table("headrace_feeds")

    def target(self, **parts: Any) -> Target:
        return target_of(LOCATION, options={"endpoint_url": self.url, **parts.pop("options", {})}, **parts)

    def open(self, **parts: Any) -> Any:
        target = self.target(**parts)
        DynamoSink().check(target)
        self.opened.append(DynamoSink().open(target))
        return self.opened[-1]

    def feeds(self) -> list[str]:
        return sorted(one["feed_id"] for one in self.states.scan()["Items"])

    def state(self, feed_id: str = "id-of-f") -> str:
        return self.states.get_item(Key={"feed_id": feed_id})["Item"]["state"]

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


def test_a_row_that_is_never_taken_is_refused_alone(store: Store) -> None:
    columns = StructType([StructField("name", StringType(), False), StructField("id", IntegerType())])
    delivery = store.open(columns=columns, key=("name",))
    # A key of DynamoDB has 2,048 bytes at most, of which its own check is the judge.
    rows: list[Any] = [("INSERT", {"id": number, "name": f"n{number}"}) for number in range(120)]
    rows[7] = ("INSERT", {"id": 7, "name": "x" * 3000})
    batch = batch_of(rows, columns=columns, key=("name",))
    with pytest.raises(EventsRefused) as refused:
        delivery.deliver(batch)
    assert list(refused.value.refused) == [7]
    assert "2048" in refused.value.refused[7]
    assert sorted(store.names()) == [number for number in range(120) if number != 7]
    assert delivery.known_mark() == batch.mark_before(7)


def test_parked_events_are_kept_apart_and_delivered_unless_overtaken(store: Store) -> None:
    large = "x" * 500_000
    delivery = store.open()
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(number, large)) for number in range(1, 120)]))
    before = len(store.state())
    delivery.give_up(range(1, 130))
    assert len(store.state()) < before / 5
    assert len(store.feeds()) == 119 + 2
    delivery.deliver(batch_of([("UPDATE", item(2, "newer")), ("DELETE", item(3))], 120))
    delivery = store.open(fence=1)
    for number in (1, 2, 3):
        delivery.deliver(batch_of([("INSERT", item(number, "late"))], number, after=Mark(121, 1, 121)))
    # A later event of its key has overtaken the second, and removed the third.
    assert store.names() == {1: "late", 2: "newer"}
    delivery.deliver(batch_of([("INSERT", item(1, "again"))], 1, after=Mark(121, 1, 121)))
    assert store.names() == {1: "late", 2: "newer"}
    with pytest.raises(EventsRefused):
        delivery.deliver(batch_of([("INSERT", item(4, large))], 4, after=Mark(121, 1, 121)))
    delivery.deliver(batch_of([("INSERT", item(4, "late"))], 4, after=Mark(121, 1, 121)))
    assert store.names()[4] == "late"
    delivery.begin_scan(ITEMS)
    assert store.feeds() == ["id-of-f", "table:items"]


def test_a_second_feed_of_a_table_is_refused_until_it_takes_over(store: Store) -> None:
    oslo = store.open(feed="oslo", feed_id="a")
    oslo.deliver(batch_of([("INSERT", item(number)) for number in (1, 2, 3)]))
    with pytest.raises(SinkUnavailable, match="changefeed oslo delivers to the table items already"):
        store.open(feed="rome", feed_id="b")
    rome = store.open(feed="rome", feed_id="b", options={"take_over": True})
    rome.begin_scan(ITEMS)
    rome.deliver(batch_of([("INSERT", item(7))], scan=True))
    rome.end_scan(Mark(1, None, 1))
    for late in (lambda: oslo.deliver(batch_of([("INSERT", item(4))], 4)), lambda: oslo.end_scan(Mark(4, None, 4))):
        with pytest.raises(SinkEnded, match="changefeed rome has taken over"):
            late()
    assert list(store.names()) == [7]
    # The owner may be opened again, and a dropped feed leaves its table to others.
    store.open(feed="rome", feed_id="b", fence=1)
    DynamoSink().forget(store.target(feed="rome", feed_id="b", fence=1))
    # What the first one had delivered is gone, as it says.
    oslo = store.open(feed="oslo", feed_id="a", fence=1)
    with pytest.raises(SinkEnded, match="RESYNC"):
        oslo.deliver(batch_of([("INSERT", item(4))], 4))


def test_a_write_under_way_ends_with_a_take_over(store: Store) -> None:
    oslo = store.open(feed="oslo", feed_id="a")
    oslo.deliver(batch_of([("INSERT", item(1))]))
    known = oslo._state()
    store.open(feed="rome", feed_id="b", options={"take_over": True})
    # It has looked who owns the table before, and writes only now.
    oslo._state = lambda: known
    with pytest.raises(SinkUnavailable):
        oslo.deliver(batch_of([("INSERT", item(2))], 2))
    assert store.names() == {1: "n1"}


def test_a_restored_copy_of_a_home_is_another_owner(store: Store) -> None:
    first = store.open(home="here", fence=1)
    first.deliver(batch_of([("INSERT", item(number)) for number in (1, 2)]))
    with pytest.raises(SinkUnavailable, match="changefeed f of another home delivers to"):
        store.open(home="copy", fence=2)
    # To drop the copy's feed takes nothing from the first one.
    DynamoSink().forget(store.target(home="copy", fence=2))
    first.deliver(batch_of([("INSERT", item(3))], 3))
    copy = store.open(home="copy", fence=2, options={"take_over": True})
    with pytest.raises(SinkEnded):
        first.known_mark()
    assert copy.known_mark() is None


def test_a_table_that_is_gone_ends_the_feed_until_a_scan(store: Store) -> None:
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(1))]))
    store.table.delete()
    second = batch_of([("INSERT", item(2))], 2)
    for fence in (0, 1):
        with pytest.raises(SinkEnded, match="the table items is gone with all its items: RESYNC"):
            delivery.deliver(second)
        delivery = store.open(fence=fence + 1)
    again = store.open(fence=2)
    again.begin_scan(ITEMS)
    again.deliver(batch_of([("INSERT", item(2))], 2, scan=True))
    again.end_scan(Mark(2, None, 2))
    assert list(store.names()) == [2]


def test_a_server_that_says_nothing_is_unavailable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.feeds.dynamodb._ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("headrace.feeds.dynamodb._ATTEMPTS", 1)
    with socket.create_server((HOST, 0)) as silent:
        target = store.target(options={"endpoint_url": f"http://{HOST}:{silent.getsockname()[1]}"})
        with pytest.raises(SinkUnavailable, match="Read timeout"):
            DynamoSink().open(target)


def test_a_scan_takes_away_what_it_does_not_tell(store: Store) -> None:
    delivery = store.open()
    delivery.deliver(batch_of([("INSERT", item(number)) for number in range(30)]))
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(number, "new")) for number in range(20, 40)], 31, scan=True))
    delivery = store.open(fence=1)
    for _ in range(2):
        delivery.end_scan(Mark(60, None, 50))
    assert store.names() == dict.fromkeys(range(20, 40), "new")


def test_a_scan_that_dynamodb_no_longer_knows_ends_the_feed(store: Store) -> None:
    delivery = store.open()
    delivery.begin_scan(ITEMS)
    delivery.deliver(batch_of([("INSERT", item(1))], scan=True))
    delivery.end_scan(Mark(1, None, 1))
    with pytest.raises(SinkEnded, match="no longer has the scan"):
        delivery.deliver(batch_of([("INSERT", item(2))], 2, scan=True))


def test_a_process_of_another_home_takes_over_whatever_its_number(store: Store) -> None:
    store.open(home="live", fence=9).deliver(batch_of([("INSERT", item(1))]))
    assert store.open(home="copy", fence=2, options={"take_over": True}).known_mark() is None


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
