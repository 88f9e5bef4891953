"""Whatever is asked, epochs and other queries go on: with real query processes, asked what they cannot bear."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.query_processes.child import Child
from headrace.query_processes.question import Question
from tests.e2e.conftest import Served, query_processes
from tests.ending_with_us import ending_with_us
from tests.waiting import PATIENCE, until

# Spark evaluates it while it analyzes, in one piece that nothing interrupts; it takes hours.
UNSTOPPABLE = "levenshtein(repeat('a', 3000000), repeat('b', 3000000))"


def push(server: Served, number: int) -> None:
    """Commit an epoch with views."""
    answer = server.push("items", json.dumps({"insert": {"id": number, "name": "n", "price": "1.00"}}))
    assert answer.status_code == 200, answer.text


def refused(server: Served, sql: str, code: str, **parts: Any) -> None:
    answer = server.query(sql, **parts)
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text


def counted(server: Served, sql: str = "SELECT count(*) AS n FROM items WHERE id > 0") -> int:
    return server.asked(sql)[0]["n"]


@pytest.mark.slow
def test_a_query_that_cannot_be_stopped_is_ended_and_the_next_is_answered(server: Served) -> None:
    push(server, 1)
    refused(server, f"SELECT * FROM VALUES ({UNSTOPPABLE}) AS v(x)", "timeout", timeout_seconds=3)
    assert counted(server) == 1
    push(server, 2)


@pytest.mark.slow
def test_a_process_answers_what_was_stopped_when_nothing_of_it_runs_any_more() -> None:
    child = Child(query_processes().allowance)
    try:
        assert child.ready.wait(PATIENCE)
        answer = child.ask(Question("rows", "SELECT count(id) AS n FROM range(1000000000000)", {}))
        _worked(child)
        child.stop()
        assert answer.result(PATIENCE).head["error"]["code"] == "query_stopped"
        # One row of each task takes minutes, and Spark calls the job cancelled at once.
        row = "levenshtein(repeat('a', 200000 + int(id)), repeat('b', 200000))"
        answer = child.ask(Question("rows", f"SELECT max({row}) AS n FROM range(0, 2, 1, 2)", {}))
        _worked(child)
        child.stop()
        _worked(child)
        assert not answer.done()
    finally:
        child.kill("closed")
    assert child.ended.wait(PATIENCE)


def _worked(child: Child) -> None:
    """Wait until a process has used more of the processor than a query takes to begin."""
    used = child.processor_seconds()
    until(lambda: child.processor_seconds() - used > 6)


@pytest.mark.slow
def test_a_query_that_takes_all_memory_is_refused_and_others_are_answered(server: Served) -> None:
    push(server, 1)
    with ThreadPoolExecutor(2) as askers:
        # Of long texts, so that the memory is used up before the time is, also beside other work.
        texts = "SELECT size(collect_list(concat(repeat('a', 20000), id))) AS n FROM range(100000000)"
        greedy = askers.submit(server.query, texts)
        for number in range(2, 200):
            push(server, number)
            if greedy.done():
                break
        answer = greedy.result(PATIENCE)
    assert answer.status_code == 400, answer.text
    assert "more memory" in answer.json()["message"]
    assert counted(server) > 0


def test_the_next_query_is_answered_after_a_process_was_killed(server: Served) -> None:
    push(server, 1)
    assert counted(server) == 1
    for pid in query_processes().pids():
        os.killpg(pid, signal.SIGKILL)
    until(lambda: _is_answered(server))
    assert counted(server) == 1


def _is_answered(server: Served) -> bool:
    """Ask a query, which may wait for a process for longer than it has time, and is refused for no other reason."""
    answer = server.query("SELECT 1 AS a")
    assert answer.status_code == 200 or answer.json()["code"] == "timeout", answer.text
    return answer.status_code == 200


def test_changes_are_worked_out_apart(server: Served) -> None:
    until(lambda: _is_answered(server))
    server.push("parts", '{"insert": {"id": 1, "name": "a", "price": "1.25"}}')
    made = server.query("INSERT INTO parts SELECT id + 1, upper(name), price * 2 FROM parts")
    assert made.status_code == 200, made.text
    assert made.json()["applied"] == {"parts": 1}
    server.query("INSERT INTO parts (id, price) VALUES (CAST(length('abc') AS INT), round(1.005, 2))")
    changed = server.query("UPDATE parts AS p SET name = concat(name,\n'!'), price = 7 WHERE p.id = 2")
    assert changed.json()["applied"] == {"parts": 1}
    assert server.query("DELETE FROM parts WHERE name = 'a'").json()["applied"] == {"parts": 1}
    assert server.rows("parts") == [
        {"id": 2, "name": "A!", "price": "7.00"},
        {"id": 3, "name": None, "price": "1.01"},
    ]
    wrong = server.query("UPDATE parts SET price = 1\nWHERE nothing = 2")
    assert wrong.status_code == 400
    assert (wrong.json()["line"], wrong.json()["column"]) == (2, 7), wrong.text
    few = server.query("INSERT INTO parts SELECT 1")
    assert (few.status_code, few.json()["code"]) == (400, "statement_error")


@pytest.mark.slow
def test_a_change_of_too_many_bytes_is_refused(server: Served) -> None:
    most = server.service.settings.serve_query_bytes
    answer = server.query(f"INSERT INTO notes SELECT id, repeat('x', 1000) FROM range(0, {most // 500}, 1, 64)")
    assert (answer.status_code, answer.json()["code"]) == (400, "result_too_large"), answer.text
    assert server.rows("notes") == []
    assert counted(server) == 0


@pytest.mark.slow
def test_no_epoch_waits_for_a_change_that_never_ends(server: Served) -> None:
    push(server, 1)
    with ThreadPoolExecutor(2) as askers:
        hostile = [
            f"UPDATE items SET name = 'x' WHERE id + {UNSTOPPABLE} > 0",
            f"INSERT INTO notes VALUES ({UNSTOPPABLE}, 'x')",
        ]
        asked = [askers.submit(refused, server, sql, "timeout", timeout_seconds=30) for sql in hostile]
        for number in range(2, 6):
            push(server, number)
        assert not any(one.done() for one in asked)
        for one in asked:
            one.result()
    assert counted(server) == 5
    assert server.rows("notes") == []


OWNER = """
import os, time
from headrace.query_processes.queries import processes_for
from headrace.query_processes.pool import Stop
from headrace.query_processes.question import Question
from headrace.settings import Settings

processes = processes_for(Settings())
processes.rows(Question("rows", "SELECT 1 AS a", {}), Stop())
print(processes.pids()[0], flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_query_processes_end_with_their_owner_however_it_ends() -> None:
    with subprocess.Popen(ending_with_us([sys.executable, "-c", OWNER]), stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            group = int(owner.stdout.readline())
            # The process, and its JVM.
            assert len(_members(group)) >= 2
        finally:
            owner.kill()
        owner.wait()
        until(lambda: not _members(group))


def _members(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found
