"""Query processes and their queue, with a process of our own that hangs, dies and lies as it is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, QueryError, QueryStopped, WorkFailed
from headrace.query_processes import pool as module
from headrace.query_processes.child import Child, ProcessLost
from headrace.query_processes.pool import Stop
from headrace.query_processes.question import Question
from headrace.query_processes.wire import Message, receive, send, to_bytes
from headrace.reading.frames import Content
from tests.query_pool import PROGRAM, Pool, asking, running, waiting
from tests.waiting import until

pytestmark = pytest.mark.thorough
# Far more than any of this takes on a busy machine.
SECONDS = 120


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test starts with a pool that does not grow by itself, however slow the machine is."""
    monkeypatch.setattr(module, "_LONG_SECONDS", 3600.0)


def killed(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


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


def test_a_process_is_started_when_first_needed_and_used_again(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    assert pool.pids() == []
    (pid,) = pool.ask("pid")
    assert pool.ask("pid") == [pid]
    assert [int(pid)] == pool.pids()
    assert pool.ask("echo a b") == ["a", "b"]


def test_a_process_has_one_query_and_the_others_wait_in_order(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of(most=1)
    go = [tmp_path / f"go{number}" for number in range(4)]
    with asking(pool) as threads:
        asked = [threads.submit(pool.ask, f"until {go[0]}")]
        until(lambda: running(pool) == 1)
        for number in range(1, 4):
            asked.append(threads.submit(pool.ask, f"until {go[number]}"))
            until(lambda number=number: waiting(pool) == number)
        assert running(pool) == 1
        assert len(pool.pids()) == 1
        # Only the query that is in the process can end.
        for number in range(4):
            go[number].touch()
            asked[number].result(SECONDS)


def test_no_asker_has_all_processes_where_several_ask(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(module, "_STOP_SECONDS", 0.0)
    pool = pool_of(most=2)
    pool.ask("pid", Stop("modest"))
    with asking(pool) as threads:
        # Queries without the name of an asker count as one asker.
        stops = [Stop() for _ in range(3)]
        endless = [threads.submit(pool.ask, "hang", stop) for stop in stops]
        until(lambda: running(pool) == 1 and waiting(pool) == 2)
        (own,) = pool.ask("pid", Stop("modest"))
        # The process that is started in place of the one that the first of them ends is for the second, and so on.
        (process,) = (process for process in pool._processes if process.busy)
        killed(process.child.pid)
        until(lambda: process not in pool._processes and running(pool) == 1 and waiting(pool) == 2)
        assert [pool.ask("pid", Stop("modest")) for _ in range(3)] == [[own]] * 3
        for stop in stops:
            stop.stop()
        for asked in endless:
            with pytest.raises(QueryStopped):
                asked.result(SECONDS)
        assert pool.ask("pid", Stop("modest")) == [own]


def test_an_asker_waits_for_a_further_process_beside_one_that_is_left_to_another(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LONG_SECONDS", 0.0)
    pool = pool_of(most=3)
    pool.ask("echo x", Stop("modest"))
    with asking(pool) as threads:
        stops = [Stop("greedy"), Stop("greedy")]
        endless = [threads.submit(pool.ask, "hang", stops[0])]
        until(lambda: any(process.free for process in pool._processes))
        (own,) = pool.ask("pid", Stop("modest"))
        endless.append(threads.submit(pool.ask, "hang", stops[1]))
        until(lambda: running(pool) == 2)
        assert len(pool.pids()) == 3
        assert pool.ask("pid", Stop("modest")) == [own]
        for stop, asked in zip(stops, endless, strict=True):
            stop.stop()
            with pytest.raises(QueryStopped):
                asked.result(SECONDS)


def test_another_process_is_made_ready_beside_a_long_query_and_ended_when_it_is_idle(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool = pool_of(most=2)
    (first,) = pool.ask("pid")
    with asking(pool) as threads:
        long = threads.submit(pool.ask, f"until {tmp_path / 'go'}")
        until(lambda: running(pool) == 1)
        monkeypatch.setattr(module, "_LONG_SECONDS", 0.0)
        until(lambda: any(process.free for process in pool._processes))
        assert pool.ask("pid") != [first]
        (tmp_path / "go").touch()
        assert long.result(SECONDS) == [first]
    monkeypatch.setattr(module, "_LONG_SECONDS", 3600.0)
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.0)
    until(lambda: len(pool.pids()) == 1)
    assert pool.ask("pid") == [str(pid) for pid in pool.pids()]


def test_there_are_never_more_processes_than_may_be(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_LONG_SECONDS", 0.0)
    begun = tmp_path / "begun"
    pool = pool_of(most=2, program=starting(begun, "pass"))
    with asking(pool) as threads:
        asked = [threads.submit(pool.ask, f"until {tmp_path / 'go'}") for _ in range(6)]
        until(lambda: running(pool) == 2)
        assert waiting(pool) == 4
        assert len(pool.pids()) == 2
        (tmp_path / "go").touch()
        assert len({tuple(one.result(SECONDS)) for one in asked}) == 2
    assert len(begun.read_text().split()) == 2


def test_relations_are_told_once_and_forgotten_in_time(pool_of: Callable[..., Pool], monkeypatch: Any) -> None:
    monkeypatch.setattr("headrace.query_processes.question._KEPT_COUNT", 2)
    pool = pool_of()
    one, two, three = (Content((), None, pa.table({"c0": pa.array(range(n), pa.int64())})) for n in (1, 2, 3))
    assert pool.ask("names", a=one, b=two) == ["a 1", "b 2"]
    assert pool.ask("names", b=one) == ["b 1"]
    assert pool.ask("names", a=two, b=one, c=three) == ["a 2", "b 1", "c 3"]
    for content, count in ((one, 1), (two, 2), (three, 3), (two, 2)):
        assert pool.ask("names", t=content) == [f"t {count}"]


def test_a_query_is_stopped_and_its_process_goes_on(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_STOP_SECONDS", 3600.0)
    pool = pool_of()
    before = pool.ask("pid")
    with asking(pool) as threads:
        stop = Stop()
        asked = threads.submit(pool.ask, f"until {tmp_path / 'never'}", stop)
        until(lambda: running(pool) == 1)
        stop.stop()
        with pytest.raises(QueryStopped):
            asked.result(SECONDS)
    assert pool.ask("pid") == before


def test_a_query_that_waits_is_stopped(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of(most=1)
    with asking(pool) as threads:
        long = threads.submit(pool.ask, f"until {tmp_path / 'go'}")
        until(lambda: running(pool) == 1)
        stop = Stop()
        next_one = threads.submit(pool.ask, "echo x", stop)
        until(lambda: waiting(pool) == 1)
        stop.stop()
        with pytest.raises(QueryStopped):
            next_one.result(SECONDS)
        assert waiting(pool) == 0
        (tmp_path / "go").touch()
        assert len(long.result(SECONDS)) == 1


def test_a_process_that_does_not_stop_its_query_is_replaced(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STOP_SECONDS", 3600.0)
    pool = pool_of(most=1)
    (before,) = pool.ask("pid")
    with asking(pool) as threads:
        stop = Stop()
        hanging = threads.submit(pool.ask, "hang", stop)
        until(lambda: running(pool) == 1)
        stop.stop()
        with pytest.raises(QueryStopped):
            hanging.result(SECONDS)
        # Nobody is sent into it meanwhile.
        next_one = threads.submit(pool.ask, "pid")
        until(lambda: waiting(pool) == 1)
        assert pool.pids() == [int(before)]
        assert running(pool) == 1
        monkeypatch.setattr(module, "_STOP_SECONDS", 0.0)
        assert next_one.result(SECONDS) != [before]


def test_a_query_that_uses_much_of_the_processor_gives_way(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool = pool_of()
    (pid,) = pool.ask("pid")
    before = os.getpriority(os.PRIO_PROCESS, int(pid))
    monkeypatch.setattr(module, "_HEAVY_PROCESSOR_SECONDS", -1.0)
    with asking(pool) as threads:
        heavy = threads.submit(pool.ask, f"until {tmp_path / 'go'}")
        until(lambda: os.getpriority(os.PRIO_PROCESS, int(pid)) > before)
        (tmp_path / "go").touch()
        assert heavy.result(SECONDS) == [pid]


def test_a_query_that_needs_too_much_memory_hears_so_at_once_and_nobody_else_does(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    monkeypatch.setattr(module, "_LONG_SECONDS", 0.0)
    pool = pool_of(program=starting(begun, "pass"))
    with asking(pool) as threads:
        beside = threads.submit(pool.ask, f"until {tmp_path / 'go'}")
        until(lambda: running(pool) == 1)
        with pytest.raises(QueryError, match="more memory than a query may have"):
            pool.ask("die")
        # It was not asked again: that would have ended another process.
        until(lambda: any(process.free for process in pool._processes))
        assert len(begun.read_text().split()) == 3
        assert pool.ask("echo x") == ["x"]
        (tmp_path / "go").touch()
        assert len(beside.result(SECONDS)) == 1


def test_more_memory_than_allowed_ends_a_process(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(resident=350_000_000)
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("fill")
    assert pool.ask("echo x") == ["x"]


def test_a_query_whose_process_is_killed_by_others_is_asked_again(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of()
    (before,) = pool.ask("pid")
    with asking(pool) as threads:
        asked = threads.submit(pool.ask, f"until {tmp_path / 'go'}")
        until(lambda: running(pool) == 1)
        killed(int(before))
        (tmp_path / "go").touch()
        assert asked.result(SECONDS) != [before]
    assert pool.ask(f"vanish once {tmp_path / 'gone'}") == []


def test_a_query_is_asked_again_once(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    pool = pool_of(program=starting(begun, "pass"))
    with pytest.raises(WorkFailed, match="ended while it worked") as error:
        pool.ask("vanish")
    assert error.value.transient
    assert pool.ask("echo x") == ["x"]
    assert len(begun.read_text().split()) == 3


def test_a_process_that_is_killed_again_and_again_while_it_starts_only_makes_the_query_wait(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_LONGEST_PAUSE_SECONDS", 0.1)
    begun, times = tmp_path / "begun", 2 * module._FAILED_STARTS
    pool = pool_of(program=starting(begun, f"if count <= {times}: import time; time.sleep(3600)"))
    with asking(pool) as threads:
        asked = threads.submit(pool.ask, "echo x")
        for number in range(1, times + 1):
            until(lambda number=number: begun.exists() and begun.read_text().count(" ") == number)
            killed(int(begun.read_text().split()[-1]))
        assert asked.result(SECONDS) == ["x"]


def test_a_slow_start_only_makes_the_query_wait_until_it_is_stopped(
    pool_of: Callable[..., Pool], tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    pool = pool_of(program=starting(begun, "import time; time.sleep(3600)"))
    with asking(pool) as threads:
        stop = Stop()
        asked = threads.submit(pool.ask, "echo x", stop)
        until(lambda: begun.exists() and begun.read_text().endswith(" "))
        assert not asked.done()
        stop.stop()
        with pytest.raises(QueryStopped):
            asked.result(SECONDS)


def test_a_start_that_hangs_is_tried_again(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_LONGEST_START_SECONDS", 30.0)
    begun = tmp_path / "begun"
    pool = pool_of(program=starting(begun, "if count == 1: import time; time.sleep(3600)"))
    with asking(pool) as threads:
        asked = threads.submit(pool.ask, "echo x")
        until(lambda: begun.exists() and begun.read_text().endswith(" "))
        pool._processes[0].since -= 30.0
        assert asked.result(SECONDS) == ["x"]


def test_a_program_that_does_not_start_is_no_endless_wait(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    pool = pool_of(program=starting(begun, "if count <= 3: sys.exit(7)"))
    with pytest.raises(WorkFailed, match="could not be run") as error:
        pool.ask("echo x")
    assert error.value.transient
    assert "ended with 7" in error.value.detail
    assert len(begun.read_text().split()) == 3
    # It is tried again for those who ask later.
    until(lambda: _answered(pool) == ["x"])


def test_starts_that_fail_beside_a_process_that_lives_refuse_nobody(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_LONG_SECONDS", 0.0)
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.1)
    begun = tmp_path / "begun"
    pool = pool_of(program=starting(begun, "if count > 1: sys.exit(1)"))
    (first,) = pool.ask("pid")
    with asking(pool) as threads:
        long = threads.submit(pool.ask, f"until {tmp_path / 'go'}")
        until(lambda: running(pool) == 1)
        behind = threads.submit(pool.ask, "pid")
        until(lambda: pool._failures > module._FAILED_STARTS)
        assert not behind.done()
        (tmp_path / "go").touch()
        assert long.result(SECONDS) == behind.result(SECONDS) == [first]


def test_a_process_that_cannot_be_made_is_no_endless_wait(pool_of: Callable[..., Pool]) -> None:
    with pytest.raises(WorkFailed, match="could not be run") as error:
        pool_of(program=("/nowhere/python",)).ask("echo x")
    assert "No such file" in error.value.detail


def test_who_waits_when_all_is_closed_is_told_that(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(most=1)
    with asking(pool) as threads:
        asked = [threads.submit(pool.ask, "hang")]
        until(lambda: running(pool) == 1)
        asked.append(threads.submit(pool.ask, "echo x"))
        until(lambda: waiting(pool) == 1)
        pool.close()
        for one in asked:
            with pytest.raises(WorkFailed, match="no more queries are answered") as error:
                one.result(SECONDS)
            assert error.value.transient
    with pytest.raises(WorkFailed, match="no more queries are answered"):
        pool.ask("echo x")


def test_a_process_that_is_being_ended_is_not_asked(pool_of: Callable[..., Pool], monkeypatch: Any) -> None:
    pool = pool_of(most=1)
    (before,) = pool.ask("pid")
    (process,) = pool._processes
    ended, wait = threading.Event(), process.child._process.wait
    monkeypatch.setattr(process.child._process, "wait", lambda *seconds: ended.wait(SECONDS) and wait(*seconds))
    try:
        process.child.kill("idle")
        assert not process.free
        assert not process.child.ended.is_set()
        with pytest.raises(ProcessLost) as lost:
            process.child.ask(Question("rows", "echo x", {})).result(SECONDS)
        assert lost.value.ending == "unasked"
    finally:
        ended.set()
    assert pool.ask("pid") != [before]


def test_a_query_is_not_lost_by_processes_that_ended_before_they_were_asked(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = pool_of()
    ask, left = Child.ask, [3]

    def ask_ended(child: Child, question: Question) -> Any:
        if left[0]:
            left[0] -= 1
            child.kill("unknown")
        return ask(child, question)

    monkeypatch.setattr(Child, "ask", ask_ended)
    assert pool.ask("echo x") == ["x"]
    assert left == [0]


@pytest.mark.parametrize("kind", ["lie", "noise"])
def test_a_process_that_lies_is_ended(pool_of: Callable[..., Pool], kind: str) -> None:
    pool = pool_of()
    before = pool.ask("pid")
    with pytest.raises(WorkFailed):
        pool.ask(kind)
    assert pool.ask("pid") != before


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
    assert pool.ask("echo x") == ["x"]


def test_a_process_knows_no_keys_of_its_owner(pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_API_KEYS", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    names = pool_of().ask("environment")
    assert "PATH" in names
    assert not {"HEADRACE_API_KEYS", "AWS_SECRET_ACCESS_KEY"}.intersection(names)


def test_a_process_ends_when_nobody_is_at_the_other_side() -> None:
    """Held for the real worker by the tests of the server; here for the stand-in, on which the others lean."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([*PROGRAM, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    send(ours, Message({}))
    assert receive(ours, 0).head["ready"]
    ours.close()
    assert process.wait(SECONDS) == 0
