"""Snapshots that are asked for while a source goes on: its position is never set back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.capture.connector import Connector, Description, Position
from headrace.capture.debezium.reading import again, with_snapshot
from headrace.capture.kafka import KAFKA
from headrace.epoch.loop import Loop
from headrace.sources.connectors import CONNECTORS
from headrace.sources.running import progress_of
from headrace.sources.snapshots import ask_for_snapshot, begin_anew
from tests.unit.test_raw_kept import LOG, home, running, until


def connector_that_is_slow_to_answer(log: list[bytes], reached: Any) -> Connector:
    """Its database answers only after more changes were taken."""

    def snapshot(_: Description, tables: Sequence[str], asked: str) -> Position:
        log.extend(LOG[10:])
        until(reached)
        return with_snapshot(tables, asked)

    return replace(CONNECTORS["topic"], snapshot=snapshot, again=again)


def test_what_came_while_a_snapshot_was_asked_for_is_not_read_again() -> None:
    host, log = home(), list(LOG[:10])
    core = cast("Any", host)
    with running(host, log) as runner:
        until(lambda: runner.status.progress.received == 10)
        connectors = cast("dict[str, Connector]", CONNECTORS)
        connectors["topic"] = connector_that_is_slow_to_answer(log, lambda: runner.status.progress.received == len(LOG))
        source = host.catalog.sources["s"]
        ask_for_snapshot(Loop(core), source, ["t"])
        position = progress_of(core, "s").position
        assert position["at"] == len(LOG)
        assert position["asked"]["tables"] == ["t"]
        begin_anew(Loop(core), source)
        assert progress_of(core, "s").position == {"at": len(LOG), "again": True}


def test_a_signal_by_kafka_moves_no_position() -> None:
    kafka: Any = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 3})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    described = Description("s", f"{broker.host}:{broker.port}/shop.t", {"signal_topic": "signals"})
    assert KAFKA.snapshot is not None
    assert KAFKA.snapshot(described, ["public.t"], "1") == {}
