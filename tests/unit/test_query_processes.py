"""Query processes and who looks after them, with a process of our own that hangs, dies and lies as it is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, QueryError, QueryStopped, WorkFailed
from headrace.query_processes import pool as query_processes
from headrace.query_processes.child import Child, ProcessLost
from headrace.query_processes.pool import Stop
from headrace.query_processes.question import Question
from headrace.query_processes.wire import Message, receive, send, to_bytes
from headrace.reading.frames import Content
from tests.query_pool import PROGRAM, Pool, asking, running
from tests.waiting import until

pytestmark = pytest.mark.thorough


def test_a_process_is_started_when_first_needed_and_used_again(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    assert pool.pids() == []
    (pid,) = pool.ask("pid")
    assert pool.ask("pid") == [pid]
    assert [int(pid)] == pool.pids()
    assert pool.ask("echo a b") == ["a", "b"]


def test_relations_are_told_once_and_forgotten_in_time(pool_of: Callable[..., Pool], monkeypatch: Any) -> None:
    monkeypatch.setattr("headrace.query_processes.question._KEPT_COUNT", 2)
    pool = pool_of()
    one, two, three = (Content((), None, pa.table({"c0": pa.array(range(n), pa.int64())})) for n in (1, 2, 3))
    assert pool.ask("names", a=one, b=two) == ["a 1", "b 2"]
    assert pool.ask("names", b=one) == ["b 1"]
    assert pool.ask("names", a=two, b=one, c=three) == ["a 2", "b 1", "c 3"]
    for content, count in ((one, 1), (two, 2), (three, 3), (two, 2)):
        assert pool.ask("names", t=content) == [f"t {count}"]


def test_a_query_is_stopped_and_its_process_goes_on(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    before = pool.ask("pid")
    stop = Stop()
    threading.Timer(0.3, stop.stop).start()
    with pytest.raises(QueryStopped):
        pool.ask("wait 60", stop)
    assert pool.ask("pid") == before


def test_a_query_that_does_not_stop_ends_its_process_and_the_next_is_answered(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(most=1)
    before = pool.ask("pid")
    with asking(pool) as threads:
        stop = Stop()
        hanging = threads.submit(pool.ask, "hang", stop)
        innocent = threads.submit(pool.ask, "wait 3")
        time.sleep(0.5)
        stop.stop()
        with pytest.raises(QueryStopped):
            hanging.result(120)
        # It was in the process that was ended, and is answered all the same.
        assert innocent.result(120) == []
    assert pool.ask("pid") != before


STARTS = """
import os, sys
with open({begun!r}, "a") as begun:
    begun.write(f"{{os.getpid()}} ")
