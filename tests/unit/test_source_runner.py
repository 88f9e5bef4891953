"""A source at work over a home in memory: what becomes of changes that the machine itself cannot bear."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headrace.capture.connector import Arrival, Connector, Description, Lag, Position
from headrace.capture.messages import RowChange
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.epoch.work import Work
from headrace.errors import MemoryExceeded
from headrace.sources.decoders import Decoders
from headrace.sources.runner import Runner
from headrace.sources.running import progress_of
from headrace.sources.system_tables import dead_letters_table, progress_table, raw_table
from tests.small_engine import Host, table


class Listed:
    """A source that holds so many rows."""

    def __init__(self, rows: Sequence[dict[str, Any]], _: Description, position: Position) -> None:
        self._left = list(enumerate(rows))[int(position.get("at", 0)) :]

    def poll(self, most: int, seconds: float) -> Sequence[Arrival]:
        taken, self._left = self._left[:most], self._left[most:]
        if not taken:
            time.sleep(0.01)
        return [
            Arrival(Record(b"%d" % at, topic="t", offset=at), {"at": at + 1}, RowChange("create", ({"insert": row},)))
            for at, row in taken
        ]

    def confirm(self, position: Position) -> None:
        pass

    def lag(self) -> Lag:
        return Lag(len(self._left))

    def close(self) -> None:
        pass


class Small(Host):
    """A home whose views need too much memory for one row."""

    tries = 0

    def follow(self, work: Work) -> None:
        self.tries += 1
        if 666 in work.delta_of("t").rows.column(0).to_pylist():
            raise MemoryExceeded("these changes need more memory than Spark has", detail="Alone, they ended it.")


def runner_over(host: Host, rows: Sequence[dict[str, Any]], **options: Any) -> Runner:
    loop = Loop(host)  # pyright: ignore[reportArgumentType]
    source = Source("s", "t", "listed", "", "", options, state="Running")
    connector = Connector("LISTED", {}, partial(Listed, rows))
    read = partial(progress_of, host, "s")  # pyright: ignore[reportArgumentType]
    decoders = Decoders(host, source, connector)  # pyright: ignore[reportArgumentType]
    return Runner(loop, source, connector, Description("s", ""), lambda _: "t", decoders, read)


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 20
    while not true():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.01)


def test_a_change_that_needs_more_memory_than_there_is_becomes_a_dead_letter() -> None:
    host = Small(table("t"), progress_table(), dead_letters_table(), raw_table("s"))
    rows = [{"id": number, "n": 1} for number in (*range(20), 666, *range(20, 40))]
    runner = runner_over(host, rows)
    runner.start()
    try:
        until(lambda: runner.status.progress.received == 41 or runner.status.state == "Error")
        status = runner.status
        assert (status.state, status.error) == ("Running", None)
        assert (status.progress.applied, status.progress.dead) == (40, 1)
        assert {row[0] for row in host.holds("t")} == set(range(40))
        ((letter),) = host.holds("dead_letters")
        assert letter[4] == "memory"
        assert "need more memory" in letter[5]
        assert host.tries < 20
    finally:
        runner.stop()


def test_no_more_records_are_read_a_second_than_a_source_may() -> None:
    host = Host(table("t"), progress_table(), dead_letters_table(), raw_table("s"))
    runner = runner_over(host, [{"id": number, "n": 1} for number in range(150)], max_records_per_second=100)
    began = time.monotonic()
    runner.start()
    try:
        until(lambda: runner.status.progress.received == 150)
        # The first hundred come at once, and the others when those have had their second.
        assert time.monotonic() - began >= 1.0
        assert host.epoch == 2
    finally:
        runner.stop()


def test_a_source_that_is_held_back_is_stopped_at_once() -> None:
    host = Host(table("t"), progress_table(), dead_letters_table(), raw_table("s"))
    runner = runner_over(host, [{"id": number, "n": 1} for number in range(10)], max_records_per_second=1)
    runner.start()
    until(lambda: runner.status.progress.received == 1)
    began = time.monotonic()
    runner.stop()
    assert time.monotonic() - began < 0.5
    assert runner.status.progress.received == 1
