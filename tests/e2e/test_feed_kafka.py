"""Changefeeds by their statements into a real Kafka and to webhooks: what a home holds is what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks import Webhook

import headrace
from headrace.errors import FeedError
from tests.kafka_reading import committed
from tests.waiting import until
from tests.webhook_receivers import receiving, status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.local import Servers

SECRET = "whsec_" + "QUJD" * 8


def shown(hr: Any, name: str) -> dict[str, Any]:
    (row,) = [one for one in hr.execute("SHOW CHANGEFEEDS").to_pylist() if one["name"] == name]
    return row


def told(messages: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(one.value()) for one in messages if one.value() is not None]


def rebuilt(events: list[dict[str, Any]]) -> dict[int, Any]:
    """What a reader holds that keeps the newest row of each key."""
    rows: dict[int, Any] = {}
    for one in events:
        if one.get("operation") == "DELETE":
            rows.pop(one["key"]["id"], None)
        elif one.get("operation") in ("INSERT", "UPDATE"):
            rows[one["key"]["id"]] = one["new_row"]
    return rows


def held(hr: Any) -> dict[int, Any]:
    return {row["id"]: row for row in hr.query("SELECT id, name FROM parts").to_pylist()}


def change(hr: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        gone = [{"delete": {"id": number - 5}}] if number > first + 5 else []
        hr.apply({"parts": [{"insert": {"id": number, "name": f"part {number}"}}, *gone]})
        hr.apply({"parts": [{"insert": {"id": number, "name": f"part {number}, again"}}]})


@pytest.mark.slow
def test_feeds_into_kafka_go_on_over_restarts_of_the_broker_and_of_the_home(
    spark: SparkSession, tmp_path: Path, local_servers: Servers
) -> None:
    broker, path = local_servers.bootstrap, str(tmp_path / "home")
    with headrace.open(path, spark=spark) as hr:
        hr.execute("CREATE TABLE parts (id INT PRIMARY KEY, name STRING)")
        hr.execute("INSERT INTO parts VALUES (-1, 'first'), (-2, 'second')")
        for name, option in (("plain", "false"), ("exact", "true")):
            hr.execute(
                f"CREATE CHANGEFEED {name} FOR TABLE parts INTO KAFKA '{broker}/parts_{name}' WITH "
                f"(create_topic = true, partitions = 2, exactly_once = {option}, flush_interval_ms = 20, "
                "resolved = true)"
            )
        change(hr, 1, 20)
        local_servers.restart_broker()
        change(hr, 21, 10)
        until(lambda: all(shown(hr, name)["lag"] == 0 for name in ("plain", "exact")))
    with headrace.open(path, spark=spark) as hr:
        change(hr, 31, 10)
        until(lambda: all(shown(hr, name)["lag"] == 0 for name in ("plain", "exact")))
        last = shown(hr, "exact")["last_sequence"]
        rows = held(hr)
        for name in ("plain", "exact"):
            hr.execute(f"DROP CHANGEFEED {name}")
    for name in ("plain", "exact"):
        messages = committed(local_servers, f"parts_{name}")
        events = told(messages)
        assert rebuilt(events) == rows, name
        numbers = [one["sequence"] for one in events if "operation" in one]
        assert set(numbers) == set(range(1, last + 1)), name
        assert {one.key() for one in messages if one.value() and b'"operation"' in one.value()} >= {b'parts:{"id":1}'}
        assert any("resolved" in one for one in events), name
        if name == "exact":
            assert sorted(numbers) == list(range(1, last + 1))


def test_a_feed_to_a_webhook_is_signed_and_told_in_order(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    home.execute("CREATE TABLE parts (id INT PRIMARY KEY, name STRING)")
    with receiving() as receiver:
        receiver.answers = [status(500), status(429, "Retry-After: 0")]
        url = f"http://127.0.0.1:{receiver.port}/hook"
        with pytest.raises(FeedError, match="one of http"):
            home.execute(f"CREATE CHANGEFEED h FOR TABLE parts INTO WEBHOOK '{url}'")
        with pytest.raises(FeedError, match="address that is refused"):
            home.execute(f"CREATE CHANGEFEED h FOR TABLE parts INTO WEBHOOK '{url}' WITH (allow_insecure = true)")
        options = "allow_insecure = true, allow_private = true, flush_interval_ms = 20, batch_size = 7"
        home.execute(
            f"CREATE CHANGEFEED h FOR TABLE parts INTO WEBHOOK '{url}' WITH ({options}, secret = 'env:HOOK_SECRET')"
        )
        change(home, 1, 10)
        until(lambda: shown(home, "h")["lag"] == 0)
        assert rebuilt(receiver.taken) == held(home)
        assert [one["sequence"] for one in receiver.taken] == list(range(1, shown(home, "h")["last_sequence"] + 1))
        for one in receiver.received:
            Webhook(SECRET).verify(one.body, one.headers)
        assert SECRET not in str(shown(home, "h"))
        receiver.answers = [status(410)]
        change(home, 100, 1)
        until(lambda: shown(home, "h")["state"] == "Error")
        assert "410" in shown(home, "h")["error"]
