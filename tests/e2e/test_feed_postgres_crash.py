"""Feeds into a real PostgreSQL that are killed at every step, stopped and replaced, or lose the server: told once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.feeds.batch import Mark
from headrace.feeds.sink import SinkUnavailable
from tests.feed_database import Database
from tests.feed_postgres_child import BATCHES, SIZE, batch_after, delivery_of, events
from tests.waiting import PATIENCE, until

STEPS = ("began", "before COPY", "after the rows", "before commit", "after commit")


def child(database: Database, step: str, at: int, how: str = "SIGKILL", mode: str = "mirror", **parts: Any) -> Any:
    told = {"step": step, "time": at, "signal": how, "mode": mode, "fence": 1, "scan": False, **parts}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.feed_postgres_child", json.dumps({**told, "location": database.location()})],
        stdout=subprocess.PIPE,
        text=True,
    )


def expected(last: int) -> list[tuple[int, str]]:
    held: dict[int, str] = {}
    for operation, row in events(1, last):
        if operation == "DELETE":
            held.pop(row["id"], None)
        else:
            held[row["id"]] = row["name"]
    return sorted(held.items())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mirror", "insert"])
def test_killed_at_any_step_it_is_told_once(database: Database, mode: str) -> None:
    processes = []
    for index, step in enumerate(STEPS):
        other = Database(database.servers, f"{database.schema}_{index}")
        other.run("CREATE SCHEMA {}")
        processes.append((step, other, child(other, step, 1 + index, mode=mode)))
    try:
        for step, other, process in processes:
            assert process.wait(PATIENCE) == -signal.SIGKILL, step
            delivery = delivery_of(other.location(), 2, mode)
            other.deliveries.append(delivery)
            number = (delivery.known_mark() or Mark(0, None, 0)).sequence
            # A batch counts from its commit on.
            assert number == (STEPS.index(step) + (step == "after commit")) * SIZE
            # What comes first was told already, unless nothing was.
            for first in range(max(0, number - SIZE), BATCHES * SIZE, SIZE):
                delivery.deliver(batch_after(first, mode))
            if mode == "mirror":
                assert [row[:2] for row in other.rows()] == expected(BATCHES * SIZE)
            else:
                names = sorted(f"of {number}" for number in range(1, BATCHES * SIZE + 1))
                assert sorted(row[1] for row in other.rows()) == names
    finally:
        for _, other, process in processes:
            process.kill()
            process.communicate()
            for delivery in other.deliveries:
                delivery.close()
            other.run("DROP SCHEMA {} CASCADE")


@pytest.mark.slow
def test_killed_before_the_end_of_a_scan_the_old_rows_are_there(database: Database) -> None:
    process = child(database, "before the end of a scan", 1, scan=True)
    assert process.wait(PATIENCE) == -signal.SIGKILL
    process.communicate()
    assert [row[:2] for row in database.rows()] == expected(BATCHES * SIZE)
    delivery = delivery_of(database.location(), 2, "mirror")
    database.deliveries.append(delivery)
    last = (BATCHES + 1) * SIZE
    assert delivery.known_mark() == Mark(last, 1, last)
    delivery.end_scan(Mark(10_000, None, last))
    told = [(row["id"], row["name"]) for operation, row in events(last - SIZE + 1, last) if operation != "DELETE"]
    assert [row[:2] for row in database.rows()] == sorted(told)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["began", "after the rows"])
def test_an_owner_that_was_stopped_is_replaced_and_ends(database: Database, step: str) -> None:
    process = child(database, step, 3, "SIGSTOP")
    try:
        assert process.stdout.readline() == "there\n"
        # It does not wait for the locks of one that may never go on: that one goes on below, and not before.
        delivery = delivery_of(database.location(), 2, "mirror")
        database.deliveries.append(delivery)
        assert delivery.known_mark() == Mark(2 * SIZE, 1, 2 * SIZE)
        for number in range(2 * SIZE, BATCHES * SIZE * 2, SIZE):
            delivery.deliver(batch_after(number))
        os.kill(process.pid, signal.SIGCONT)
        out, _ = process.communicate(timeout=PATIENCE)
        assert "another process, with the number 2, delivers this feed now" in out
        assert delivery.known_mark() == Mark(BATCHES * SIZE * 2, 1, BATCHES * SIZE * 2)
        assert [row[:2] for row in database.rows()] == expected(BATCHES * SIZE * 2)
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_is_killed_in_the_middle(database: Database) -> None:
    delivery = delivery_of(database.location(), 1, "insert")
    database.deliveries.append(delivery)
    done = threading.Event()
    failures: list[str] = []
    count = 0

    def deliver() -> None:
        nonlocal count
        while not done.is_set():
            try:
                delivery.deliver(batch_after(count * SIZE, "insert"))
                count += 1
            except SinkUnavailable as error:
                failures.append(str(error))
                done.wait(0.05)

    def goes_on() -> None:
        reached = count
        until(lambda: count >= reached + 10 or delivering.done())

    with ThreadPoolExecutor(1) as worker:
        delivering = worker.submit(deliver)
        try:
            for _ in range(2):
                goes_on()
                database.servers.restart_postgres()
            goes_on()
        finally:
            done.set()
        delivering.result()
    assert failures
    names = sorted(f"of {number}" for number in range(1, count * SIZE + 1))
    assert sorted(row[1] for row in database.rows()) == names
    mark = delivery.known_mark()
    assert mark is not None
    assert mark.sequence == count * SIZE
