"""One caller's changes on their way into an epoch, and how long each stage of it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.epoch.batch import Batch, Changes, Verdicts, WorkedOut
from headrace.epoch.receipt import Receipt
from headrace.epoch.work import Work


class Outdated(Exception):
    """Changes were worked out from what is no longer so."""


@dataclass(frozen=True)
class Basis:
    """What changes were worked out from: relations as of an epoch, under the definitions of that time."""

    epoch: int
    definitions: int
    relations: frozenset[str]


@dataclass(eq=False)
class Call:
    """One caller's changes; those of a statement, or why there are none, hold as long as their basis does."""

    changes: Changes
    key: str | None = None
    digest: str = ""
    quiet: bool = False
    basis: Basis | None = None
    failure: Exception | None = None
    taken: bool = False
    done: bool = False
    # Whether its verdict is that of another call, which had its key before.
    repeats: bool = False
    receipt: Receipt | None = None
    error: BaseException | None = None
    # Given by a source, whose changes stand each for itself: what else is changed once it is known what became of them.
    # Those that are rejected are left out of the epoch, and it is for this to keep them.
    after: Callable[[Verdicts], Changes] | None = None
    # All its changes, where they follow from what the epoch holds by then: events get their numbers here.
    within: Callable[[Batch], WorkedOut] | None = None
    # What its receipt tells of them.
    told: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Whether its caller hears which row a view fails on; to find it takes many tries, and every epoch waits for them.
    asks_row: bool = True
    # Who does not ask has what its epoch was given when a view failed on it, to look for rows while others go on.
    failed: Work | None = None
    # What the ledger keeps with its epoch beside the changes, such as that a source has begun or gone.
    head: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # The span in which it came into the line, where traces are sent.
    trace: Any = None
    applied: dict[str, int] = field(default_factory=dict[str, int])
    stale: dict[str, int] = field(default_factory=dict[str, int])
    dead: dict[str, int] = field(default_factory=dict[str, int])


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.started_at = time.perf_counter()
        self._last = self.started_at
        self.stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """The time since the last lap belongs to this stage."""
        now = time.perf_counter()
        self.stages[stage] = self.stages.get(stage, 0.0) + now - self._last
        self._last = now

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.perf_counter() - self.started_at
