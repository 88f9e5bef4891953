"""A few bytes of which a view makes gigabytes, pushed over HTTP beside honest changes.

Their sender does as it is told: after a 503 it comes again, after any other refusal it stops. The honest senders must
go on, what was acknowledged must be there once, and the same push must not end Spark once more.
`python -m tests.checks.poison`.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import headrace
from headrace.face import home_of
from tests.checks.jvm_loss import ANSWER_SECONDS, RENEWAL_SECONDS
from tests.e2e.conftest import Served, running

DEFINITIONS = """
CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT);
CREATE VIEW v AS SELECT g, count(*) AS c FROM t GROUP BY g;
CREATE TABLE p (id BIGINT PRIMARY KEY, n BIGINT);
CREATE VIEW w AS SELECT p.id, x FROM p LATERAL VIEW explode(sequence(1, n)) AS x;
"""
POISON = '{"insert": {"id": 1, "n": 300000000}}'
SECONDS = 20.0


@dataclass
class Honest:
    """What senders of honest changes were told, and when."""

    acknowledged: list[int] = field(default_factory=list[int])
    at: list[float] = field(default_factory=list[float])
    refused: list[int] = field(default_factory=list[int])

    def send(self, served: Served, sender: int, over: threading.Event) -> None:
        number = sender * 1_000_000
        while not over.is_set():
            number += 1
            while not over.is_set():
                answer = served.push("t", f'{{"insert": {{"id": {number}, "g": {number % 7}}}}}')
                if answer.status_code == 200:
                    self.acknowledged.append(number)
                    self.at.append(time.monotonic())
                    break
                self.refused.append(answer.status_code)
                time.sleep(float(answer.headers.get("Retry-After", "0.2")))


def obey(served: Served) -> tuple[httpx.Response, int]:
    """Send the poison for as long as one is told to: the last answer, and how often it was sent."""
    for sent in range(1, 1000):
        answer = served.push("p", POISON)
        if answer.status_code != 503:
            return answer, sent
        time.sleep(float(answer.headers["Retry-After"]))
    raise AssertionError("the sender was told to come again a thousand times")


def check(hr: headrace.Headrace, served: Served) -> list[str]:
    """Poison a home under load; what was not as it must be."""
    renewal = home_of(hr).renewal
    honest, over = Honest(), threading.Event()
    senders = [threading.Thread(target=honest.send, args=(served, number, over)) for number in range(3)]
    ended: set[int] = set()

    def watch() -> None:
        while not over.wait(0.05):
            process = renewal.process
            if process is not None and process.poll() is not None:
                ended.add(process.pid)

    threads = [*senders, threading.Thread(target=watch)]
    for thread in threads:
        thread.start()
    time.sleep(3.0)
    wrong: list[str] = []
    begun = time.monotonic()
    answer, sent = obey(served)
    told_at = time.monotonic()
    if (answer.status_code, answer.json().get("code")) != (422, "memory_exceeded"):
        wrong.append(f"the poison was answered {answer.status_code}: {answer.text}")
    until = told_at + RENEWAL_SECONDS
    while renewal.under_way and time.monotonic() < until:
        time.sleep(0.1)
    back_at = time.monotonic()
    ends = len(ended)
    time.sleep(SECONDS)
    again = served.push("p", POISON)
    refused_within = time.monotonic() - back_at - SECONDS
    over.set()
    for thread in threads:
        thread.join(max(60.0, ANSWER_SECONDS))
    during = sum(begun <= at < told_at for at in honest.at)
    after = sum(at >= back_at for at in honest.at)
    print(
        f"poison: told to stop after {told_at - begun:.1f} s and {sent} pushes, Spark ended {ends} times, was back "
        f"after {back_at - begun:.1f} s; honest changes acknowledged meanwhile {during}, in the {SECONDS:.0f} s after "
        f"{after}, refused {len(honest.refused)} times; the poison again answered {again.status_code} within "
        f"{refused_within:.2f} s",
        flush=True,
    )
    if again.status_code != 422 or refused_within > ANSWER_SECONDS / 2 or len(ended) > ends:
        wrong.append(f"the same push again was answered {again.status_code}, and Spark ended {len(ended) - ends} times")
    if ends > 2:
        wrong.append(f"Spark ended {ends} times")
    # Two senders of three may be between two pushes; an epoch takes a few hundredths of a second on a quiet machine.
    if after < SECONDS * 10 / ANSWER_SECONDS:
        wrong.append(f"only {after} honest changes were acknowledged in {SECONDS:.0f} s")
    if set(honest.refused) - {503}:
        wrong.append(f"honest changes were refused with {set(honest.refused)}")
    held = sorted(row["id"] for row in hr.query("SELECT id FROM t").to_pylist())
    if held != sorted(honest.acknowledged):
        wrong.append(f"{len(held)} rows are held, {len(honest.acknowledged)} were acknowledged")
    if hr.query("SELECT id FROM p").num_rows or not hr.verify().ok:
        wrong.append("something of the poison was committed, or a view is wrong")
    return wrong


def main() -> int:
    """Poison a home of its own."""
    # What is transient is counted here.
    logging.getLogger("headrace.serving").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-poison-") as folder,
        headrace.open(Path(folder) / "home", spark_memory="512m") as hr,
    ):
        hr.execute(DEFINITIONS)
        with running(hr) as served:
            wrong = check(hr, served)
    for one in wrong:
        print(f"WRONG {one}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
