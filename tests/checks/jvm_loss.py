"""Spark's JVM is killed, stopped and driven out of memory while four callers push and two query.

Each caller must get an answer within ten seconds, what was acknowledged must be there once, what was not must not be
there at all, and the home must go on by itself. `python -m tests.checks.jvm_loss [kill stop memory orphan]`, with
HEADRACE_ANSWER_SECONDS=30 on a machine that has other work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import headrace
from headrace.jvm import is_stopped

ANSWER_SECONDS = float(os.environ.get("HEADRACE_ANSWER_SECONDS", "10"))
RENEWAL_SECONDS = 180.0
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
    longest_refusal: float = 0.0
    unforeseen: list[str] = field(default_factory=list[str])

    def note(self, kind: str, begun: float, error: BaseException | None) -> None:
        seconds = time.monotonic() - begun
        self.longest = max(self.longest, seconds)
        if error is not None:
            self.longest_refusal = max(self.longest_refusal, seconds)
        self.outcomes[kind, "ok" if error is None else getattr(error, "code", type(error).__name__)] += 1
        if error is not None and not getattr(error, "transient", False):
            self.unforeseen.append(repr(error))


def check(hr: headrace.Headrace, way: str, book: Book) -> list[str]:
    """Do one thing to the JVM under load; what was not as it must be."""
    over = threading.Event()
    threads = [threading.Thread(target=_push, args=(hr, caller, way, book, over)) for caller in range(4)]
    threads += [threading.Thread(target=_ask, args=(hr, book, over)) for _ in range(2)]
    for thread in threads:
        thread.start()
    _wait(lambda: len(book.acknowledged) >= 8)
    process = hr.renewal.process
    assert process is not None
    struck_at = time.monotonic()
    # It has work of its own to do until the memory is gone, so its time is told apart.
    glutton = Book()
    heavy = threading.Thread(target=_ask_once, args=(hr, glutton, HEAVY))
    if way == "memory":
        heavy.start()
    else:
        os.kill(process.pid, signal.SIGKILL if way == "kill" else signal.SIGSTOP)
    gone = _wait(lambda: process.poll() is not None)
    renewed = _wait(lambda: hr.renewal.process is not process and not hr.renewal.under_way)
    renewed_after = time.monotonic() - struck_at
    before = len(book.acknowledged)
    went_on = _wait(lambda: len(book.acknowledged) >= before + 8)
    over.set()
    for thread in [*threads, *([heavy] if way == "memory" else [])]:
        thread.join(60)
    print(
        f"{way}: gone after {gone - struck_at:.1f} s, renewed after {renewed_after:.1f} s, "
        f"longest answer {book.longest:.1f} s, longest refusal {book.longest_refusal:.1f} s, {dict(book.outcomes)}",
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
    return wrong


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


def _wait(done: object) -> float:
    """The time at which something was so, or 0 if it did not come to be."""
    assert callable(done)
    until = time.monotonic() + RENEWAL_SECONDS
    while time.monotonic() < until:
        if done():
            return time.monotonic()
        time.sleep(0.05)
    return 0.0


def orphan() -> list[str]:
    """A process is killed whose JVM was stopped: the JVM ends all the same."""
    script = "import headrace, sys, time; hr = headrace.open(sys.argv[1]); "
    script += "print(hr.renewal.process.pid, flush=True); time.sleep(300)"
    with tempfile.TemporaryDirectory(prefix="headrace-orphan-") as folder:
        command = [sys.executable, "-c", script, str(Path(folder) / "home")]
        python = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert python.stdout is not None
        jvm = int(python.stdout.readline())
        os.kill(jvm, signal.SIGSTOP)
        time.sleep(0.5)
        assert is_stopped(jvm)
        python.kill()
        python.wait()
        killed_at = time.monotonic()
        # Killed but not yet reaped by whoever inherited it, it is neither stopped nor alive.
        gone = _wait(lambda: not is_stopped(jvm))
        print(f"orphan: gone after {gone - killed_at:.1f} s", flush=True)
        return [] if gone and gone - killed_at < ANSWER_SECONDS else ["orphan: the JVM outlived its process"]


def main(ways: list[str]) -> int:
    """Run the ways that are named, or all."""
    chosen = ways or ["kill", "stop", "memory", "orphan"]
    wrong: list[str] = []
    acknowledged: list[int] = []
    losses = [one for one in chosen if one != "orphan"]
    if losses:
        with (
            tempfile.TemporaryDirectory(prefix="headrace-jvm-loss-") as folder,
            headrace.open(Path(folder) / "home", spark_memory="512m") as hr,
        ):
            hr.execute(DEFINITIONS)
            for way in losses:
                book = Book()
                wrong += check(hr, way, book)
                acknowledged += book.acknowledged
            wrong += judge(hr, acknowledged)
    if "orphan" in chosen:
        wrong += orphan()
    for one in wrong:
        print(f"WRONG {one}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
