"""Sources that are Python functions: how often they are asked, and where they go on."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from headrace.capture.connector import Arrival, Connector, Description, Lag, laid_over
from headrace.capture.messages import RowChange
from headrace.capture.python_source import PythonReading
from headrace.capture.record import Record
from headrace.catalog.catalog import Source
from headrace.epoch.loop import Loop
from headrace.errors import SourceError, SourceUnavailable
from headrace.sources.conservation import imbalances
from headrace.sources.running import Sources
from headrace.sources.system_tables import DEAD_LETTERS
from tests.small_sources import runner_of, source_home
from tests.waiting import until

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


@pytest.mark.parametrize(
    ("yielded", "kept"),
    [
        ({"at": (1, (2, "x"))}, {"at": [1, [2, "x"]]}),
        ({1: 2, "a": 1.5}, {"1": 2, "a": 1.5}),
        ({"at": True, "half": "\ud800"}, {"at": True, "half": "\ud800"}),
    ],
)
def test_a_position_is_known_again_as_it_is_kept(yielded: Any, kept: Any) -> None:
    def tail(position: Any, options: Any) -> Iterator[Any]:
        yield {"insert": {"id": 1}}, yielded

    (arrival,) = PythonReading(Description("s", ""), {}, tail).poll(1, 0)
    assert laid_over({}, arrival.advance) == kept


def test_a_source_whose_positions_have_tuples_goes_on_after_its_first_batch(caplog: pytest.LogCaptureFixture) -> None:
    def tail(position: Any, options: Any) -> Iterator[Any]:
        for number in range(position.get("at", [0])[0], 3):
            yield {"insert": {"id": number, "n": 1}}, {"at": (number + 1,)}
            yield None

    host: Any = source_home()
    source = Source("s", "t", "python", "", "", {}, state="Running")
    runner = runner_of(Loop(host), source, Connector("PYTHON", {}, lambda *given: PythonReading(*given, tail)))
    runner.start()
    try:
        until(lambda: runner.status.progress.applied == 3)
        assert caplog.messages == []
    finally:
        runner.stop()


@pytest.mark.parametrize("position", [{"at": math.nan}, {"on": date(2026, 1, 1)}, {"at": {1}}, {"at": 10**5000}, 7])
def test_a_position_that_cannot_be_kept_is_refused(position: Any) -> None:
    def tail(*_: Any) -> Iterator[Any]:
        yield {"insert": {"id": 1}}, position

    with pytest.raises(SourceError, match="my:tail yields a position that cannot be kept"):
        PythonReading(Description("s", "my:tail"), {}, tail).poll(1, 0)


def test_records_of_one_position_are_told_apart_and_are_the_same_when_read_again() -> None:
    def tail(*_: Any) -> Iterator[Any]:
        for at in (1, 1, 2, 2, 2):
            yield b"x", {"at": at}

    reading, again = (PythonReading(Description("s", ""), {}, tail) for _ in range(2))
    one_by_one = [reading.poll(1, 0)[0].record.event_id for _ in range(5)]
    assert one_by_one == [one.record.event_id for one in again.poll(5, 0)]
    assert len(set(one_by_one)) == 5


def test_records_of_one_position_that_cannot_be_read_are_a_letter_each() -> None:
    def tail(position: Any, options: Any) -> Iterator[Any]:
        for line in (b"one", b"two", b"three") if not position else ():
            yield line, {"file": 1}

    host: Any = source_home()
    source = Source("s", "t", "python", "", "", {"max_records": 2}, state="Running")
    connector = Connector("PYTHON", {}, lambda *given: PythonReading(*given, tail), has_format=True)
    runner = runner_of(Loop(host), source, connector)
    runner.start()
    try:
        until(lambda: runner.status.progress.dead == 3)
    finally:
        runner.stop()
    assert {one[6] for one in host.holds(DEAD_LETTERS)} == {"one", "two", "three"}
    assert imbalances(replace(host.catalog, sources={"s": source}), host.relations()) == []


def test_a_function_that_never_yields_holds_up_nobody_who_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.runner.STOP_SECONDS", 0.2)
    sleeping, over = threading.Event(), threading.Event()

    class Sleeps:
        def poll(self, most: int, seconds: float) -> list[Any]:
            sleeping.set()
            over.wait(600)
            return [Arrival(Record(b"1", topic="t"), {"at": 1}, RowChange("create", ({"insert": {"id": 1, "n": 1}},)))]

        def confirm(self, position: Any) -> None: ...

        def lag(self) -> Lag:
            return Lag()

        def close(self) -> None: ...

    host = source_home()
    loop = Loop(host)  # pyright: ignore[reportArgumentType]
    source = Source("s", "t", "sleeps", "", "", {}, state="Running")
    connector = Connector("SLEEPS", {}, lambda *_: Sleeps())
    runner = runner_of(loop, source, connector)
    sources = Sources(loop)
    sources._runners._running["s"] = runner  # pyright: ignore[reportPrivateUsage]
    runner.start()
    assert sleeping.wait(90)
    sources.close()
    assert not over.is_set()
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
    assert 1 <= asked <= 10


def no_json(position: Any, options: Any) -> Iterator[Any]:
    """A tailer that meets what it cannot read."""
    yield {"insert": {"id": 1}}, {"line": 1}
    json.loads("no")


def test_an_error_of_a_function_names_its_line_and_what_has_it_go_on() -> None:
    reading = PythonReading(Description("s", "wards:tail"), {}, no_json)
    reading.poll(1, 0)
    with pytest.raises(SourceError) as told:
        reading.poll(1, 0)
    line = no_json.__code__.co_firstlineno + 3
    assert told.value.message == f"wards:tail raised JSONDecodeError at {__file__}, line {line}"
    assert told.value.detail == "Expecting value: line 1 column 1 (char 0)."
    assert "RESUME SOURCE s;" in told.value.hint


@pytest.mark.parametrize("raised", [OSError("gone"), SourceUnavailable("not now")])
def test_what_may_pass_is_raised_as_it_is(raised: Exception) -> None:
    def away(position: Any, options: Any) -> Iterator[Any]:
        raise raised

    with pytest.raises(type(raised)) as told:
        PythonReading(Description("s", ""), {}, away).poll(1, 0)
    assert told.value is raised
