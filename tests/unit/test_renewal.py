"""A Spark that ends is replaced, and whoever used it is brought to the next; none of them is a Spark here."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from headrace.epoch import core as cores
from headrace.epoch.calls import Call
from headrace.epoch.core import Core
from headrace.epoch.loop import Loop
from headrace.epoch.work import evaluation_error
from headrace.errors import HeadraceError, QueryError, SparkLost, WorkFailed
from headrace.reading.files import Files
from headrace.spark import session
from headrace.spark.jvm import Gateway, Guard, Jvm
from headrace.upkeep import renew
from headrace.upkeep.renew import Renewal
from tests.small_engine import THREADS, Host, table, view


class User:
    """Takes a Spark when it can."""

    def __init__(self, *failures: Exception, tried: Callable[[], None] = lambda: None) -> None:
        self._failures = list(failures)
        self._tried = tried
        self.heard: list[object] = []

    def lose_spark(self) -> None:
        self.heard.append("lost")

    def take_spark(self, spark: Any) -> None:
        self._tried()
        if self._failures:
            raise self._failures.pop(0)
        self.heard.append(spark)

    def note_failure(self, error: Exception) -> None:
        self.heard.append(str(error))


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.setattr(session, "_FIRST_PAUSE", 0.01)
    one = subprocess.Popen(["sleep", "3600"])
    yield one
    one.kill()
    one.wait()


def spark_of(process: subprocess.Popen[bytes]) -> Any:
    context = SimpleNamespace(_gateway=SimpleNamespace(proc=process), _jsc=java_context(lambda: False))
    return SimpleNamespace(sparkContext=context)


def java_context(is_stopped: Callable[[], bool]) -> Any:
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=is_stopped))


def unreachable() -> bool:
    raise Py4JNetworkError("Answer from Java side is empty")


def test_who_cannot_take_the_new_spark_is_asked_again(process: subprocess.Popen[bytes]) -> None:
    spark = spark_of(process)
    unlucky, other = User(OSError(28, "full"), OSError(28, "still full")), User()
    session._bring(spark, WeakSet([unlucky, other]))
    assert unlucky.heard == ["[Errno 28] full", "[Errno 28] still full", spark]
    assert other.heard == [spark]


def test_nobody_is_asked_to_take_a_spark_that_has_ended(process: subprocess.Popen[bytes]) -> None:
    user = User(*[OSError("gone")] * 1000, tried=process.kill)
    bringing = threading.Thread(target=session._bring, args=(spark_of(process), WeakSet([user])))
    bringing.start()
    bringing.join(90)
    assert not bringing.is_alive()


def test_a_spark_that_cannot_be_started_is_tried_again_and_told(process: subprocess.Popen[bytes]) -> None:
    user, attempts = User(), iter([OSError(28, "full"), None])

    def start() -> Any:
        failure = next(attempts)
        if failure is not None:
            raise failure
        return spark_of(process)

    assert session._start_again(WeakSet([user]), start) is not None
    assert user.heard == ["[Errno 28] full"]


def test_one_that_ends_before_it_is_brought_is_replaced_too(process: subprocess.Popen[bytes]) -> None:
    """Its users are known from its start, so its end is told to them although they never had it."""
    user, third = User(), spark_of(process)
    short = subprocess.Popen(["sleep", "3600"])
    first = Jvm(process, Guard(), Gateway("", 0, ""), 5.0, "1g")
    second = Jvm(short, Guard(), Gateway("", 0, ""), 5.0, "1g")
    session._users[first] = WeakSet([user])
    replaced = threading.Event()

    def start_second() -> Any:
        session._users[second] = WeakSet()

        def end_second() -> None:
            session._replace(second, lambda: third)
            replaced.set()

        short.kill()
        short.wait()
        threading.Thread(target=end_second).start()
        return spark_of(short)

    session._replace(first, start_second)
    assert replaced.wait(90)
    assert user.heard.count("lost") == 2
    assert user.heard[-1] is third
    for jvm in (first, second):
        jvm._guard.close()


def test_without_users_no_spark_is_started() -> None:
    assert session._start_again(WeakSet(), lambda: pytest.fail("started for nobody")) is None


def test_a_home_that_cannot_go_on_yet_says_why_and_goes_on(
    process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renew, "_WAIT_SECONDS", 0.05)
    full = [OSError(28, "No space left on device")]

    def open_sessions(*_: Any) -> Any:
        if full:
            raise full.pop()
        return SimpleNamespace(catalyst=None)

    monkeypatch.setattr(renew, "open_sessions", open_sessions)
    catalog = SimpleNamespace(tables=list, views=list, relations={})
    core = SimpleNamespace(closed=False, path="h", catalog=catalog, swap_spark=lambda *_: None)
    loop: Any = SimpleNamespace(core=core, between_epochs=lambda make: make())
    monkeypatch.setattr(Renewal, "_rehearse", lambda *_: None)
    files: Any = None
    renewal = Renewal(loop, spark_of(process), files)
    users = WeakSet([renewal])
    for _ in range(10):
        renewal.lose_spark()
        with pytest.raises(SparkLost):
            renewal.wait()
        session._bring(spark_of(process), users)
        assert not renewal.under_way
        assert renewal.failure is None
    assert not list(tmp_path.iterdir())


def test_a_home_that_waits_tells_what_failed(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    loop: Any = SimpleNamespace(core=SimpleNamespace(closed=False))
    renewal = Renewal(loop, spark_of(process), Files(tmp_path))
    renewal.lose_spark()
    renewal.note_failure(OSError(28, "No space left on device"))
    renewal._lost_at -= 100
    with pytest.raises(SparkLost) as told:
        renewal.wait()
    assert "No space left on device" in told.value.detail
    assert told.value.transient


@pytest.mark.parametrize("ours", [True, False])
def test_a_spark_that_has_just_ended_is_waited_for_if_it_is_ours(
    process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool
) -> None:
    """Its end is noticed a moment later; nobody is told meanwhile that it stays away."""
    monkeypatch.setattr(renew, "use_spark", lambda *_: ours)
    loop: Any = SimpleNamespace(core=SimpleNamespace(closed=False))
    renewal = Renewal(loop, spark_of(process), Files(tmp_path))
    assert (renewal.under_way, renewal.has_ended) == (False, False)
    process.kill()
    process.wait()
    assert (renewal.under_way, renewal.has_ended) == (ours, not ours)
    if not ours:
        with pytest.raises(SparkLost, match=r"given to headrace\.open") as told:
            renewal.wait()
        assert not told.value.transient


@pytest.fixture
def renewal(process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Renewal:
    """Of a home whose Spark lives."""
    monkeypatch.setattr(renew, "use_spark", lambda *_: True)
    loop: Any = SimpleNamespace(core=SimpleNamespace(closed=False))
    return Renewal(loop, spark_of(process), Files(tmp_path))


def told(error: Exception) -> Exception:
    """As a failure comes out of an epoch."""
    return evaluation_error("v", error)


BROKEN = [
    Py4JNetworkError("Answer from Java side is empty"),
    # Most often it is told like this, as if the call had failed.
    Py4JError("An error occurred while calling o1.getResult"),
    EOFError(),
    ConnectionResetError(104, "reset by peer"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("form", [told, lambda error: error], ids=["told", "raw"])
def test_a_broken_connection_is_told_as_the_end_of_spark(
    renewal: Renewal,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    broken: Exception,
    form: Callable[[Exception], Exception],
) -> None:
    """The process closes its connections a moment before it can be seen to have ended."""
    monkeypatch.setattr(renew, "_ENDING_SECONDS", 90.0)
    threading.Timer(0.2, process.kill).start()
    with pytest.raises(SparkLost, match="ended while it worked") as lost, renewal.working():
        raise form(broken)
    assert lost.value.transient


@pytest.mark.parametrize("error", [WorkFailed("view v could not be worked out"), RuntimeError("unforeseen")])
def test_whatever_fails_once_spark_has_ended_is_told_as_that(
    renewal: Renewal, process: subprocess.Popen[bytes], error: Exception
) -> None:
    def fail() -> None:
        process.kill()
        process.wait()
        raise error

    with pytest.raises(SparkLost), renewal.working():
        fail()


@pytest.mark.parametrize("context", [None, java_context(lambda: True)], ids=["stopped", "stopping"])
@pytest.mark.parametrize(
    "error",
    [
        WorkFailed("view v could not be worked out"),
        AttributeError("'NoneType' object has no attribute 'sc'"),
        QueryError("Spark refused the query", detail="Executed command failed. You hit a bug in Spark."),
    ],
)
def test_whatever_fails_once_spark_was_stopped_is_told_as_its_end(
    process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: Any, error: Exception
) -> None:
    """Who gave it may stop it at any moment; its process lives on, and PySpark's own code fails in many ways."""
    monkeypatch.setattr(renew, "use_spark", lambda *_: False)
    loop: Any = SimpleNamespace(core=SimpleNamespace(closed=False))
    spark = spark_of(process)
    renewal = Renewal(loop, spark, Files(tmp_path))

    def fail() -> None:
        spark.sparkContext._jsc = context
        raise error

    with pytest.raises(SparkLost, match=r"given to headrace\.open") as lost, renewal.working():
        fail()
    assert not lost.value.transient
    assert process.poll() is None


