"""Query processes and who looks after them, with a process of our own that hangs, dies and lies as it is told."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DecimalType, LongType, StringType, StructField, StructType

from headrace.errors import HeadraceError, QueryError, QueryStopped, StatementError, WorkFailed
from headrace.query_processes import pool as query_processes
from headrace.query_processes.child import Allowance, Child, ProcessLost
from headrace.query_processes.error_forms import error_from_json, error_to_json
from headrace.query_processes.pool import QueryProcesses, Stop
from headrace.query_processes.question import Heard, Question, Told
from headrace.query_processes.wire import Message, WireBroken, receive, send, to_bytes, to_table
from headrace.reading.files import File
from headrace.reading.frames import Content
from headrace.sql.made_query import Piece
from headrace.sql.syntax import Expression

PROGRAM = (sys.executable, str(Path(__file__).with_name("query_child.py")))
ONE = StructType([StructField("a", LongType())])


class Pool(QueryProcesses):
    """Query processes, asked by a line of text."""

    def ask(self, text: str, stop: Stop | None = None, **relations: Content) -> list[str]:
        given = {name: (content, ONE) for name, content in relations.items()}
        return self.rows(Question("rows", text, given), stop or Stop()).column(0).to_pylist()


@pytest.fixture
def pool_of() -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def make(most: int = 2, resident: int = 0, program: tuple[str, ...] = PROGRAM) -> Pool:
        made.append(Pool(Allowance("64m", 1_000_000, 1, Path("/nowhere"), resident=resident), most, program))
        return made[-1]

    yield make
    for pool in made:
        pids = pool.pids()
        pool.close()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


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


def test_what_is_told_travels_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told, heard = Told(), Heard()
    rows = pa.table({"c0": pa.array(range(1000), pa.int64())})
    gone = pa.table({"low": [1], "high": [2]})
    content = Content((File(Path("/a.parquet")), File(Path("/b"), weighted=True)), gone, rows, File(Path("/rest")))
    monkeypatch.setattr(Content, "size", 1)
    with told.telling(1, Question("rows", "SELECT 1", {"t": (content, ONE)}, 3, 4, 10)) as first:
        pass
    with told.telling(2, Question("plan", "SELECT 2", {"u": (content, ONE)})) as again:
        pass
    assert len(first.parts) == 2
    assert not again.parts
    question = heard.question(first)
    assert (question.kind, question.sql, question.line, question.column, question.rows) == (
        "rows",
        "SELECT 1",
        3,
        4,
        10,
    )
    found, schema = question.relations["t"]
    assert (found.files, found.rest, schema) == (content.files, content.rest, ONE)
    assert found.rows.equals(rows)
    assert found.gone is not None
    assert found.gone.equals(gone)
    assert heard.question(again).relations["u"][0] is found


def test_what_a_change_asks_travels_whole() -> None:
    pieces = (Piece(2, Expression("a +\n1", 7, 9)), Piece(5, Expression("a = 'ä'", 8, 1)))
    types = (DecimalType(10, 2), ArrayType(StringType(), True))
    asked = Question("changes", "SELECT 1", {}, 3, 4, None, types, pieces)
    over, other = socket.socketpair()
    with over, other, Told().telling(1, asked) as message:
        send(over, message)
        assert Heard().question(receive(other, 0)) == asked


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
    with ThreadPoolExecutor() as threads:
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


def test_a_query_alone_in_a_process_that_dies_is_told_so_at_once(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    assert pool.ask("echo x") == ["x"]
    with pytest.raises(QueryError, match="more memory than a query may have"):
        pool.ask("die")
    assert pool.ask("echo y") == ["y"]


def test_only_the_guilty_query_hears_of_it(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.ask("echo warm")
    with ThreadPoolExecutor() as threads:
        innocent = [threads.submit(pool.ask, "wait 1.5") for _ in range(3)]
        time.sleep(0.5)
        guilty = threads.submit(pool.ask, "die")
        with pytest.raises(QueryError, match="more memory"):
            guilty.result(120)
        assert [one.result(120) for one in innocent] == [[], [], []]


def test_a_query_is_not_blamed_for_what_another_left_behind(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of()
    pool.ask("echo warm")
    stop = Stop()
    threading.Timer(0.3, stop.stop).start()
    with pytest.raises(QueryStopped):
        pool.ask("wait 60", stop)
    assert pool.ask(f"die once {tmp_path / 'died'}") == []


def test_a_query_that_was_lost_beside_an_older_one_is_asked_again_beside_others(
    pool_of: Callable[..., Pool], monkeypatch: Any
) -> None:
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.3)
    pool = pool_of(most=1)
    (first,) = pool.ask("pid")
    with ThreadPoolExecutor() as threads:
        stop = Stop()
        long = threads.submit(pool.ask, "wait 300", stop)
        try:
            _until(lambda: pool.ask("pid") != [first])
            older = threads.submit(pool.ask, "fall 1")
            time.sleep(0.2)
            # The only process left has a query that takes long, but it is no suspect.
            assert threads.submit(pool.ask, "late 2").result(120) == [first]
            with pytest.raises(QueryError, match="more memory"):
                older.result(120)
        finally:
            stop.stop()
        with pytest.raises(QueryStopped):
            long.result(120)


def test_a_query_that_is_asked_alone_leaves_a_process_to_others(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of(most=1)
    assert pool.ask("echo x") == ["x"]
    with ThreadPoolExecutor() as threads:
        stop = Stop()
        suspect = threads.submit(pool.ask, f"fall 1 once {tmp_path / 'fallen'}", stop)
        time.sleep(0.2)
        beside = threads.submit(pool.ask, "late 2")
        try:
            assert beside.result(120) != []
            _until(lambda: len(pool.pids()) == 2)
            # By then it has the process that it was waiting for, and will not leave it.
            time.sleep(1)
            for _ in range(3):
                assert pool.ask("echo y") == ["y"]
            assert not suspect.done()
        finally:
            stop.stop()
        with pytest.raises(QueryStopped):
            suspect.result(120)


def test_a_process_that_is_killed_while_it_starts_is_started_again(
    pool_of: Callable[..., Pool], tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    starts = f"import os, sys; open({str(begun)!r}, 'a').write(f'{{os.getpid()}} '); "
    first = f"import time; time.sleep(300 if len(open({str(begun)!r}).read().split()) == 1 else 0); "
    child = f"os.execv({PROGRAM[0]!r}, [*{list(PROGRAM)!r}, sys.argv[-1]])"
    pool = pool_of(program=(sys.executable, "-c", starts + first + child))
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(pool.ask, "echo x")
        _until(lambda: begun.exists() and begun.read_text().endswith(" "))
        os.killpg(int(begun.read_text()), signal.SIGKILL)
        assert asked.result(120) == ["x"]


def test_after_a_process_has_ended_two_are_kept_for_a_while(pool_of: Callable[..., Pool], monkeypatch: Any) -> None:
    monkeypatch.setattr(query_processes, "_TROUBLE_SECONDS", 5.0)
    monkeypatch.setattr(query_processes, "_IDLE_SECONDS", 0.5)
    pool = pool_of(most=1)
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("die")
    _until(lambda: len(pool.pids()) == 2)
    assert pool.ask("echo x") == ["x"]
    _until(lambda: len(pool.pids()) == 1)
    assert pool.ask("echo x") == ["x"]


def test_more_memory_than_allowed_ends_a_process(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(resident=350_000_000)
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("fill")
    assert pool.ask("echo x") == ["x"]


def test_a_query_whose_process_is_killed_by_others_is_asked_again(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of()
    (before,) = pool.ask("pid")
    with ThreadPoolExecutor() as threads:
        alone = threads.submit(pool.ask, "wait 1")
        time.sleep(0.3)
        os.killpg(int(before), signal.SIGTERM)
        assert alone.result(120) == []
    assert pool.ask("pid") != [before]
    assert pool.ask(f"vanish once {tmp_path / 'gone'}") == []


def test_no_query_is_blamed_for_an_end_that_nobody_can_explain(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    with pytest.raises(WorkFailed, match="ended while it worked") as error:
        pool.ask("vanish")
    assert error.value.transient
    assert pool.ask("echo x") == ["x"]


def test_who_waits_when_all_is_closed_is_told_that(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.ask("echo warm")
    with ThreadPoolExecutor() as threads:
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
    (room,) = pool._rooms
    ended, wait = threading.Event(), room.child._process.wait
    monkeypatch.setattr(room.child._process, "wait", lambda *seconds: ended.wait(60) and wait(*seconds))
    killing = threading.Thread(target=room.child.kill, args=("idle",))
    killing.start()
    try:
        time.sleep(0.2)
        assert not room.ready
        assert not room.child.ended.is_set()
        number, answer = room.child.ask(Question("rows", "echo x", {}))
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
    with ThreadPoolExecutor() as threads:
        stop = Stop()
        long = threads.submit(pool.ask, "wait 300", stop)
        time.sleep(0.1)
        try:
            # Not answered beside the long one, it is asked again in the process that is made ready meanwhile.
            assert threads.submit(pool.ask, f"again {tmp_path / 'stopped'}").result(120) == []
            # Where it was first, it hears of that a moment later.
            until = time.monotonic() + 60
            while not (stopped := tmp_path / "stopped").exists() or not stopped.read_text():
                assert time.monotonic() < until
                time.sleep(0.05)
            assert stopped.read_text() == first[0]
            assert pool.ask("pid") != first
        finally:
            # Whatever was found, the test does not wait for the long one.
            stop.stop()
        with pytest.raises(QueryStopped):
            long.result(120)


def test_a_process_that_goes_on_with_a_query_that_was_moved_is_ended(
    pool_of: Callable[..., Pool], monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_BESIDE_SECONDS", 0.5)
    pool = pool_of()
    (first,) = pool.ask("pid")
    with ThreadPoolExecutor() as threads:
        older = threads.submit(pool.ask, "wait 3")
        time.sleep(0.1)
        moved = threads.submit(pool.ask, f"hang once {tmp_path / 'asked'}")
        # It counts as crowded as long as it is there, and nobody is sent into it.
        assert moved.result(120) == []
        assert pool.ask("pid") != [first]
        assert older.result(120) == []
        _until(lambda: int(first) not in pool.pids())
    assert pool.ask("pid") != [first]


def test_what_does_not_stop_is_ended_however_many_ask_meanwhile(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    (first,) = pool.ask("pid")
    over = threading.Event()

    def ask_on() -> None:
        while not over.is_set():
            pool.ask("wait 0.5")

    with ThreadPoolExecutor() as threads:
        asking = [threads.submit(ask_on) for _ in range(3)]
        try:
            stop = Stop()
            threading.Timer(0.3, stop.stop).start()
            with pytest.raises(QueryStopped):
                pool.ask("hang", stop)
            _until(lambda: int(first) not in pool.pids())
        finally:
            over.set()
        for one in asking:
            one.result(120)


def test_a_process_that_has_not_stopped_a_query_yet_is_not_the_next_ones(
    pool_of: Callable[..., Pool], monkeypatch: Any
) -> None:
    monkeypatch.setattr(query_processes, "_STOP_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_DRAIN_SECONDS", 300.0)
    pool = pool_of()
    (first,) = pool.ask("pid")
    with ThreadPoolExecutor() as threads:
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
        _until(lambda: int(first) not in pool.pids())


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
    _until(lambda: _answered(pool) == ["x"])


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
    assert not pool._rooms[0].child._answers


def test_a_process_that_was_ready_has_not_failed_to_start(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    child = Child(pool.allowance, PROGRAM)
    assert child.ready.wait(60)
    child.kill("idle")
    assert child.ended.wait(60)
    pool._rooms.append(query_processes._Room(child))
    pool._look_after()
    assert pool._failed_at is None


def test_a_process_knows_no_keys_of_its_owner(pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_API_KEYS", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    names = pool_of().ask("environment")
    assert "PATH" in names
    assert not {"HEADRACE_API_KEYS", "AWS_SECRET_ACCESS_KEY"}.intersection(names)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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


@pytest.mark.parametrize(
    "said",
    [
        struct.pack(">IQ", 2**31, 0),
        struct.pack(">IQ", 2, 2**40) + b"{}",
        struct.pack(">IQ", 2, 0) + b"{}",
        struct.pack(">IQ", 2, 0) + b"[]",
        struct.pack(">IQ", 13, 5) + b'{"parts":[4]}',
        struct.pack(">IQ", 14, 0) + b'{"parts":[-4]}',
        struct.pack(">IQ", 5, 0) + b"\xff\xff\xff\xff\xff",
        struct.pack(">IQ", 5, 0) + b"{",
        b"\0\0",
    ],
)
def test_a_message_that_is_none_breaks_the_wire(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(WireBroken):
            receive(ours, 1000)


def test_messages_arrive_as_they_were_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        parts = [b"", os.urandom(100_000), b"x"]
        sending = threading.Thread(target=send, args=(ours, Message({"ask": 1, "sql": "ü\0"}, parts)))
        sending.start()
        message = receive(theirs, 200_000)
        sending.join()
        assert (message.head["sql"], message.parts) == ("ü\0", parts)
    table = pa.table({"a": [1, None]})
    assert to_table(to_bytes(table)).equals(table)
    with pytest.raises(WireBroken):
        to_table(b"no stream")


def test_errors_come_out_as_they_went_in() -> None:
    sent = StatementError("it cannot be read", detail="Here.", hint="mend it", line=2, column=7)
    heard = error_from_json(error_to_json(sent))
    assert (type(heard), str(heard), heard.line, heard.column) == (StatementError, str(sent), 2, 7)
    assert type(error_from_json({"code": "owner_lost", "message": "no"})) is QueryError
