"""Spark's JVM is killed, stopped and driven out of memory while four callers push and two query.

Each caller must get an answer within ten seconds, what was acknowledged must be there once, what was not must not be
there at all, and the home must go on by itself, as must another home on the same Spark. /readyz must tell of it, and
nothing may be left of a Spark that has ended. `python -m tests.checks.jvm_loss [kill stop memory given orphan]`, with
HEADRACE_ANSWER_SECONDS=30 on a machine that has other work.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import headrace
from headrace.face import home_of
from headrace.serving.app import build_app
from headrace.settings import Settings
from headrace.spark.proc import is_stopped

ANSWER_SECONDS = float(os.environ.get("HEADRACE_ANSWER_SECONDS", "10"))
RENEWAL_SECONDS = max(180.0, ANSWER_SECONDS)
DEFINITIONS = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, n BIGINT);
CREATE VIEW v AS SELECT g, count(*) AS c, sum(n) AS s FROM t GROUP BY g;
CREATE VIEW w AS SELECT t.id, v.c FROM t JOIN v ON t.g = v.g;
"""
# More than any heap of this check holds, gathered in one place.
HEAVY = "SELECT size(collect_list(id)) AS n FROM range(500000000)"


@dataclass
class Book:
    """What callers were told."""

    acknowledged: list[int] = field(default_factory=list[int])
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    longest: float = 0.0
    longest_at: float = 0.0
    longest_refusal: float = 0.0
    unforeseen: list[str] = field(default_factory=list[str])

    def note(self, kind: str, begun: float, error: BaseException | None) -> None:
        seconds = time.monotonic() - begun
        if seconds > self.longest:
            self.longest, self.longest_at = seconds, time.monotonic()
        if error is not None:
            self.longest_refusal = max(self.longest_refusal, seconds)
        self.outcomes[kind, "ok" if error is None else getattr(error, "code", type(error).__name__)] += 1
        if error is not None and not getattr(error, "transient", False):
            self.unforeseen.append(repr(error))


@dataclass
class Readiness:
    """What /readyz told: what it said when it was not ready, and how long it took at most."""

    refused: Counter[str] = field(default_factory=Counter[str])
    longest: float = 0.0
    last: int = 0

    async def _watch(self, hr: headrace.Headrace, over: threading.Event) -> None:
        # As a server has it, so that it is asked what a server tells; what it begins is ended with it.
        app = build_app(hr, Settings())
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            while not over.is_set():
                begun = time.monotonic()
                answer = await client.get("/readyz")
                self.longest = max(self.longest, time.monotonic() - begun)
                self.last = answer.status_code
                if answer.status_code != 200:
                    self.refused[answer.json()["detail"] or answer.text] += 1
                await asyncio.sleep(0.1)
        await asyncio.to_thread(app.state.service.close)

    def watch(self, hr: headrace.Headrace, over: threading.Event) -> None:
        asyncio.run(self._watch(hr, over))


@dataclass(frozen=True)
class Holdings:
    """What this process holds that a Spark which has ended must not add to."""

    threads: int
    files: int
    folders: int

    @classmethod
    def now(cls, hr: headrace.Headrace) -> Holdings:
        gc.collect()
        folders = [one for scratch in (home_of(hr)._leaves, home_of(hr)._disk) for one in scratch.path.iterdir()]
        # Those that work views out, merge and fold come when they are first needed, and stay.
        lasting = ("headrace-view", "headrace-merge", "headrace-fold_")
        threads = [one for one in threading.enumerate() if not one.name.startswith(lasting)]
        return cls(len(threads), len(list(Path("/proc/self/fd").iterdir())), len(folders))

    def exceeds(self, before: Holdings) -> bool:
        """A folder of files more is right: a query process may still read what the last Spark read."""
        return self.threads > before.threads + 2 or self.files > before.files + 6 or self.folders > before.folders + 1


