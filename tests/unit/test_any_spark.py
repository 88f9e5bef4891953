"""What is refused before any work is given to a Spark, and the folder that driver and executors share."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JError

from headrace import home
from headrace.cli.homes import ChosenHome, with_master
from headrace.errors import SetupError
from headrace.settings import Settings
from headrace.spark.options import options_of
from headrace.spark.requirements import check_executors, check_session
from headrace.spark.shared_scratch import folder_for
from headrace.storage import scratch
from headrace.storage.objects import location_of
from headrace.storage.scratch import Scratch
from headrace.upkeep import executors
from headrace.upkeep.executors import ExecutorWatch


def session(version: str = pyspark.__version__, stopped: bool = False) -> Any:
    """As much of a session as is looked at."""
    java_context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped))
    return SimpleNamespace(version=version, _jsparkSession=object(), sparkContext=SimpleNamespace(_jsc=java_context))


def test_a_session_that_can_work_is_taken() -> None:
    check_session(session())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (SimpleNamespace(version=pyspark.__version__), "Spark Connect"),
        (session(stopped=True), "is stopped"),
        (session("4.1.3"), r"Spark 4\.1\.3 cannot be used"),
        (session("4.20.0"), r"Spark 4\.20\.0 cannot be used"),
    ],
)
def test_a_session_that_cannot_work_is_refused(given: Any, told: str) -> None:
    with pytest.raises(SetupError, match=told) as refused:
        check_session(given)
    assert refused.value.hint


def test_the_shared_folder_is_that_of_the_home_unless_another_is_named(tmp_path: Path) -> None:
    assert folder_for(tmp_path / "home", None) == tmp_path / "home" / "scratch"
    assert folder_for(tmp_path / "home", str(tmp_path / "other")) == tmp_path / "other"
    assert folder_for(tmp_path / "home", (tmp_path / "other").as_uri()) == tmp_path / "other"
    assert folder_for(tmp_path / "home", (tmp_path / "an other").as_uri()) == tmp_path / "an other"


def test_a_home_in_an_object_store_needs_a_shared_folder(tmp_path: Path) -> None:
    home = location_of("s3://bucket/home", {"region": "nowhere"})
    with pytest.raises(SetupError, match="needs a folder that its executors share") as refused:
        folder_for(home, None)
    assert "shared_scratch" in str(refused.value)
    assert folder_for(home, str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["a*b", "a[b", "a{b}", "a?"])
def test_a_folder_that_spark_would_read_as_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError, match="cannot be told to Spark"):
        folder_for(tmp_path / name, None)


def test_a_shared_folder_goes_with_the_last_who_uses_it(tmp_path: Path) -> None:
    shared = tmp_path / "scratch"
    one, other = Scratch(shared, shared=True), Scratch(shared, shared=True, sweeping=False)
    one.close()
    assert list(shared.iterdir()) == [other.path]
    other.close()
    assert not shared.exists()


def test_only_what_nobody_holds_is_swept(tmp_path: Path) -> None:
    held = Scratch(tmp_path, shared=True)
    left = tmp_path / "headrace-left"
    left.mkdir()
    with open(left / "in-use", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Scratch(tmp_path, shared=True).close()
        assert left.exists()
    Scratch(tmp_path, shared=True).close()
    assert not left.exists()
    assert held.path.exists()
    held.close()


def test_what_was_left_is_swept_on_a_network_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """flock(2): over NFS, who asks for an exclusive lock must have opened the file for writing."""
    lock = fcntl.flock

    def as_over_nfs(file: Any, how: int) -> None:
        if how & fcntl.LOCK_EX and not file.writable():
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(file, how)

    left = tmp_path / "headrace-left"
    left.mkdir()
    (left / "in-use").touch()
    monkeypatch.setattr(fcntl, "flock", as_over_nfs)
    Scratch(tmp_path, shared=True).close()
    assert not left.exists()


def test_a_shared_folder_may_go_while_another_begins_to_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "scratch"
    other = Scratch(shared, shared=True)
    monkeypatch.setattr(scratch, "sweep", lambda _: other.close())
    one = Scratch(shared, shared=True)
    assert one.path.exists()
    one.close()


def test_the_master_that_is_given_goes_before_that_of_the_project() -> None:
    chosen = ChosenHome("home", Settings(spark_master="yarn", small_bound=7), named=True)
    assert with_master(chosen, None) is chosen
    other = with_master(chosen, "spark://head:7077").settings
    assert other is not None
    assert (other.spark_master, other.small_bound) == ("spark://head:7077", 7)


def test_a_master_that_spark_does_not_know_is_refused() -> None:
    with pytest.raises(SetupError, match="spark_master"):
        with_master(ChosenHome("home", None, named=False), "head:7077")


@pytest.mark.parametrize(
    ("settings", "local"),
    [
        (Settings(), True),
        (Settings(spark_master="local[3]"), True),
        (Settings(spark_options={"spark.master": "local[3]"}), True),
        (Settings(spark_master="spark://head:7077"), False),
        (Settings(spark_options={"spark.master": "spark://head:7077"}), False),
        (Settings(spark_options={"spark.master": "local-cluster[2,1,1024]"}), False),
    ],
)
def test_executors_elsewhere_are_told_nothing_that_is_meant_for_one_in_the_driver(
    tmp_path: Path, settings: Settings, local: bool
) -> None:
    with options_of(settings, "", {}, tmp_path) as options:
        # By such a heartbeat an executor that is lost would be missed an hour later.
        of_local = {"spark.executor.heartbeatInterval", "spark.driver.host", "spark.local.dir"}
        assert of_local & set(options) == (of_local if local else set())


def cluster(executors: int, **offered: Any) -> Any:
    """As much of a session of a cluster as is asked whether it has executors."""
    # The driver counts as one.
    status = SimpleNamespace(size=lambda: executors + 1)
    java_context = SimpleNamespace(isStopped=lambda: False, getExecutorMemoryStatus=lambda: status)
    context = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: java_context),
        defaultParallelism=2,
        master="spark://head:7077",
        statusTracker=lambda: SimpleNamespace(getActiveJobsIds=lambda: [7]),
    )
    return SimpleNamespace(sparkContext=context, **offered)


def test_who_waits_for_executors_is_told_also_if_a_job_begins_after_the_time_is_over(tmp_path: Path) -> None:
    begun, interrupted = threading.Event(), threading.Event()

    def write(_: str) -> None:
        # Planned for longer than the patience lasts; what is interrupted before is no job yet.
        time.sleep(0.3)
        begun.set()
        assert interrupted.wait(5), "it waits for ever"
        raise Py4JError("cancelled")

    frame = SimpleNamespace(write=SimpleNamespace(parquet=write))
    spark = cluster(0, range=lambda *_: frame, interruptAll=lambda: interrupted.set() if begun.is_set() else None)
    with pytest.raises(SetupError, match="no executor of Spark took up work"):
        check_executors(spark, tmp_path, 0.1)


def test_executors_that_are_there_may_be_slow(tmp_path: Path) -> None:
    def write(_: str) -> None:
        time.sleep(0.5)
        raise Py4JError("Permission denied")

    interrupted: list[None] = []
    frame = SimpleNamespace(write=SimpleNamespace(parquet=write))
    spark = cluster(1, range=lambda *_: frame, interruptAll=lambda: interrupted.append(None))
    with pytest.raises(SetupError, match="do not share the folder"):
        check_executors(spark, tmp_path, 0.1)
    assert not interrupted


def test_executors_are_watched_also_after_a_spark_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_LOOK_SECONDS", 0.01)
    interrupted = threading.Event()
    forgotten: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    waiting = cluster(0, interruptAll=interrupted.set)
    looked: list[Any] = []

    def sessions() -> list[Any]:
        looked.append(None)
        if len(looked) == 2:
            raise RuntimeError("unforeseen")
        return [forgotten if len(looked) < 5 else waiting]

    watch = ExecutorWatch(sessions, 0.05, lambda: None)
    try:
        assert interrupted.wait(5)
    finally:
        watch.close()


@pytest.mark.parametrize("url", ["file://elsewhere/scratch", "file:///scratch?a=1", "file:///scratch#a"])
def test_a_shared_scratch_is_a_folder_of_this_machine(tmp_path: Path, url: str) -> None:
    with pytest.raises(SetupError, match="names no folder of this machine"):
        folder_for(tmp_path / "home", url)


def test_nothing_is_left_where_sessions_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Left:
        def __init__(self, name: str = "leaves", *_: object, **__: object) -> None:
            self.path, self._name = tmp_path, name

        def close(self) -> None:
            closed.append(self._name)

    def fail(*_: object) -> None:
        raise SetupError("no sessions")

    monkeypatch.setattr(home, "Scratch", lambda *_: Left("leaves"))
    monkeypatch.setattr(home, "open_scratch", lambda *_, **__: Left("disk"))
    monkeypatch.setattr(home, "open_sessions", fail)
    with pytest.raises(SetupError, match="no sessions"):
        home.Home(tmp_path, None, Settings(), None)  # type: ignore[arg-type]
    assert closed == ["disk", "leaves"]
