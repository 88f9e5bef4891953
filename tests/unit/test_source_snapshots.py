"""What is asked of a source while it goes on: neither its position nor its counts are ever set back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from headrace.capture.connector import Connector, Description, Position
from headrace.capture.debezium.reading import again, with_snapshot
from headrace.capture.kafka import KAFKA
from headrace.epoch.loop import Loop
from headrace.sources.connectors import CONNECTORS
from headrace.sources.runner import Runner
from headrace.sources.running import progress_of
from headrace.sources.snapshots import asked_of, move
from headrace.sql.syntax import SourceAction
from tests.small_engine import Host, rows
from tests.unit.test_raw_kept import LOG, home, running
from tests.waiting import until


def snapshot(_: Description, tables: Sequence[str], asked: str) -> Position:
    return with_snapshot(tables, asked)


def having_snapshots() -> None:
    cast("dict[str, Connector]", CONNECTORS)["topic"] = replace(CONNECTORS["topic"], snapshot=snapshot, again=again)


def waiting_for_its_turn(runner: Runner, log: list[bytes]) -> Loop:
    """The loop of a source that has read more, which waits in line, for it is our turn."""
    loop: Any = runner._loop  # pyright: ignore[reportPrivateUsage]
    log.extend(LOG[10:])
    until(lambda: len(loop._waiting) == 1)
    return loop


def statement(verb: str, tables: tuple[str, ...] = (), with_snapshot: bool = False) -> SourceAction:
    told: Any = {"verb": verb, "tables": tables, "with_snapshot": with_snapshot}
    return SourceAction(sql="", line=1, column=1, name="s", if_exists=False, **told)


def raw_ids(host: Host) -> Counter[str]:
    return Counter({row[0]: count for row, count in rows(cast("Any", host.stores["s_raw"].snapshot())).items()})


def test_what_came_while_a_snapshot_was_asked_for_is_not_taken_twice() -> None:
    host, log = home(), list(LOG[:10])
    core = cast("Any", host)
    with running(host, log) as runner:
        having_snapshots()
        until(lambda: runner.status.progress.received == 10)
        with cast("Any", runner)._loop.turn:
            loop = waiting_for_its_turn(runner, log)
            asked = asked_of(core, statement("snapshot", ("t",)))
            assert asked is not None
            move(loop, host.catalog.sources["s"], asked)
        until(lambda: progress_of(core, "s").received == len(LOG))
        position = progress_of(core, "s").position
        assert (position["at"], position["asked"]["tables"]) == (len(LOG), ["t"])
        anew = asked_of(core, statement("resume", with_snapshot=True))
        assert anew is not None
        move(loop, host.catalog.sources["s"], anew)
        assert progress_of(core, "s").position == {"at": len(LOG), "again": True}
    assert set(raw_ids(host).values()) == {1}
    assert len(raw_ids(host)) == len(LOG)


def test_nothing_is_asked_where_no_table_is_read_anew() -> None:
    host = home()
    with running(host, list(LOG[:3])):
        assert asked_of(cast("Any", host), statement("pause")) is None
    assert asked_of(cast("Any", host), replace(statement("snapshot"), name="other")) is None


def test_a_signal_by_kafka_moves_no_position() -> None:
    kafka: Any = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 3})
    broker = next(iter(producer.list_topics(timeout=90).brokers.values()))
    described = Description("s", f"{broker.host}:{broker.port}/shop.t", {"signal_topic": "signals"})
    assert KAFKA.snapshot is not None
    assert KAFKA.snapshot(described, ["public.t"], "1") == {}
