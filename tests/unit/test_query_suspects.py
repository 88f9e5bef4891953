"""Who is asked again when a query process ends, and how, with a process of our own that dies as it is told."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import QueryError, QueryStopped, WorkFailed
from headrace.query_processes import pool as query_processes
from headrace.query_processes.pool import Stop
from tests.query_pool import Pool, asking, running
from tests.waiting import until

pytestmark = pytest.mark.thorough

_numbers = itertools.count()


def asked_anew(pool: Pool) -> list[str]:
    """The process that answers a query of which nothing is known."""
    return pool.ask(f"pid {next(_numbers)}")


def test_a_query_alone_in_a_process_that_dies_is_told_so_at_once(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    assert pool.ask("echo x") == ["x"]
    with pytest.raises(QueryError, match="more memory than a query may have"):
        pool.ask("die")
    assert pool.ask("echo y") == ["y"]


def test_only_the_guilty_query_hears_of_it(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of()
    pool.ask("echo warm")
    with asking(pool) as threads:
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
    pool_of: Callable[..., Pool], monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_BESIDE_SECONDS", 300.0)
    pool = pool_of()
    (first,) = asked_anew(pool)
    with asking(pool) as threads:
        stop = Stop()
        long = threads.submit(pool.ask, "wait 300", stop)
        until(lambda: asked_anew(pool) != [first])
        older = threads.submit(pool.ask, f"fall {tmp_path / 'fall'}")
        until(lambda: running(pool) == 2)
        younger = threads.submit(pool.ask, f"late {tmp_path / 'late'}")
        until(lambda: running(pool) == 3)
        (second,) = (pid for pid in pool.pids() if pid != int(first))
        (tmp_path / "fall").touch()
        until(lambda: second not in pool.pids())
        # The only process left has a query that takes long, but it is no suspect.
        (tmp_path / "late").touch()
        assert younger.result(120) == [first]
        with pytest.raises(QueryError, match="more memory"):
            older.result(120)
        stop.stop()
        with pytest.raises(QueryStopped):
            long.result(120)


def test_a_query_that_is_asked_alone_leaves_a_process_to_others(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of()
    assert pool.ask("echo x") == ["x"]
    with asking(pool) as threads:
        stop = Stop()
        suspect = threads.submit(pool.ask, f"fall {tmp_path / 'fall'} once {tmp_path / 'fallen'}", stop)
        until(lambda: running(pool) == 1)
        beside = threads.submit(pool.ask, f"late {tmp_path / 'fallen'}")
        until(lambda: running(pool) == 2)
        (tmp_path / "fall").touch()
        assert beside.result(120) != []
        # Now it has the process that it was waiting for, and will not leave it.
        until(lambda: any(query.alone for process in pool._processes for query in process.running))
        for _ in range(3):
            assert pool.ask("echo y") == ["y"]
        assert not suspect.done()
        stop.stop()
        with pytest.raises(QueryStopped):
            suspect.result(120)


def test_what_was_stopped_and_went_on_is_the_suspect(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_BESIDE_SECONDS", 300.0)
    monkeypatch.setattr(query_processes, "_DRAIN_SECONDS", 300.0)
    pool = pool_of()
    (first,) = asked_anew(pool)
    with asking(pool) as threads:
        stop, guilty = Stop(), Stop()
        long = threads.submit(pool.ask, "wait 300", stop)
        until(lambda: asked_anew(pool) != [first])
        older = threads.submit(pool.ask, f"fall {tmp_path / 'fall'}", guilty)
        until(lambda: running(pool) == 2)
        innocent = threads.submit(pool.ask, f"late {tmp_path / 'late'}")
        until(lambda: running(pool) == 3)
        guilty.stop()
        with pytest.raises(QueryStopped):
            older.result(120)
        (second,) = (pid for pid in pool.pids() if pid != int(first))
        (tmp_path / "fall").touch()
        until(lambda: second not in pool.pids())
        (tmp_path / "late").touch()
        # Though nobody else was in the process that ended, it is asked again beside others.
        assert innocent.result(120) == [first]
        stop.stop()
        with pytest.raises(QueryStopped):
            long.result(120)


def test_after_a_process_has_ended_two_are_kept_for_a_while(pool_of: Callable[..., Pool], monkeypatch: Any) -> None:
    monkeypatch.setattr(query_processes, "_IDLE_SECONDS", 0.5)
    pool = pool_of()
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("die")
    until(lambda: len(pool.pids()) == 2)
    assert pool.ask("echo x") == ["x"]
    monkeypatch.setattr(query_processes, "_TROUBLE_SECONDS", 0.0)
    until(lambda: len(pool.pids()) == 1)
    assert pool.ask("echo x") == ["x"]


def test_more_memory_than_allowed_ends_a_process(pool_of: Callable[..., Pool]) -> None:
    pool = pool_of(resident=350_000_000)
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("fill")
    assert pool.ask("echo x") == ["x"]


def test_a_query_whose_process_is_killed_by_others_is_asked_again(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of()
    (before,) = pool.ask("pid")
    with asking(pool) as threads:
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