def check(hr: headrace.Headrace, other: headrace.Headrace, way: str, book: Book) -> list[str]:
    """Do one thing to the JVM under load; what was not as it must be."""
    over = threading.Event()
    ready = Readiness()
    before_it, of_the_old = Holdings.now(hr), weakref.ref(home_of(hr).core.sessions.catalyst)
    threads = [threading.Thread(target=_push, args=(hr, caller, way, book, over)) for caller in range(4)]
    threads += [threading.Thread(target=_ask, args=(hr, book, over)) for _ in range(2)]
    threads.append(threading.Thread(target=ready.watch, args=(hr, over)))
    for thread in threads:
        thread.start()
    _wait(lambda: len(book.acknowledged) >= 8)
    process = home_of(hr).renewal.process
    assert process is not None
    struck_at = time.monotonic()
    # How long an epoch takes by itself on this machine; whoever waits when the JVM is struck is counted after it.
    undisturbed, book.longest = book.longest, 0.0
    # It has work of its own to do until the memory is gone, so its time is told apart.
    glutton = Book()
    heavy = threading.Thread(target=_ask_once, args=(hr, glutton, HEAVY))
    if way == "memory":
        heavy.start()
    else:
        os.kill(process.pid, signal.SIGKILL if way == "kill" else signal.SIGSTOP)
    gone = _wait(lambda: process.poll() is not None)
    renewed = _wait(lambda: home_of(hr).renewal.process is not process and not home_of(hr).renewal.under_way)
    renewed_after = time.monotonic() - struck_at
    before = len(book.acknowledged)
    went_on = _wait(lambda: len(book.acknowledged) >= before + 8)
    ready_again = _wait(lambda: ready.last == 200)
    over.set()
    for thread in [*threads, *([heavy] if way == "memory" else [])]:
        thread.join(max(60.0, ANSWER_SECONDS))
    print(
        f"{way}: gone after {gone - struck_at:.1f} s, renewed after {renewed_after:.1f} s, "
        f"longest answer {book.longest:.1f} s (given after {book.longest_at - struck_at:.1f} s; before the loss it was "
        f"{undisturbed:.1f} s), longest refusal {book.longest_refusal:.1f} s, {dict(book.outcomes)}",
        flush=True,
    )
    if way == "memory":
        print(f"memory: the query itself had its answer after {glutton.longest:.1f} s, {dict(glutton.outcomes)}")
    wrong = [f"{way}: unforeseen {one}" for one in book.unforeseen[:5]]
    if any(thread.is_alive() for thread in threads):
        wrong.append(f"{way}: a caller still waits")
    if book.longest > ANSWER_SECONDS:
        wrong.append(f"{way}: an answer took {book.longest:.1f} s")
    if not renewed or not went_on:
        wrong.append(f"{way}: the home did not go on")
    print(f"{way}: /readyz took {ready.longest:.2f} s at most, and refused {dict(ready.refused)}", flush=True)
    if (
        not any("another is being started" in told for told in ready.refused)
        or not ready_again
        or ready.longest > ANSWER_SECONDS / 10
    ):
        wrong.append(f"{way}: /readyz did not tell of it, or not at once")
    wrong += [f"{way}: another home: {one}" for one in _go_on(other)]
    # The threads of a gateway look once a second whether they are still needed.
    if not _wait(lambda: not Holdings.now(hr).exceeds(before_it) and of_the_old() is None, 15.0):
        left = f"{before_it}, then {Holdings.now(hr)}, {[one.name for one in threading.enumerate()]}, {of_the_old()}"
        wrong.append(f"{way}: something is left of the old Spark: {left}")
    return wrong


def _go_on(other: headrace.Headrace) -> list[str]:
    """Another home on the same Spark follows a change; what was not as it must be."""
    if not _wait(lambda: not home_of(other).renewal.under_way):
        return ["it did not go on"]
    number = other.query("SELECT count(*) AS c FROM t").to_pylist()[0]["c"] + 1
    other.apply({"t": [{"insert": {"id": number, "g": 1, "n": number}}]})
    rows = other.query("SELECT g, c FROM v").to_pylist()
    return [] if rows == [{"g": 1, "c": number}] and other.verify().ok else [f"it holds {rows}"]


def judge(hr: headrace.Headrace, acknowledged: list[int]) -> list[str]:
    """What is not in the home exactly once, and what should not be there."""
    held = [row["id"] for row in hr.query("SELECT id FROM t").to_pylist()]
    wrong: list[str] = []
    if sorted(held) != sorted(acknowledged):
        lost, extra = set(acknowledged) - set(held), set(held) - set(acknowledged)
        wrong.append(f"{len(lost)} lost, {len(extra)} that nobody was told of, {len(held) - len(set(held))} twice")
    if not hr.verify().ok:
        wrong.append("a view does not equal its recompute")
    print(f"{len(held)} rows, {len(acknowledged)} acknowledged, {'wrong' if wrong else 'all right'}", flush=True)
    return wrong


def _push(hr: headrace.Headrace, caller: int, way: str, book: Book, over: threading.Event) -> None:
    number = 0
    start = (["kill", "stop", "memory"].index(way) * 10 + caller) * 1_000_000
    while not over.is_set():
        number += 1
        row = {"id": start + number, "g": number % 7, "n": number}
        begun = time.monotonic()
        try:
            hr.apply({"t": [{"insert": row}]})
        except Exception as error:
            book.note("push", begun, error)
            time.sleep(0.2)
        else:
            book.acknowledged.append(start + number)
            book.note("push", begun, None)


def _ask(hr: headrace.Headrace, book: Book, over: threading.Event) -> None:
    while not over.is_set():
        _ask_once(hr, book, "SELECT count(*) AS c FROM w")