count = len(open({begun!r}).read().split())
{then}
os.execv({program!r}[0], [*{program!r}, sys.argv[-1]])
"""


def starting(begun: Path, then: str) -> tuple[str, ...]:
    """A program that notes its number, and does `then` by the `count` of those before it become the stand-in."""
    return (sys.executable, "-c", STARTS.format(begun=str(begun), then=then, program=PROGRAM))


def test_a_process_that_is_killed_while_it_starts_is_started_again(
    pool_of: Callable[..., Pool], tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    pool = pool_of(program=starting(begun, "if count == 1: import time; time.sleep(300)"))
    with asking(pool) as threads:
        asked = threads.submit(pool.ask, "echo x")
        until(lambda: begun.exists() and begun.read_text().endswith(" "))
        os.killpg(int(begun.read_text()), signal.SIGKILL)
        assert asked.result(120) == ["x"]


def test_starts_that_fail_beside_a_process_that_lives_are_not_repeated_at_once(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.1)
    begun = tmp_path / "begun"
    pool = pool_of(program=starting(begun, "if count > 1: sys.exit(1)"))
    (first,) = pool.ask("pid")
    with asking(pool) as threads:
        stop = Stop()
        long = threads.submit(pool.ask, "wait 300", stop)
        until(lambda: len(begun.read_text().split()) == 3)
        time.sleep(2)
        assert len(begun.read_text().split()) == 3
        # Nor is anybody refused for it.
        assert pool.ask("pid") == [first]
        stop.stop()
        with pytest.raises(QueryStopped):
            long.result(120)


def test_who_waits_when_all_is_closed_is_told_that(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.ask("echo warm")
    with asking(pool) as threads:
        waiting = [threads.submit(pool.ask, text) for text in ("hang", "wait 60")]
        time.sleep(0.5)
        pool.close()
        for one in waiting:
            with pytest.raises(WorkFailed, match="no more queries are answered") as error:
                one.result(20)
            assert error.value.transient
    with pytest.raises(WorkFailed, match="no more queries are answered"):
        pool.ask("echo x")


def test_nobody_is_sent_into_a_process_that_is_being_ended(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of()
    (before,) = pool.ask("pid")
    (process,) = pool._processes
    ended, wait = threading.Event(), process.child._process.wait
    monkeypatch.setattr(process.child._process, "wait", lambda *seconds: ended.wait(60) and wait(*seconds))
    killing = threading.Thread(target=process.child.kill, args=("idle",))
    killing.start()
    try:
        time.sleep(0.2)
        assert not process.ready
        assert not process.child.ended.is_set()
        number, answer = process.child.ask(Question("rows", "echo x", {}))
        assert number
        with pytest.raises(ProcessLost):
            answer.result(20)
    finally:
        ended.set()
        killing.join()
    assert pool.ask("pid") != [before]


@pytest.mark.parametrize("kind", ["lie", "noise"])
def test_a_process_that_lies_is_ended(pool_of: Callable[..., Pool], kind: str) -> None:
    pool = pool_of()
    before = pool.ask("pid")
    with pytest.raises(WorkFailed):
        pool.ask(kind)
    assert pool.ask("pid") != before


def test_a_query_behind_a_long_one_goes_elsewhere(
    pool_of: Callable[..., Pool], monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_BESIDE_SECONDS", 0.5)
    pool = pool_of()
    first = pool.ask("pid")
    with asking(pool) as threads:
        stop = Stop()
        long = threads.submit(pool.ask, "wait 300", stop)
        until(lambda: running(pool) == 1)
        # Not answered beside the long one, it is asked again in the process that is made ready meanwhile.
        stopped = tmp_path / "stopped"
        assert threads.submit(pool.ask, f"again {stopped}").result(120) == []
        # Where it was first, it hears of that a moment later.
        until(lambda: stopped.exists() and stopped.read_text() != "")
        assert stopped.read_text() == first[0]
        assert pool.ask("pid") != first
        stop.stop()
        with pytest.raises(QueryStopped):
            long.result(120)


def test_a_query_goes_where_fewest_are(pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another it would share whatever becomes of that one."""
    pool = pool_of()
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("die")
    until(lambda: len(pool.pids()) == 2 and all(process.ready for process in pool._processes))
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 300.0)
    with asking(pool) as threads:
        stop = Stop()
        other = threads.submit(pool.ask, "wait 300", stop)
        until(lambda: running(pool) == 1)
        (taken,) = (process.child.pid for process in pool._processes if process.running)
        assert [pool.ask("pid") for _ in range(3)] == [[str(pid)] for pid in pool.pids() if pid != taken] * 3
        stop.stop()
        with pytest.raises(QueryStopped):
            other.result(120)


