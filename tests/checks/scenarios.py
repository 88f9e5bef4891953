"""The scenarios that every check goes through unchanged: nothing happens, restarts, a kill at each named point, an
error at each of them, kills at random instants. Each has a home of its own, lived in by one process after another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random

from headrace.ledger.durable import RAISED
from tests.checks.book import BY_NAME
from tests.checks.jvm import Address, Keeper
from tests.checks.worker import Life, Said, live
from tests.object_store import ObjectStore

# In the order in which a life passes them, but for the one that needs what another leaves behind.
POINTS = (
    "log written",
    "log named",
    "home claimed",
    "epoch prepared",
    "files written",
    "file written",
    "data written",
    "committed",
    "epoch committed",
    "epoch shown",
    "replacement written",
    "rows written",
    "base written",
    "base committed",
    "checkpoint written",
    "checkpoint sealed",
    "log trimmed",
    "base dropped",
    "segment written",
    "ruins swept",
    "segment committed",
    "file swept",
)
# A life passes these once, or not often enough to count on more.
_ONCE = ("home claimed", "ruins swept", "base dropped")
_PATIENCE = 300.0
_LIVES_PER_HOME = 25
_WITH_SPARK = 20


@dataclass(frozen=True)
class Finding:
    """A fault with what repeats it."""

    kind: str
    text: str
    repeat: str


@dataclass
class Tally:
    """What was done so far."""

    runs: int = 0
    kills: int = 0
    spark_kills: int = 0
    raises: int = 0
    epochs: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    unreached: list[str] = field(default_factory=list[str])

    def count(self, kind: str) -> int:
        return sum(finding.kind == kind for finding in self.findings)

    def line(self) -> str:
        kinds = ", ".join(f"{self.count(kind)} {kind}" for kind in ("lost", "duplicated", "orphaned", "wrong"))
        kills = f"{self.kills} kills ({self.spark_kills} with Spark)"
        return f"{self.runs} runs, {kills}, {self.raises} errors raised, {self.epochs} epochs: {kinds}"


class CrashTest:
    """Where lives are lived: a process that has everything loaded forks them, and all share one Spark."""

    def __init__(
        self, seed: int, said: Callable[[str], None] = lambda line: None, store: ObjectStore | None = None
    ) -> None:
        self.seed = seed
        self.store = store
        self.tally = Tally()
        self._said = said
        self._processes: ForkServerContext = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.checks.worker"])
        self._spark = Keeper(self._processes)
        self._rng = Random(seed)
        self._opening, self._staying = 5.0, 4.0
        # Four hundred actions, until one drops a view, take their time where each waits for several answers.
        self._patience = _PATIENCE if store is None else 3 * _PATIENCE

    def __enter__(self) -> CrashTest:
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.close()

    def quiet(self, check: str, actions: int = 15) -> None:
        """No crash."""
        with _Stage(self, check, "quiet") as stage:
            stage.live(actions)

    def restarts(self, check: str, lives: int = 4, actions: int = 3) -> None:
        """The home is closed and opened between steps."""
        with _Stage(self, check, "restarts") as stage:
            for _ in range(lives):
                stage.live(actions)

    def points(self, check: str, points: tuple[str, ...] = POINTS, most_passes: int = 2) -> None:
        """kill -9 at each named point of commit, fold, compaction, checkpoint and recovery."""
        with _Stage(self, check, "points") as stage:
            for point in points:
                if point == "base dropped" and not BY_NAME[check].drops:
                    continue
                passes = 0 if point in _ONCE else self._rng.randrange(most_passes + 1)
                if not stage.live(_actions_until(point), crash_at=f"{point}:{passes}") and not stage.failed:
                    self.tally.unreached.append(f"{check}: {point}")

    def raises(self, check: str, points: tuple[str, ...] = POINTS, most_passes: int = 2) -> None:
        """Ctrl-C, an unforeseen error or a full disk at each named point; the process goes on."""
        rng = Random(f"raises-{check}-{self.seed}")
        kinds = list(RAISED)
        with _Stage(self, check, "raises") as stage:
            for point in points:
                if point == "base dropped" and not BY_NAME[check].drops:
                    continue
                if point == "ruins swept":
                    # Only who was killed leaves ruins.
                    stage.live(60, crash_at="data written:0")
                passes = 0 if point in _ONCE else rng.randrange(most_passes + 1)
                raised = stage.raised
                stage.live(_actions_until(point), crash_at=f"{point}!{rng.choice(kinds)}:{passes}")
                if stage.raised == raised and not stage.failed:
                    self.tally.unreached.append(f"{check}: {point}, raising")

    def instants(self, check: str, kills: int) -> None:
        """kill -9 at random instants; a part of them while the home is being opened, some together with Spark."""
        left = kills
        while left > 0:
            with _Stage(self, check, "instants") as stage:
                for _ in range(min(left, _LIVES_PER_HOME)):
                    with_spark = self.tally.kills % _WITH_SPARK == _WITH_SPARK - 1
                    left -= stage.live(100_000, killed=True, with_spark=with_spark)
                    if stage.failed:
                        return

    def run(self, life: Life, killed: bool, with_spark: bool) -> tuple[bool, list[Said]]:
        """Live one life; whether it was killed, and what it said."""
        line, other = self._processes.Pipe()
        process = self._processes.Process(target=live, args=(life, other))
        process.start()
        other.close()
        said: list[Said] = []
        assert process.pid is not None
        while_opening = self._rng.random() < 0.25
        instant = self._rng.random()
        began, ends = time.monotonic(), time.monotonic() + self._patience
        died = False
        while True:
            if not line.poll(max(ends - time.monotonic(), 0)):
                os.kill(process.pid, signal.SIGKILL)
                died = True
                if with_spark:
                    self._spark.kill()
                    self.tally.spark_kills += 1
                break
            try:
                one: Said = line.recv()
            except (EOFError, ConnectionError):
                break
            said.append(one)
            now = time.monotonic()
            if one.word == "opening":
                began = now
                if killed and while_opening:
                    ends = now + instant * self._opening
            elif one.word == "ready":
                self._opening = 0.7 * self._opening + 0.3 * (now - began)
                if killed:
                    ends = now + instant * self._staying
        process.join()
        line.close()
        if not killed and died:
            said.append(Said("stuck"))
        return died or process.exitcode == -signal.SIGKILL, said

    def spark(self) -> Address:
        """Where the shared Spark is; it is started again if it was killed."""
        return self._spark.address()

    def say(self) -> None:
        self._said(self.tally.line())


def _actions_until(point: str) -> int:
    """So many actions pass a point for certain; only one of many drops a view, so that one may be long in coming."""
    return 400 if point == "base dropped" else 60


class _Stage:
    """One home and the lives in it; at the end all of it is validated once more."""

    def __init__(self, crash_test: CrashTest, check: str, scenario: str) -> None:
        self._crash_test = crash_test
        self._check = check
        self._scenario = scenario
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-crash-", ignore_cleanup_errors=True)
        self._number = 0
        self.failed = False
        self.raised = 0
        self._epoch = 0

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self.failed:
            self.live(0, thorough=True)
        self._crash_test.tally.epochs += self._epoch
        self._folder.cleanup()

    def live(
        self,
        actions: int,
        *,
        crash_at: str = "",
        killed: bool = False,
        with_spark: bool = False,
        thorough: bool = False,
    ) -> bool:
        """One life; whether it ended by a kill."""
        if self.failed:
            return False
        crash_test = self._crash_test
        spark = crash_test.spark()
        folder = Path(self._folder.name)
        life = Life(self._check, crash_test.seed, self._number, folder, spark, actions, crash_at, thorough)
        if crash_test.store is not None:
            options = tuple(crash_test.store.options.items())
            life = replace(life, uri=crash_test.store.uri(folder.name), options=options)
        self._number += 1
        died, said = crash_test.run(life, killed, with_spark)
        crash_test.tally.runs += 1
        crash_test.tally.kills += died
        raised = sum(one.raised for one in said)
        crash_test.tally.raises += raised
        self.raised += raised
        self._epoch = max([self._epoch, *(one.epoch for one in said)])
        self._blame(life, died, said)
        crash_test.say()
        return died

    def _blame(self, life: Life, died: bool, said: list[Said]) -> None:
        faults = [(fault.kind, fault.text) for one in said for fault in one.faults]
        if any(one.word == "stuck" for one in said):
            faults.append(("wrong", "it did nothing for many minutes"))
        elif not died and (not said or said[-1].word != "done"):
            faults.append(("wrong", "the process ended without a word"))
        point = f" {life.crash_at}" if life.crash_at else ""
        repeat = f"--seed {life.seed} --check {life.check} --scenario {self._scenario}"
        repeat += " --object-store" if life.uri else ""
        for kind, text in faults:
            self.failed = True
            where = f"check {life.check}, scenario {self._scenario}{point}, life {life.number}: "
            self._crash_test.tally.findings.append(Finding(kind, where + text, repeat))
