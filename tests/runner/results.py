"""Results of tests: written by each pytest process as lines of JSON, read by the runner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Phase:
    """The collection, set-up, call or tear-down of one test."""

    test: str
    when: str
    outcome: Outcome
    seconds: float
    text: str = ""

    def to_json(self) -> str:
        """Return the phase as one line of JSON."""
        return json.dumps([self.test, self.when, self.outcome, self.seconds, self.text])

    @staticmethod
    def from_json(line: str) -> Phase:
        """Return the phase that a line of JSON describes."""
        return Phase(*json.loads(line))


@dataclass
class Result:
    """The outcome of one test: failed if any phase failed, else skipped if any was skipped."""

    test: str
    outcome: Outcome = "passed"
    seconds: float = 0.0
    text: str = ""
    ended: bool = False

    def add(self, phase: Phase) -> None:
        """Add a phase; the text is that of the first failure, or the reason of the skip."""
        self.seconds += phase.seconds
        self.ended = self.ended or phase.when == "teardown"
        if phase.outcome == "failed" and self.outcome != "failed":
            self.outcome, self.text = "failed", phase.text
        elif phase.outcome == "skipped" and self.outcome == "passed":
            self.outcome, self.text = "skipped", phase.text

    @property
    def first_error(self) -> str:
        """The line of a failure's text that says what went wrong.

        The lines of each exception stand together, the one that the test ended with last.
        """
        lines = self.text.splitlines()
        errors = [number for number, line in enumerate(lines) if line.startswith("E ")]
        heads = [lines[number][1:].strip() for number in errors if number - 1 not in errors]
        return next(iter(heads[-1:] or lines), "")


@dataclass
class Results:
    """The results of all tests of a run, by test."""

    by_test: dict[str, Result] = field(default_factory=dict[str, Result])

    def add(self, phases: Iterable[Phase]) -> None:
        """Add phases to the results of their tests."""
        for phase in phases:
            self.by_test.setdefault(phase.test, Result(phase.test)).add(phase)

    def fail_unended(self) -> None:
        """Turn the tests that were selected and did not end into failures."""
        for result in self.by_test.values():
            if not result.ended:
                result.outcome, result.text = (
                    "failed",
                    "E  the test did not end: its process ended before it\n" + result.text,
                )

    def of(self, outcome: Outcome) -> list[Result]:
        """Return the results with an outcome."""
        return [result for result in self.by_test.values() if result.outcome == outcome]

    def slowest(self, count: int) -> list[Result]:
        """Return the results of the tests that took longest."""
        return sorted(self.by_test.values(), key=lambda result: -result.seconds)[:count]


class PhaseReader:
    """Reads the phases that another process appends to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_phases(self) -> Iterator[Phase]:
        """Yield the phases that were written since the last call; a line that is not finished waits for the next."""
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield Phase.from_json(line.decode())
