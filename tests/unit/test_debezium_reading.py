"""What becomes of the records of a connector, and what is told to it; without any JVM."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.capture.connector import Description
from headrace.capture.debezium import reading
from headrace.capture.debezium.postgres import POSTGRES
from headrace.capture.messages import TransactionBoundary
from headrace.errors import SourceError

NO_SCHEMA = struct.pack(">i", -1)


class PlayedEngine:
    """What a connector would send, and what it was told."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.told: list[Mapping[str, Any]] = []

    def start(self, _name: str, _jars: object, told: Mapping[str, Any], scratch: Any) -> PlayedEngine:
        self.told.append(told)
        self.close = scratch.close
        return self

    def tell(self, message: Mapping[str, Any]) -> None:
        self.told.append(message)

    def batch(self, _: float) -> bytes | None:
        return self.batches.pop(0) if self.batches else None


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> PlayedEngine:
    played = PlayedEngine()
    monkeypatch.setattr(reading, "Engine", played.start)
    monkeypatch.setattr(reading, "class_path", lambda _: [])
    return played


def opened(position: Mapping[str, Any], **options: Any) -> Any:
    location = "postgresql://reader@db:5433/shop"
    return POSTGRES.open(Description("shop", location, {"tables": "orders, old*", **options}), position)


def field(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def sent(topic: str, lsn: int, value: Mapping[str, Any]) -> bytes:
    payload = NO_SCHEMA + field(json.dumps(value).encode())
    offset = field(json.dumps({"lsn": lsn}).encode())
    return b"R" + field(topic.encode()) + NO_SCHEMA + struct.pack(">i", -1) + payload + offset


def boundary(status: str, lsn: int) -> bytes:
    return sent("shop.transaction", lsn, {"status": status, "id": "7"})


def heartbeat(lsn: int) -> bytes:
    """What comes of one: its message is a transaction of its own in the log."""
    return (
        boundary("BEGIN", lsn)
        + sent("shop.message", lsn, {"op": "m"})
        + boundary("END", lsn + 1)
        + sent("__debezium-heartbeat.shop", lsn + 1, {})
    )


def tables(*rows: tuple[str | None, ...]) -> bytes:
    return b"T" + field(json.dumps(rows).encode())


ORDERS = ("public.orders", None, None)
BARE = "ALTER TABLE public.old_bare REPLICA IDENTITY FULL"


def test_heartbeats_move_the_position_no_more_often_than_is_asked_for(engine: PlayedEngine) -> None:
    # While a further snapshot is asked for they come every second, and go on to when it is done.
    source = opened({"offset": {"lsn": 1}, "asked": {"id": "a", "tables": ["orders"]}})
    assert engine.told[0]["config"]["heartbeat.interval.ms"] == "1000"
    assert len(engine.told) == 1
    engine.batches.append(tables(ORDERS))
    source.poll(100, 0)
    # Whoever waits to be told to begin would take anything else for that.
    assert [list(one) for one in engine.told[1:]] == [["begin"], ["signal"]]
    engine.batches += [heartbeat(10 * number) for number in range(1, 6)]
    moved = [one.advance["offset"]["lsn"] for one in source.poll(100, 0)]
    assert moved == [10, 11]
    engine.batches += [heartbeat(60), boundary("BEGIN", 70) + sent("shop.public.orders", 71, {"op": "c"})]
    engine.batches += [boundary("END", 72), heartbeat(80)]
    found = source.poll(100, 0)
    assert [one.advance["offset"]["lsn"] for one in found] == [70, 71, 72]
    assert [one.whole for one in found] == [False, False, True]
    assert [type(one.message) for one in found] == [TransactionBoundary, type(None), TransactionBoundary]
    source.close()


def test_a_connector_begins_once_its_tables_are_seen(engine: PlayedEngine) -> None:
    source = opened({})
    assert "pg_class" in engine.told[0]["tables"]
    engine.batches.append(tables(ORDERS, ("public.old_one", None, None), ("public.others", "ALTER", "false")))
    assert source.poll(100, 0) == []
    assert engine.told[1:] == [{"begin": True}]
    # The database has answered; the connector has not.
    assert not source.lag().is_heard
    engine.batches.append(b"")
    source.poll(100, 0)
    assert source.lag().is_heard
    assert source.lag().note is None
    source.close()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("public.old_one", None, None)], "no table public.orders"),
        ([ORDERS, ("public.old_bare", BARE, "false")], f"there: {BARE}"),
    ],
)
def test_tables_that_must_not_be_captured_are_refused(engine: PlayedEngine, rows: Any, says: str) -> None:
    source = opened({})
    engine.batches.append(tables(*rows))
    with pytest.raises(SourceError) as refused:
        source.poll(100, 0)
    assert says in f"{refused.value.message} {refused.value.hint}"
    assert not refused.value.transient
    # It was not told to begin, and so it has not published anything.
    assert len(engine.told) == 1
    source.close()


def test_what_is_wrong_with_tables_that_are_read_is_told(engine: PlayedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened({"offset": {"lsn": 1}})
    engine.batches += [tables(ORDERS, ("public.old_bare", BARE, "true")), b""]
    source.poll(100, 0)
    assert BARE in source.lag().note
    monkeypatch.setattr(reading, "_LOOK_SECONDS", 0)
    engine.batches.append(tables())
    source.poll(100, 0)
    assert engine.told[1:] == [{"begin": True}, {"look": True}]
    assert source.lag().note == "the database has no table public.orders, public.old*: nothing comes of it"
    engine.batches.append(tables(("public.ORDERS", None, None), ("public.Old", None, None)))
    source.poll(100, 0)
    assert source.lag().note is None
    source.close()


def test_a_name_is_no_part_of_the_statement_that_looks_for_it(engine: PlayedEngine) -> None:
    opened({}, tables="a'b%c\\d, \u00fc; DROP*").close()
    assert "LIKE 'public.a_b_c_d' OR" in engine.told[0]["tables"]
    assert "LIKE 'public.___drop%')" in engine.told[0]["tables"]
