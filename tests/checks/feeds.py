"""Changefeeds under a random state machine: `python -m tests.checks.feeds --seeds 200`.

A seed is a home with two tables (or, with --spark, a table and a view) and three feeds, and a row of lives that are
forked. Each life changes the source, pauses, resumes, alters, tells anew, and has the sinks fail, refuse, be slow and
be down; most are killed with kill -9 at a random instant. The last one has the sinks well again, waits until all is
told, and then it is judged:

- no event is missing, but for those that are parked, and numbers jump at a RESET alone;
- a number stands for the same event whenever it is told again;
- events of a key come in order, and after a step back all that follow come again;
- the table that is rebuilt from the feed equals the relation at every resolved mark, and at the end;
- events that came more than once are counted; a sink that knows its own mark has none.

`--stop` tries two owners: one is stopped, another takes its place, and the first one wakes up.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from random import Random
from typing import Any

from headrace.feeds.batch import Batch, Mark
from headrace.feeds.json_events import event_texts
from headrace.feeds.sink import Delivery, EventsRefused, SinkUnavailable, Target
from tests.checks.jvm import Address, Keeper, attach

_OPENING_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
_KEYS = 8
# Feeds, what each tells of, where to, and whether its sink must have no event twice.
Places = Mapping[str, tuple[str, str, bool]]
PLACES: Places = {"log": ("t", "WEBHOOK", False), "files": ("t", "FILES", True), "bag": ("b", "WEBHOOK", False)}
# Views and filters are Spark's.
SPARK_PLACES: Places = {
    "log": ("t", "WEBHOOK", False),
    "files": ("v", "FILES", True),
    "some": ("t", "WEBHOOK", False),
}
# What a table has no key for is known by all its columns.
_KEYS_OF = {"t": ("id",), "v": ("s",), "b": ("x", "y")}
_FILTER = "n % 2 = 0"
_VIEW = "CREATE VIEW IF NOT EXISTS v AS SELECT s, count(*) AS c, sum(n) AS total FROM t GROUP BY s"


class LogSink:
    """A receiver that outlives whoever tells it: a file to which each event is appended as it arrives."""

    keyword = "WEBHOOK"
    options: Mapping[str, str] = {}
    secrets: frozenset[str] = frozenset()

    def check(self, target: Target) -> None:
        """Any file will do."""

    def open(self, target: Target) -> Delivery:
        mood = _mood(target.location)
        if mood == "down":
            raise SinkUnavailable("it is down")
        return LogDelivery(target.location)

    def forget(self, target: Target) -> None:
        """The log stays."""


class LogDelivery:
    """An open log."""

    tells_resets = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._dice = Random()

    def known_mark(self) -> Mark | None:
        return None

    def deliver(self, batch: Batch) -> None:
        mood = _mood(self._path)
        if mood == "slow":
            time.sleep(self._dice.uniform(0, 0.1))
        refused: dict[int, str] = {}
        held: set[int] = set()
        blocked: set[str] = set()
        cut = self._dice.randrange(len(batch) + 1) if mood == "fails" and self._dice.random() < 0.6 else None
        for index, text in enumerate(event_texts(batch)):
            if index == cut:
                break
            event = json.loads(text)
            key = json.dumps(event["key"])
            if key in blocked:
                held.add(index)
            elif mood == "refuses" and event["key"] and event["key"].get("id") == 3:
                refused[index] = "it is not wanted"
                blocked.add(key)
            else:
                os.write(self._file, text + b"\n")
        if cut is not None or mood == "down":
            raise SinkUnavailable("it failed in the middle")
        if refused:
            raise EventsRefused(refused, frozenset(held))

    def resolved(self, mark: Mark, epoch_committed_at: float) -> None:
        os.write(self._file, json.dumps({"resolved": mark.epoch, "upto": mark.sequence}).encode() + b"\n")

    def begin_scan(self, columns: Any) -> None:
        """A log needs no beginning."""

    def end_scan(self, mark: Mark) -> None:
        """A log needs no end."""

    def close(self) -> None:
        os.close(self._file)


def _mood(path: str) -> str:
    with suppress(OSError):
        return Path(f"{path}.mood").read_text()
    return "well"


@dataclass(frozen=True)
class Life:
    """What one process is to do."""

    folder: Path
    # None for a home of tables alone, which opens in no time.
    spark: Address | None
    seed: int
    number: int
    last: bool = False
    # How long an owner may be silent before another takes its place.
    timeout: float = 30.0
    idle: float = 0.0
    # Whether an owner woke up that another had replaced: what it had under way then arrives late, which no receiver
    # is fooled by that compares sequences.
    late: bool = False

    @property
    def places(self) -> Places:
        return PLACES if self.spark is None else SPARK_PLACES


@dataclass
class Tally:
    """What a run comes to."""

    seeds: int = 0
    lives: int = 0
    kills: int = 0
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
        self.faults += other["faults"]


def live(life: Life, parent: Connection) -> None:
    """Live one life, and tell the parent how it ended."""
    try:
        _live(life, parent)
    except BaseException:
        parent.send({"fault": traceback.format_exc()})


def _live(life: Life, parent: Connection) -> None:
    from headrace.feeds import blocked, sinks

    sinks.SINKS["webhook"] = LogSink()  # pyright: ignore[reportIndexIssue]
    blocked._FIRST_PAUSE, blocked._LONGEST_PAUSE = 0.02, 0.2  # pyright: ignore[reportPrivateUsage]
    os.environ["TMPDIR"] = str(life.folder)
    logging.disable(logging.WARNING)
    dice = Random(life.seed * 1000 + life.number)
    hr = _opened(life)
    for name, (relation, sink, _) in life.places.items():
        more = f", filter = '{_FILTER}', filter_exits = true" if name == "some" else ""
        hr.execute(
            f"CREATE CHANGEFEED IF NOT EXISTS {name} FOR TABLE {relation} INTO {sink} '{life.folder / name}' "
            f"WITH (flush_interval_ms = {dice.choice([0, 5, 50])}, batch_size = {dice.choice([1, 3, 20])}, "
            f"resolved = true, max_retries = 2{more})"
        )
    parent.send({"ready": os.getpid()})
    if life.last:
        parent.send({"done": _judged(hr, life)})
    else:
        for _ in range(dice.randrange(6, 20)):
            _act(hr, life, dice)
        time.sleep(life.idle)
        parent.send({"ended": True})
    hr.close()


def _opened(life: Life) -> Any:
    """The home, with its relations."""
    if life.spark is None:
        from pyspark.sql.types import IntegerType, StringType, StructField, StructType

        from tests.bare_home import BareHome

        bare = BareHome(life.folder / "home", life.timeout)
        number, text = IntegerType(), StringType()
        columns = [StructField("id", number, False), StructField("n", number), StructField("s", text)]
        bare.create_table("t", StructType(columns), ("id",))
        bare.create_table("b", StructType([StructField("x", number), StructField("y", text)]))
        return bare
    import headrace

    spark: Any = attach(life.spark)
    settings = headrace.Settings(owner_timeout=life.timeout)  # pyright: ignore[reportArgumentType]
    hr = headrace.open(str(life.folder / "home"), spark=spark, settings=settings)
    hr.execute("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, n INT, s STRING)")
    hr.execute(_VIEW)
    return hr


def _act(hr: Any, life: Life, dice: Random) -> None:
    """One random step."""
    folder, feed = life.folder, dice.choice(list(life.places))
    match dice.choices(
        ["change", "mood", "pause", "resume", "alter", "resync", "columns", "replace", "wait"],
        [30, 6, 3, 5, 3, 1, 1, 1, 4],
    )[0]:
        case "change":
            changes: dict[int, dict[str, Any]] = {}
            for _ in range(dice.randrange(1, 9)):
                key = dice.randrange(_KEYS)
                row = {"id": key, "n": dice.randrange(6), "s": dice.choice("abc")}
                changes[key] = {"delete": {"id": key}} if dice.random() < 0.25 else {"insert": row}
            text = _text_column(hr)
            rows = [
                {kind: {text if name == "s" else name: value for name, value in row.items()}}
                for one in changes.values()
                for kind, row in one.items()
            ]
            more = {} if life.spark else {"b": _bag_changes(hr, dice)}
            hr.apply({"t": rows, **more})
        case "mood":
            mood = dice.choice(["well", "well", "fails", "slow", "down", "refuses"])
            (folder / f"{feed}.mood").write_text(mood)
        case "pause":
            hr.execute(f"PAUSE CHANGEFEED {feed}")
        case "resume":
            hr.execute(f"RESUME CHANGEFEED {feed}")
        case "alter":
            hr.execute(f"ALTER CHANGEFEED {feed} SET (batch_size = {dice.randrange(1, 30)})")
        case "resync":
            hr.execute(f"RESYNC CHANGEFEED {feed}")
        case "columns":
            hr.execute(f"ALTER TABLE t RENAME COLUMN {_text_column(hr)} TO s{dice.randrange(10**6)}")
        case "replace" if life.spark is None:
            columns = hr.core.catalog.table("b").schema
            hr.replace_table("b", columns)
        case "replace":
            hr.execute(
                "CREATE OR REPLACE VIEW v AS SELECT s, count(*) AS c, sum(n) AS total, max(n) AS m FROM t GROUP BY s"
            )
        case _:
            time.sleep(dice.uniform(0, 0.1))


def _text_column(hr: Any) -> str:
    """The name that the column has by now which was s at first."""
    return next(name for name in hr.query("SELECT * FROM t").column_names if name.startswith("s"))


def _bag_changes(hr: Any, dice: Random) -> list[dict[str, Any]]:
    """Changes of a table without a key: rows come again and again, and one that is there goes."""
    held = hr.query("SELECT * FROM b").to_pylist()
    gone = [{"delete": dice.choice(held)}] if held and dice.random() < 0.5 else []
    rows = [{"x": dice.randrange(3), "y": dice.choice("ab")} for _ in range(dice.randrange(1, 4))]
    return [*gone, *({"insert": row} for row in rows)]


def _judged(hr: Any, life: Life) -> dict[str, Any]:
    """Have all told by sinks that are well, and say what is wrong with it."""
    folder, places = life.folder, life.places
    for name in places:
        (folder / f"{name}.mood").write_text("well")
        hr.execute(f"RESUME CHANGEFEED {name}")
    until = time.monotonic() + _SETTLE_SECONDS
    while True:
        shown = {one["name"]: one for one in hr.execute("SHOW CHANGEFEEDS").to_pylist()}
        # To park an event makes an epoch, so there may be one more to be told.
        if all(one["lag"] == 0 and not one["waiting"] and one["state"] == "Running" for one in shown.values()):
            break
        if time.monotonic() > until:
            return {**_nothing(), "faults": [f"it did not settle: {shown}"]}
        time.sleep(0.05)
    for name in places:
        hr.execute(f"PAUSE CHANGEFEED {name}")
    shown = {one["name"]: one for one in hr.execute("SHOW CHANGEFEEDS").to_pylist()}
    found = _nothing()
    parked = hr.query("SELECT * FROM parked_events").to_pylist()
    found["parked"] = len(parked)
    for name, (relation, sink, exact) in places.items():
        lines = _arrived(folder, name, sink, shown[name]["id"])
        events = [one for one in lines if "sequence" in one and "operation" in one]
        mine = {one["sequence"]: one["key"] for one in parked if one["feed"] == name}
        found["events"][name] = len(events)
        found["twice"][name] = len(events) - len({one["sequence"] for one in events})
        found["resets"] += sum(one["operation"] == "RESET" for one in events)
        faults = [*_gaps(events, shown[name]["last_sequence"], set(mine)), *_unstable(events)]
        faults += [] if life.late else _disorder(events)
        if exact and found["twice"][name]:
            faults.append(f"{found['twice'][name]} events came twice to a sink that knows its mark")
        unwanted = {json.dumps(json.loads(key)) for key in mine.values()}
        marks, wrong = _unequal(hr, lines, relation, unwanted, _FILTER if name == "some" else "", life.late)
        found["marks"] += marks
        found["faults"] += [f"{name}: {fault}" for fault in (*faults, *wrong)]
    return found


def _nothing() -> dict[str, Any]:
    return {"events": Counter[str](), "twice": Counter[str](), "parked": 0, "marks": 0, "resets": 0, "faults": []}


def _arrived(folder: Path, name: str, sink: str, feed_id: str) -> list[dict[str, Any]]:
    """All that a place was told, in the order of its arrival; a line that a kill cut short never arrived."""
    if sink == "FILES":
        place = folder / name
        lines = [line for path in sorted(place.glob("*.ndjson")) for line in path.read_text().splitlines()]
        found = [json.loads(line) for line in lines]
        resolved = place / f"{name}-{feed_id[:8]}.resolved.json"
        if resolved.exists():
            told = json.loads(resolved.read_text())
            upto = [index for index, one in enumerate(found) if one["sequence"] <= told["sequence"]]
            found.insert(upto[-1] + 1 if upto else 0, {"resolved": told["epoch"], "upto": told["sequence"]})
        return found
    path = folder / name
    found = []
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def _gaps(events: Sequence[dict[str, Any]], last: int, parked: set[int]) -> list[str]:
    """What is missing; numbers may jump where a RESET says that all before it does not count."""
    told = {one["sequence"] for one in events} | parked
    resets = {one["sequence"] for one in events if one["operation"] == "RESET"}
    faults: list[str] = []
    expected = 1
    for sequence in sorted(told):
        if sequence != expected and sequence not in resets:
            faults.append(f"events {expected} to {sequence - 1} are missing")
        expected = sequence + 1
    if expected - 1 < last:
        faults.append(f"events {expected} to {last} are missing at the end")
    return faults


def _unstable(events: Sequence[dict[str, Any]]) -> list[str]:
    known: dict[int, dict[str, Any]] = {}
    for one in events:
        if known.setdefault(one["sequence"], one) != one:
            return [f"{one['sequence']} stands for {known[one['sequence']]} and for {one}"]
    return []


def _disorder(events: Sequence[dict[str, Any]]) -> list[str]:
    """Events of a key that came before an earlier one, also when they were told again."""
    known: dict[str, set[int]] = {}
    for one in events:
        if one["operation"] != "RESET":
            known.setdefault(json.dumps(one["key"]), set()).add(one["sequence"])
    following: dict[tuple[str, int], int] = {}
    for key, numbers in known.items():
        ordered = sorted(numbers)
        following.update({(key, a): b for a, b in itertools.pairwise(ordered)})
        following[key, 0] = ordered[0]
    last: dict[str, int] = {}
    for one in events:
        if one["operation"] == "RESET":
            continue
        key, sequence = json.dumps(one["key"]), one["sequence"]
        if sequence > following.get((key, last.get(key, 0)), 10**18):
            return [f"{sequence} of key {key} came after {last.get(key, 0)}, before one in between"]
        last[key] = sequence
    return []


def _unequal(
    hr: Any, lines: Sequence[dict[str, Any]], relation: str, parked: set[str], condition: str, late: bool
) -> tuple[int, list[str]]:
    """How many resolved marks there are, and where the table that is rebuilt is not what the relation was."""
    rows: dict[str, list[Any]] = {}
    marks = 0
    taken: set[int] = set()
    names = _KEYS_OF[relation]
    for one in lines:
        if "resolved" in one:
            marks += 1
            held = hr.query(f"SELECT * FROM {relation}", epoch=one["resolved"]).to_pylist()
            wanted: dict[str, list[Any]] = {}
            for row in held:
                if not condition or row["n"] % 2 == 0:
                    wanted.setdefault(json.dumps({name: row[name] for name in names}), []).append(row)
            # What is parked was not told, whatever the receiver has of it.
            told, wanted = (
                {key: these for key, these in some.items() if these and key not in parked} for some in (rows, wanted)
            )
            if told != wanted:
                return marks, [f"at epoch {one['resolved']} the feed gives {told}, and {relation} had {wanted}"]
            continue
        key = json.dumps(one["key"])
        # Rows without a key are counted, and so each event is to be taken once.
        repeated = (relation == "b" or late) and one["sequence"] in taken
        taken.add(one["sequence"])
        if one["operation"] == "RESET":
            rows.clear()
        elif repeated:
            continue
        elif one["operation"] == "DELETE":
            rows[key] = rows.get(key, [])[1:]
        else:
            rows[key] = [*(rows.get(key, []) if relation == "b" else []), one["new_row"]]
    return marks, []


class FeedsCheck:
    """Lives of homes with feeds, over one Spark."""

    def __init__(self, spark: bool = False) -> None:
        self._has_spark = spark
        self._processes: ForkServerContext = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(["tests.checks.feeds", "tests.bare_home", "headrace"])
        self._keeper = Keeper(self._processes)
        self.tally = Tally()

    def __enter__(self) -> FeedsCheck:
        return self

    def __exit__(self, *_: object) -> None:
        self._keeper.close()

    def _spark(self) -> Address | None:
        return self._keeper.address() if self._has_spark else None

    def seed(self, seed: int) -> None:
        """One home through its lives."""
        dice = Random(seed)
        folder = Path(tempfile.mkdtemp(prefix="headrace-feeds-"))
        try:
            lives = dice.randrange(2, 6)
            for number in range(lives):
                life = Life(folder, self._spark(), seed, number)
                # Most are killed: on the way, or when they have done all that they were to do.
                self._lived(
                    life, kill_after=dice.uniform(0.0, 1.5 if self._has_spark else 0.5) if dice.random() < 0.8 else None
                )
            answer = self._lived(Life(folder, self._spark(), seed, lives, last=True), None)
            if "done" in answer:
                self.tally.add(answer["done"])
            faults = [answer["fault"]] if "fault" in answer else answer.get("done", {}).get("faults", [])
            if "fault" in answer:
                self.tally.faults.append(f"seed {seed}: {answer['fault']}")
            self.tally.faults = [one if one.startswith("seed") else f"seed {seed}: {one}" for one in self.tally.faults]
            if faults and os.environ.get("KEEP"):
                shutil.copytree(folder, f"/tmp/feeds-seed-{seed}", dirs_exist_ok=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.tally.seeds += 1

    def _lived(self, life: Life, kill_after: float | None) -> dict[str, Any]:
        line, other = self._processes.Pipe()
        process = self._processes.Process(target=live, args=(life, other))
        process.start()
        other.close()
        self.tally.lives += 1
        answer: dict[str, Any] = {}
        try:
            if not line.poll(_OPENING_SECONDS):
                return {"fault": "a life did not open its home"}
            answer = line.recv()
            if "ready" in answer:
                if kill_after is not None and not line.poll(kill_after):
                    self.tally.kills += 1
                    return answer
                if not line.poll(3 * _SETTLE_SECONDS):
                    return {"fault": "a life did not end"}
                answer = line.recv()
                if kill_after is None:
                    process.join(30)
                else:
                    # It has done all that it was to do, and is not given the time to close its home.
                    self.tally.kills += 1
            if "fault" in answer and not life.last:
                self.tally.faults.append(f"seed {life.seed}: {answer['fault']}")
        except EOFError:
            answer = {"fault": "a life ended by itself"}
        finally:
            # Its JVM is another's; whatever it was doing ends here.
            process.kill()
            process.join()
            line.close()
        return answer

    def two_owners(self, seed: int) -> None:
        """One owner is stopped, another takes its place and goes on, and the first one wakes up."""
        folder = Path(tempfile.mkdtemp(prefix="headrace-feeds-"))
        try:
            first, other = self._processes.Pipe()
            sleeper = self._processes.Process(
                target=live, args=(Life(folder, self._spark(), seed, 0, timeout=1.0, idle=60.0), other)
            )
            sleeper.start()
            other.close()
            assert first.poll(_OPENING_SECONDS), "the first owner did not open its home"
            pid = first.recv()["ready"]
            time.sleep(Random(seed).uniform(0.05, 1.0))
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.5)
            seen = [_furthest(folder)]
            answer = self._lived(Life(folder, self._spark(), seed, 1, timeout=1.0), None)
            if "fault" in answer:
                self.tally.faults.append(f"seed {seed}: {answer['fault']}")
            seen.append(_furthest(folder))
            os.kill(pid, signal.SIGCONT)
            for _ in range(20):
                time.sleep(0.05)
                seen.append(_furthest(folder))
            sleeper.kill()
            sleeper.join()
            for before, after in itertools.pairwise(seen):
                back = [name for name in before if after.get(name, (0, 0)) < before[name]]
                if back:
                    self.tally.faults.append(f"seed {seed}: the position of {back} went from {before} to {after}")
            answer = self._lived(Life(folder, self._spark(), seed, 2, last=True, late=True), None)
            if "done" in answer:
                self.tally.add(answer["done"])
            else:
                self.tally.faults.append(f"seed {seed}: {answer}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self.tally.seeds += 1


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
    options = parser.parse_args(arguments)
    began_at = time.monotonic()
    with FeedsCheck(options.spark) as check:
        tally = check.tally
        for seed in range(options.first, options.first + options.seeds):
            (check.two_owners if options.stop else check.seed)(seed)
            if seed % 10 == 0 or tally.faults:
                print(f"{seed}: {_line(tally)}, {time.monotonic() - began_at:.0f} s", flush=True)
            if tally.faults:
                break
    for fault in tally.faults:
        print(fault[:4000])
    print(_line(tally), flush=True)
    return 1 if tally.faults else 0


def _line(tally: Tally) -> str:
    events = ", ".join(f"{name} {count} ({tally.twice[name]} twice)" for name, count in tally.events.items())
    return (
        f"{tally.seeds} seeds, {tally.lives} lives, {tally.kills} kills, events {events}, {tally.parked} parked, "
        f"{tally.resets} resets, {tally.marks} resolved marks, {len(tally.faults)} faults"
    )


if __name__ == "__main__":
    sys.exit(main())