def test_a_spark_that_cannot_be_asked_was_not_stopped(renewal: Renewal) -> None:
    context: Any = renewal._spark.sparkContext
    context._jsc = java_context(unreachable)
    with pytest.raises(RuntimeError, match="unforeseen"), renewal.working():
        raise RuntimeError("unforeseen")


def test_a_fault_of_the_query_stays_one_when_spark_has_ended(
    renewal: Renewal, process: subprocess.Popen[bytes]
) -> None:
    def fail() -> None:
        process.kill()
        process.wait()
        raise QueryError("no such column")

    with pytest.raises(QueryError, match="no such column"), renewal.working():
        fail()


@pytest.mark.parametrize(
    "error", [told(OSError(28, "No space left on device")), told(MemoryError()), RuntimeError("new")]
)
def test_a_failure_of_the_machine_is_not_held_back_while_spark_lives(
    renewal: Renewal, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renew, "_ENDING_SECONDS", 3600.0)
    with pytest.raises(type(error)) as heard, renewal.working():
        raise error
    assert heard.value is error


def loop_over(renewal: Renewal, host: Any) -> Any:
    """A loop whose epochs need this Spark."""
    host.spark = renewal
    return Loop(host)


def test_a_call_that_another_took_has_the_verdict_of_its_epoch_although_spark_is_waited_for(renewal: Renewal) -> None:
    """Who is told that Spark was lost sends it again: it must not have been committed."""
    started, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        assert go_on.wait(90)

    host: Any = Host(table("t"), view("v", "t"))
    host.before_commit = slow
    loop = loop_over(renewal, host)
    first, taken, late = (Call({"t": [{"insert": {"id": one, "n": 0}}]}) for one in range(3))
    loop.enter(first)
    loop.enter(taken)
    runner = threading.Thread(target=loop.receipt_of, args=(first,))
    runner.start()
    assert started.wait(90)
    renewal.lose_spark()
    renewal._lost_at -= 100
    threading.Timer(0.3, go_on.set).start()
    assert loop.receipt_of(taken).epoch == 1
    runner.join(90)
    # One that nobody has taken yet is taken by nobody any more.
    with pytest.raises(SparkLost):
        loop.receipt_of(loop.enter(late))
    loop.submit(Call({"t": [{"insert": {"id": 3, "n": 0}}]}))
    assert host.holds("t") == {(0, 0), (1, 0), (3, 0)}


