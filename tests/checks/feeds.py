"""Changefeeds under a random state machine: `python -m tests.checks.feeds --seeds 200`.

A seed is a home with two tables (or, with --spark, a table and a view), feeds into files, a log of ours and real
servers (Kafka, with and without transactions, PostgreSQL and Redis, one set for all seeds), and a row of lives that are
forked. Each life changes the source, pauses, resumes, alters, tells anew, and has the sinks fail, refuse, be slow and
be down; most are killed with kill -9 at a random instant, and so are the servers. The last one has the sinks well
again, waits until all is told, and then it is judged:

- no event is missing since the last RESET, but for those that are parked;
- a number stands for the same event whenever it is told again;
- events of a key come in order, and after a step back all that follow come again;
- the table that is rebuilt from the feed equals the relation at every resolved mark, and at the end; so do the tables
  that PostgreSQL and Redis hold, whenever one looks at them, at the mark that they hold in the same instant;
- events that came more than once are counted; files, PostgreSQL and Kafka with exactly_once have none.

`--stop` tries two owners: one is stopped, another takes its place, and the first one wakes up; no position, of the home
or of a sink, ever goes back. `--bare` is without servers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random
from typing import Any

from tests.checks.feed_lives import Life, live
from tests.checks.feed_places import Addresses
from tests.checks.feed_servers import RealServers, Watch
from tests.checks.jvm import Address, Keeper
from tests.kafka_reading import committed

_OPENING_SECONDS = 240.0
# More than a judge waits until all is settled.
_ENDING_SECONDS = 480.0


@dataclass
class Tally:
    """What a run comes to."""

    seeds: int = 0
    lives: int = 0
    kills: int = 0
    restarts: Counter[str] = field(default_factory=Counter[str])
    events: Counter[str] = field(default_factory=Counter[str])
    twice: Counter[str] = field(default_factory=Counter[str])
    parked: int = 0
    marks: int = 0
    resets: int = 0
    faults: list[str] = field(default_factory=list[str])

    def add(self, other: Mapping[str, Any]) -> None:
        self.events.update(other["events"])
        self.twice.update(other["twice"])
        self.parked += other["parked"]
        self.marks += other["marks"]
        self.resets += other["resets"]

    def line(self) -> str:
        events = ", ".join(
            f"{name} {count}" + (f" ({self.twice[name]} twice)" if name in self.twice else "")
            for name, count in self.events.items()
        )
        restarts = "".join(f", {count} of {name}" for name, count in self.restarts.items())
        return (
            f"{self.seeds} seeds, {self.lives} lives, {self.kills} kills{restarts}, events {events}, "
            f"{self.parked} parked, {self.resets} resets, {self.marks} marks, {len(self.faults)} faults"
        )


class FeedsCheck:
    """Lives of homes with feeds, over one Spark and one set of servers."""

    def __init__(self, spark: bool = False, servers: bool = True) -> None:
        self._has_spark = spark
        self._processes: ForkServerContext = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(
            ["tests.checks.feed_judge", "tests.checks.feed_servers", "tests.bare_home", "headrace"]
        )
        self._keeper = Keeper(self._processes)
        self._servers = RealServers() if servers else None
        self.missing = self._servers.missing if self._servers else ""
        self.tally = Tally()

    def __enter__(self) -> FeedsCheck:
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.close()
        if self._servers is not None:
            self._servers.close()

    def seed(self, seed: int) -> None:
        """One home through its lives."""
        dice = Random(seed)
        with _Home(self, seed, self._servers, self._spark(), dice) as home:
            lives = dice.randrange(2, 5)
            longest = 1.5 if self._has_spark or home.addresses.bootstrap else 0.5
            for number in range(lives):
                # Most are killed: on the way, or when they have done all that they were to do.
                kill_after = dice.uniform(0.0, longest) if dice.random() < 0.8 else None
                home.disturb(dice, longest / 2)
                self.lived(home.life(number), kill_after)
            home.judge(lives)

    def two_owners(self, seed: int) -> None:
        """One owner is stopped, another takes its place and goes on, and the first one wakes up."""
        dice = Random(seed)
        with _Home(self, seed, self._servers, self._spark(), dice) as home:
            first, other = self._processes.Pipe()
            sleeper = self._processes.Process(
                target=live, args=(home.life(0, timeout=1.0, idle=60.0), other), daemon=True
            )
            sleeper.start()
            other.close()
            assert first.poll(_OPENING_SECONDS), "the first owner did not open its home"
            pid = first.recv()["ready"]
            time.sleep(dice.uniform(0.05, 1.0))
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(1.5)
                seen = [_furthest(home.folder)]
                self.lived(home.life(1, timeout=1.0), None)
                seen.append(_furthest(home.folder))
                os.kill(pid, signal.SIGCONT)
                for _ in range(20):
                    time.sleep(0.05)
                    seen.append(_furthest(home.folder))
            finally:
                sleeper.kill()
                sleeper.join()
            for before, after in itertools.pairwise(seen):
                back = [name for name in before if after.get(name, (0, 0)) < before[name]]
                if back:
                    home.fault(f"the position of {back} went from {before} to {after}")
            home.judge(2, late=True)

    def _spark(self) -> Address | None:
        return self._keeper.address() if self._has_spark else None

    def lived(self, life: Life, kill_after: float | None) -> dict[str, Any]:
        """Have a life lived, or a part of it; what it tells at its end."""
        line, other = self._processes.Pipe()
        process = self._processes.Process(target=live, args=(life, other))
        process.start()
        other.close()
        self.tally.lives += 1
        answer: dict[str, Any] = {}
        try:
            if not line.poll(_OPENING_SECONDS):
                answer = {"fault": "a life did not open its home"}
            else:
                answer = line.recv()
                if "ready" in answer:
                    killed = kill_after is not None and not line.poll(kill_after)
                    # Or it has done all that it was to do, and is not given the time to close its home.
                    self.tally.kills += kill_after is not None
                    if not killed:
                        ended = line.poll(_ENDING_SECONDS)
                        answer = line.recv() if ended else {"fault": "a life did not end"}
                        if kill_after is None:
                            process.join(_OPENING_SECONDS)
        except EOFError:
            answer = {"fault": "a life ended by itself"}
        finally:
            # Its JVM is another's; whatever it was doing ends here.
            process.kill()
            process.join()
            line.close()
        if "fault" in answer:
            self.tally.faults.append(f"seed {life.seed}: {answer['fault']}")
        return answer


class _Home:
    """The home of a seed, and what is watched of its sinks."""

    def __init__(
        self, check: FeedsCheck, seed: int, servers: RealServers | None, spark: Address | None, dice: Random
    ) -> None:
        self._check = check
        self._seed = seed
        self._servers = servers
        self._spark = spark
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-feeds-"))
        self.addresses = servers.addresses(dice) if servers else Addresses()
        self._watch = Watch(self.addresses)
        self._restarts = servers.restarts(self.addresses, dice) if servers else []
        self._under_way: list[threading.Thread] = []

    def __enter__(self) -> _Home:
        self._watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.__exit__()
        for one in self._under_way:
            one.join()
        if self._servers is not None:
            self._servers.forget(self.addresses)
        if any(one.startswith(f"seed {self._seed}:") for one in self._check.tally.faults) and os.environ.get("KEEP"):
            shutil.copytree(self.folder, Path(os.environ["KEEP"]) / f"seed-{self._seed}", dirs_exist_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._check.tally.seeds += 1

    def life(self, number: int, **parts: Any) -> Life:
        return Life(self.folder, self._spark, self._seed, number, servers=self.addresses, **parts)

    def fault(self, what: str) -> None:
        self._check.tally.faults.append(f"seed {self._seed}: {what}")

    def disturb(self, dice: Random, longest: float) -> None:
        """Have a server killed and started again while the next life is at work, if one is to be."""
        if not self._restarts:
            return
        name, restart = self._restarts.pop()
        self._check.tally.restarts[name] += 1
        thread = threading.Timer(dice.uniform(0, longest), restart)
        thread.start()
        self._under_way.append(thread)

    def judge(self, number: int, late: bool = False) -> None:
        """Have the last life say what is wrong."""
        for one in self._under_way:
            one.join()
        self._watch.__exit__()
        (self.folder / "seen.json").write_text(json.dumps([asdict(one) for one in self._watch.seen]))
        answer = self._check.lived(self.life(number, last=True, late=late), None)
        done = answer.get("done", {})
        if done:
            self._check.tally.add(done)
        for fault in (*done.get("faults", ()), *self._watch.went_back(), *self._transactions_went_back()):
            self.fault(fault)

    def _transactions_went_back(self) -> list[str]:
        """Where a transaction of Kafka had less, or was of an earlier owner, than one before it."""
        if not self.addresses.bootstrap:
            return []
        told = [json.loads(one.value()) for one in committed(self.addresses, f"{self.addresses.topic}-once.progress")]
        marks = [(one["fence"], (one["mark"] or [0, 0, 0])[2], one["told"]) for one in told]
        return [
            f"the transactions of Kafka went from {before} back to {after}"
            for before, after in itertools.pairwise(marks)
            if any(now < then for now, then in zip(after, before, strict=True))
        ]


def _furthest(folder: Path) -> dict[str, tuple[int, int]]:
    """How far each feed is, by the furthest of all its files."""
    found: dict[str, tuple[int, int]] = {}
    for path in (folder / "home" / "feeds").glob("*/*.json"):
        with suppress(OSError, ValueError):
            told = json.loads(path.read_text())
            found[path.parent.name] = max(found.get(path.parent.name, (0, 0)), (told["sequence"], told["epoch"]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds; 1 when anything was lost, out of order, doubled where it must not be, or wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.feeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, help="the number of the first seed")
    parser.add_argument("--stop", action="store_true", help="two owners, of which one is stopped and wakes up")
    parser.add_argument("--spark", action="store_true", help="with a view and a filter, over one Spark")
    parser.add_argument("--bare", action="store_true", help="without Kafka, PostgreSQL and Redis")
    parser.add_argument("--go-on", action="store_true", help="do not end with the first fault")
    options = parser.parse_args(arguments)
    began_at = time.monotonic()
    with FeedsCheck(options.spark, not options.bare) as check:
        tally = check.tally
        if check.missing:
            print(f"Redis is left out: {check.missing}")
        for seed in range(options.first, options.first + options.seeds):
            faults = len(tally.faults)
            (check.two_owners if options.stop else check.seed)(seed)
            for fault in tally.faults[faults:]:
                print(fault[:4000])
            if seed % 10 == 0 or tally.faults[faults:]:
                print(f"{seed}: {tally.line()}, {time.monotonic() - began_at:.0f} s", flush=True)
            if tally.faults and not options.go_on:
                break
    print(tally.line(), flush=True)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
