"""Sources that are Python functions: how often they are asked, and where they go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from headrace.capture.connector import Description, laid_over
from headrace.capture.python_source import PythonReading

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