def test_two_are_started_at_once_when_two_are_wanted(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    go = tmp_path / "go"
    wait = f"import time\nwhile count > 1 and not os.path.exists({str(go)!r}): time.sleep(0.05)"
    pool = pool_of(program=starting(begun, wait))
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("die")
    until(lambda: len(begun.read_text().split()) == 3)
    go.touch()
    assert pool.ask("echo x") == ["x"]


def test_a_process_that_goes_on_with_a_query_that_was_moved_is_ended(
    pool_of: Callable[..., Pool], monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_BESIDE_SECONDS", 0.5)
    pool = pool_of()
    (first,) = pool.ask("pid")
    with asking(pool) as threads:
        stop = Stop()
        older = threads.submit(pool.ask, "wait 300", stop)
        until(lambda: running(pool) == 1)
        moved = threads.submit(pool.ask, f"hang once {tmp_path / 'asked'}")
        # It counts as crowded as long as it is there, and nobody is sent into it.
        assert moved.result(120) == []
        assert pool.ask("pid") != [first]
        stop.stop()
        with pytest.raises(QueryStopped):
            older.result(120)
        until(lambda: int(first) not in pool.pids())
    assert pool.ask("pid") != [first]


def test_what_does_not_stop_is_ended_however_many_ask_meanwhile(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    (first,) = pool.ask("pid")
    over = threading.Event()

    def ask_on() -> None:
        while not over.is_set():
            pool.ask("wait 0.5")

    with asking(pool) as threads:
        asked = [threads.submit(ask_on) for _ in range(3)]
        try:
            stop = Stop()
            threading.Timer(0.3, stop.stop).start()
            with pytest.raises(QueryStopped):
                pool.ask("hang", stop)
            until(lambda: int(first) not in pool.pids())
        finally:
            over.set()
        for one in asked:
            one.result(120)


def test_a_process_that_has_not_stopped_a_query_yet_is_not_the_next_ones(
    pool_of: Callable[..., Pool], monkeypatch: Any
) -> None:
    monkeypatch.setattr(query_processes, "_STOP_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_DRAIN_SECONDS", 300.0)
    pool = pool_of()
    (first,) = pool.ask("pid")
    with asking(pool) as threads:
        beside, stop = Stop(), Stop()
        long = threads.submit(pool.ask, "wait 300", beside)
        threading.Timer(0.3, stop.stop).start()
        with pytest.raises(QueryStopped):
            pool.ask("hang", stop)
        time.sleep(1)
        assert pool.ask("pid") != [first]
        # Who was in it is left there, and it is ended after them.
        assert not long.done()
        assert int(first) in pool.pids()
        beside.stop()
        with pytest.raises(QueryStopped):
            long.result(60)
        until(lambda: int(first) not in pool.pids())


def test_queries_are_answered_once_there_are_threads_again(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    with _without_threads("headrace-query-processes"), pytest.raises(RuntimeError):
        pool.ask("echo x")
    assert pool.ask("echo x") == ["x"]


@pytest.mark.parametrize("name", ["headrace-query-answers", "headrace-query-watch"])
def test_a_process_that_nobody_can_look_after_is_not_left_behind(pool_of: Callable[..., Pool], name: str) -> None:
    pool = pool_of()
    with _without_threads(name), pytest.raises(HeadraceError, match="could not be run"):
        pool.ask("echo x")
    assert _children_with_a_wire() == []
    until(lambda: _answered(pool) == ["x"])


def _answered(pool: Pool) -> list[str]:
    try:
        return pool.ask("echo x")
    except HeadraceError:
        return []


def _children_with_a_wire() -> list[str]:
    own = (Path("/proc") / str(os.getpid()) / "task").glob("*/children")
    pids = [pid for path in own for pid in path.read_text().split()]
    return [pid for pid in pids if "query_child" in (Path("/proc") / pid / "cmdline").read_text()]


@contextmanager
def _without_threads(name: str) -> Iterator[None]:
    """Inside, no thread of that name can be started."""
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name == name:
            raise RuntimeError("can't start new thread")
        start(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield


def test_what_was_never_sent_was_not_told(pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pool_of()
    before = pool.ask("pid")
    small, large = (Content((), None, pa.table({"c0": pa.array([n], pa.int64())})) for n in (1, 2))

    def short(table: pa.Table) -> bytes:
        if table is large.rows:
            raise pa.ArrowMemoryError("malloc failed")
        return to_bytes(table)

    with monkeypatch.context() as patched:
        patched.setattr("headrace.query_processes.question.to_bytes", short)
        with pytest.raises(pa.ArrowMemoryError):
            pool.ask("names", a=small, b=large)
    assert pool.ask("names", a=small) == ["a 1"]
    assert pool.ask("pid") == before
    assert not pool._processes[0].child._answers


def test_a_process_that_was_ready_has_not_failed_to_start(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    child = Child(pool.allowance, PROGRAM)
    assert child.ready.wait(60)
    child.kill("idle")
    assert child.ended.wait(60)
    pool._processes.append(query_processes._Process(child))
    pool._look_after()
    assert pool._failures == 0


def test_a_process_knows_no_keys_of_its_owner(pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_API_KEYS", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    names = pool_of().ask("environment")
    assert "PATH" in names
    assert not {"HEADRACE_API_KEYS", "AWS_SECRET_ACCESS_KEY"}.intersection(names)


def test_a_program_that_does_not_start_is_no_endless_wait(pool_of: Callable[..., Pool]) -> None:
    asked_at = time.monotonic()
    with pytest.raises(HeadraceError, match="could not be run"):
        pool_of(program=(*PROGRAM, "broken")).ask("echo x")
    assert time.monotonic() - asked_at < 20


def test_a_process_that_cannot_be_made_is_no_endless_wait(pool_of: Callable[..., Pool]) -> None:
    asked_at = time.monotonic()
    with pytest.raises(HeadraceError, match="could not be run"):
        pool_of(program=("/nowhere/python",)).ask("echo x")
    assert time.monotonic() - asked_at < 20


def test_a_process_ends_when_nobody_is_at_the_other_side() -> None:
    """Held for the real worker by the tests of the server; here for the stand-in, on which the others lean."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([*PROGRAM, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    send(ours, Message({}))
    assert receive(ours, 0).head["ready"]
    ours.close()
    assert process.wait(20) == 0
