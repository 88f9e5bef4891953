"""Sources that are Python functions: how often they are asked, and where they go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from headrace.capture.connector import Arrival, Connector, Description, Lag, laid_over
from headrace.capture.messages import RowChange
from headrace.capture.python_source import PythonReading
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.sources.decoders import Decoders
from headrace.sources.runner import Runner
from headrace.sources.running import Sources, progress_of
from headrace.sources.system_tables import dead_letters_table, progress_table, raw_table
from tests.small_engine import Host, table

LINES = {"a": ["1", "2"], "b": ["3"]}


def by_file(position: Any, options: Any) -> Iterator[Any]:
    """A tailer that names a line only within a file."""
    for name in sorted(one for one in LINES if one >= position.get("file", "")):
        begin = position.get("line", 0) if name == position.get("file") else 0
        for number, text in enumerate(LINES[name][begin:], begin + 1):
            done = number == len(LINES[name])
            yield {"insert": {"id": text}}, {"file": chr(ord(name) + 1)} if done else {"file": name, "line": number}
    yield None


def test_a_position_is_what_was_yielded_and_nothing_of_those_before() -> None:
    position: dict[str, Any] = {}
    seen: list[dict[str, Any]] = []
    for _ in range(3):
        # Begun anew after each change, as after a kill.
        (arrival,) = PythonReading(Description("s", ""), position, by_file).poll(1, 0)
        position = laid_over(position, arrival.advance)
        seen.append(position)
    assert seen == [{"file": "a", "line": 1}, {"file": "b"}, {"file": "c"}]


def test_a_function_that_never_yields_holds_up_nobody_who_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.runner.STOP_SECONDS", 0.2)
    sleeping, over = threading.Event(), threading.Event()

    class Sleeps:
        def poll(self, most: int, seconds: float) -> list[Any]:
            sleeping.set()
            over.wait(20)
            return [Arrival(Record(b"1", topic="t"), {"at": 1}, RowChange("create", ({"insert": {"id": 1, "n": 1}},)))]

        def confirm(self, position: Any) -> None: ...

        def lag(self) -> Lag:
            return Lag()

        def close(self) -> None: ...

    host = Host(table("t"), progress_table(), dead_letters_table(), raw_table("s"))
    loop = Loop(host)  # pyright: ignore[reportArgumentType]
    source = Source("s", "t", "sleeps", "", "", {}, state="Running")
    connector = Connector("SLEEPS", {}, lambda *_: Sleeps())
    read = partial(progress_of, host, "s")  # pyright: ignore[reportArgumentType]
    decoders = Decoders(host, source, connector)  # pyright: ignore[reportArgumentType]
    runner = Runner(loop, source, connector, Description("s", ""), lambda _: "t", decoders, read)
    sources = Sources(loop)
    sources._runners._running["s"] = runner  # pyright: ignore[reportPrivateUsage]
    runner.start()
    assert sleeping.wait(10)
    began = time.monotonic()
    sources.close()
    assert time.monotonic() - began < 5
    # What it brings after all is not taken.
    over.set()
    runner.stop()
    assert host.holds("t") == set()


def test_a_function_that_has_no_more_for_now_is_left_alone_for_a_while() -> None:
    asked = 0

    def idle(position: Any, options: Any) -> Iterator[Any]:
        nonlocal asked
        while True:
            asked += 1
            yield None

    began = time.monotonic()
    assert PythonReading(Description("s", ""), {}, idle).poll(10, 0.5) == []
    assert time.monotonic() - began >= 0.5
    assert 2 <= asked <= 10