def test_callers_of_one_epoch_wait_once_for_what_became_of_spark(
    renewal: Renewal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that broke while the process lives is looked at for a second: by the epoch, not by each caller."""

    def fail(*_: Any) -> None:
        raise told(ConnectionResetError(104, "reset by peer"))

    monkeypatch.setattr(cores, "follow", fail)
    host: Any = Host(table("t"), view("v", "t"))
    loop = loop_over(renewal, host)
    host.sessions, host._last_work = SimpleNamespace(frames=None), None
    host.threads = THREADS
    host.follow = lambda work: Core.follow(host, work)
    calls = [loop.enter(Call({"t": [{"insert": {"id": one, "n": 0}}]})) for one in range(5)]
    waits: list[float] = []

    def wait(process: Any, within: float = 0.0) -> bool:
        waits.append(within)
        return process.poll() is not None

    monkeypatch.setattr(renew, "has_ended", wait)
    heard: list[HeadraceError] = []
    for call in calls:
        with pytest.raises(WorkFailed, match="could not be worked out") as heard_of:
            loop.receipt_of(call)
        heard.append(heard_of.value)
    assert waits.count(renew._ENDING_SECONDS) == 1
    assert len(heard) == 5


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[tuple[Renewal, Jvm]]:
    """Of a home whose Spark ends by itself, for want of memory, as soon as its input closes."""
    process = subprocess.Popen(["/bin/sh", "-c", "read -r _; exit 3"], stdin=subprocess.PIPE)
    jvm = Jvm(process, Guard(), Gateway("", 0, ""), 5.0, "1g")
    session._users[jvm] = WeakSet()
    loop: Any = SimpleNamespace(core=SimpleNamespace(closed=False))
    yield Renewal(loop, spark_of(process), Files(tmp_path)), jvm
    del session._users[jvm]
    process.communicate()
    jvm._guard.close()


def starved(renewal: Renewal, jvm: Jvm, meanwhile: Callable[[], object] = lambda: None) -> SparkLost:
    """What one hears in whose work Spark ends."""

    def fail() -> None:
        meanwhile()
        assert jvm.process.stdin is not None
        jvm.process.stdin.close()
        jvm.process.wait()
        raise told(ConnectionResetError(104, "reset by peer"))

    with pytest.raises(SparkLost) as lost, renewal.working(needed=False):
        fail()
    return lost.value


def test_one_that_was_alone_when_spark_ran_out_of_memory_is_told_so(fragile: tuple[Renewal, Jvm]) -> None:
    lost = starved(*fragile)
    assert (lost.of_memory, lost.alone) == (True, True)
    # Whoever comes to a Spark that has ended did not end it.
    late = starved(*fragile)
    assert (late.of_memory, late.alone) == (True, False)


@pytest.mark.parametrize("came", ["before", "meanwhile"])
@pytest.mark.parametrize("leaves", [True, False])
def test_one_beside_whom_another_was_at_work_was_not_alone(
    fragile: tuple[Renewal, Jvm], came: str, leaves: bool
) -> None:
    renewal, jvm = fragile
    with ExitStack() as other:

        def meanwhile() -> None:
            if came == "meanwhile":
                other.enter_context(renewal.working())
            if leaves:
                other.close()

        if came == "before":
            other.enter_context(renewal.working())
        lost = starved(renewal, jvm, meanwhile)
    assert (lost.of_memory, lost.alone) == (True, False)


def test_one_that_only_waits_is_no_company(fragile: tuple[Renewal, Jvm]) -> None:
    """A statement that waits for its turn, or for the epoch that it is part of."""
    renewal, jvm = fragile
    with ExitStack() as waiting:
        waiting.enter_context(renewal.working(busy=False))
        lost = starved(renewal, jvm, lambda: waiting.enter_context(renewal.working(busy=False)))
    assert lost.alone


def test_one_that_was_ended_because_it_suffocated_had_no_memory(fragile: tuple[Renewal, Jvm]) -> None:
    renewal, jvm = fragile

    def end() -> None:
        jvm.suffocated = True
        jvm.process.kill()

    assert starved(renewal, jvm, end).of_memory


def test_one_that_was_killed_says_nothing_of_memory(fragile: tuple[Renewal, Jvm]) -> None:
    renewal, jvm = fragile
    assert not starved(renewal, jvm, jvm.process.kill).of_memory