def _ask_once(hr: headrace.Headrace, book: Book, sql: str) -> None:
    begun = time.monotonic()
    try:
        hr.query(sql)
    except Exception as error:
        book.note("query", begun, error)
        time.sleep(0.2)
    else:
        book.note("query", begun, None)


def _wait(done: object, seconds: float = RENEWAL_SECONDS) -> float:
    """The time at which something was so, or 0 if it did not come to be."""
    assert callable(done)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if done():
            return time.monotonic()
        time.sleep(0.05)
    return 0.0


def given(hr: headrace.Headrace) -> list[str]:
    """A Spark that was given ends: nobody replaces it, which is told, and the home can be opened again."""
    process = home_of(hr).renewal.process
    assert process is not None
    process.kill()
    process.wait()
    wrong: list[str] = []
    for attempt in (1, 2):
        begun = time.monotonic()
        try:
            hr.query("SELECT g, count(*) AS c FROM w JOIN v USING (c) GROUP BY g")
            wrong.append("given: a query was answered without Spark")
        except headrace.errors.SparkLost as lost:
            if lost.transient or "given" not in lost.message or time.monotonic() - begun > ANSWER_SECONDS:
                wrong.append(f"given: at attempt {attempt} it was told {lost!r}, {lost.transient}")
    return wrong


GIVEN_THEN_ORPHAN = """
import sys, time
import headrace
from headrace.face import home_of
from headrace.spark import jars
from headrace.spark.java import find_java, launcher_home
from headrace.settings import Settings
from headrace.spark.launch import environment_of
from tests.checks.jvm_loss import DEFINITIONS, given
from pyspark.sql import SparkSession

home, ways = sys.argv[1], sys.argv[2:]
if "given" in ways:
    settings = Settings()
    delta = {
        "spark.jars": ",".join(str(path) for path in jars.paths(settings.jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
    }
    with environment_of({"JAVA_HOME": str(launcher_home(find_java(), settings.jars.parent / "java"))}):
        spark = SparkSession.builder.master("local[2]").config(map=delta).getOrCreate()
    with headrace.open(home, spark=spark) as hr:
        hr.execute(DEFINITIONS)
        hr.apply({"t": [{"insert": {"id": 1, "g": 1, "n": 1}}]})
        print(*given(hr), sep=";", flush=True)
hr = headrace.open(home)
if "given" in ways:
    hr.apply({"t": [{"insert": {"id": 2, "g": 1, "n": 1}}]})
    print(hr.query("SELECT c FROM v").to_pylist()[0]["c"], flush=True)
print(home_of(hr).renewal.process.pid, flush=True)
time.sleep(300)
"""


def apart(ways: list[str]) -> list[str]:
    """In another process, a Spark that was given ends; then that process is killed whose JVM was stopped."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="headrace-orphan-") as folder:
        command = [sys.executable, "-c", GIVEN_THEN_ORPHAN, str(Path(folder) / "home"), *ways]
        python = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert python.stdout is not None
        if "given" in ways:
            wrong += [one for one in python.stdout.readline().strip().split(";") if one]
            count = python.stdout.readline().strip()
            print(f"given: {count} rows after the home was opened again", flush=True)
            wrong += [] if count == "2" else [f"given: the home opened again counts {count} rows"]
        jvm = int(python.stdout.readline())
        os.kill(jvm, signal.SIGSTOP)
        time.sleep(0.5)
        assert is_stopped(jvm)
        python.kill()
        python.wait()
        python.stdout.close()
        killed_at = time.monotonic()
        gone = _wait(lambda: _is_gone(jvm))
        print(f"orphan: gone after {gone - killed_at:.1f} s", flush=True)
        if not gone or gone - killed_at > ANSWER_SECONDS:
            wrong.append("orphan: the JVM outlived its process")
        return wrong


def _is_gone(pid: int) -> bool:
    """Whether a process has ended, though whoever inherited it may not have reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def main(ways: list[str]) -> int:
    """Run the ways that are named, or all."""
    chosen = ways or ["kill", "stop", "memory", "given", "orphan"]
    wrong: list[str] = []
    acknowledged: list[int] = []
    # What /readyz refuses is counted here.
    logging.getLogger("headrace.serving").setLevel(logging.CRITICAL)
    losses = [one for one in chosen if one in ("kill", "stop", "memory")]
    if losses:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-jvm-loss-") as folder,
            headrace.open(Path(folder) / "home", spark_memory="512m") as hr,
            headrace.open(Path(folder) / "other", spark_memory="512m") as other,
        ):
            hr.execute(DEFINITIONS)
            other.execute(DEFINITIONS)
            for way in losses:
                book = Book()
                wrong += check(hr, other, way, book)
                acknowledged += book.acknowledged
            wrong += judge(hr, acknowledged)
    if "orphan" in chosen or "given" in chosen:
        wrong += apart(chosen)
    for one in wrong:
        print(f"WRONG {one}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
