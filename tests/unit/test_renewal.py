"""A Spark that ends is replaced, and whoever used it is brought to the next; none of them is a Spark here."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

from headrace import session
from headrace.engine import renew
from headrace.engine.files import Files
from headrace.engine.renew import Renewal
from headrace.errors import SparkLost
from headrace.jvm import Gateway, Guard, Jvm


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
    one = subprocess.Popen(["sleep", "60"])
    yield one
    one.kill()
    one.wait()


def spark_of(process: subprocess.Popen[bytes]) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))


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
    bringing.join(20)
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
    short = subprocess.Popen(["sleep", "60"])
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
    assert replaced.wait(10)
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

    def open_doors(*_: Any) -> Any:
        if full:
            raise full.pop()
        return SimpleNamespace(catalyst=None)

    monkeypatch.setattr(renew, "open_doors", open_doors)
    catalog = SimpleNamespace(tables=list, views=list, relations={})
    home: Any = SimpleNamespace(
        closed=False, path="h", catalog=catalog, between_epochs=lambda make: make(), swap_spark=lambda *_: None
    )
    monkeypatch.setattr(Renewal, "_rehearse", lambda *_: None)
    files: Any = None
    renewal = Renewal(home, spark_of(process), tmp_path, files)
    users = WeakSet([renewal])
    for _ in range(10):
        renewal.lose_spark()
        waited = time.monotonic()
        with pytest.raises(SparkLost):
            renewal.wait()
        assert time.monotonic() - waited < 5
        session._bring(spark_of(process), users)
        assert not renewal.under_way
        assert renewal.failure is None
    assert not list(tmp_path.iterdir())


def test_a_home_that_waits_tells_what_failed(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    home: Any = SimpleNamespace(closed=False)
    renewal = Renewal(home, spark_of(process), tmp_path, Files(tmp_path))
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
    home: Any = SimpleNamespace(closed=False)
    renewal = Renewal(home, spark_of(process), tmp_path, Files(tmp_path))
    assert (renewal.under_way, renewal.has_ended) == (False, False)
    process.kill()
    process.wait()
    assert (renewal.under_way, renewal.has_ended) == (ours, not ours)
    if not ours:
        with pytest.raises(SparkLost, match=r"given to headrace\.open") as told:
            renewal.wait()
        assert not told.value.transient
