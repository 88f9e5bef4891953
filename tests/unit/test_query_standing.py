"""How a query went before decides beside whom it is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import QueryError, QueryStopped
from headrace.query_processes import pool as query_processes
from headrace.query_processes import standing
from headrace.query_processes.pool import Stop
from headrace.query_processes.standing import Standings
from tests.query_pool import Pool, asking, running
from tests.waiting import until

pytestmark = pytest.mark.thorough


def test_a_query_is_known_by_its_exact_text() -> None:
    known = Standings()
    known.note("SELECT 1", "quick")
    assert known.of("SELECT 1") == "quick"
    assert known.of("SELECT  1") == "unknown"
    known.note("SELECT 1", "unknown")
    assert known.of("SELECT 1") == "unknown"


def test_harm_is_forgiven_and_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Standings()
    known.note("bad", "harmful")
    assert known.of("bad") == "harmful"
    monkeypatch.setattr(standing, "_FORGIVEN_SECONDS", 0.0)
    assert known.of("bad") == "unknown"
    monkeypatch.setattr(standing, "_KEPT", 10)
    for number in range(20):
        known.note(f"SELECT {number}", "quick")
    assert [known.of(f"SELECT {number}") for number in (9, 10, 19)] == ["unknown", "quick", "quick"]


def test_a_query_that_did_harm_is_asked_alone_from_then_on(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of()
    with pytest.raises(QueryError, match="more memory"):
        pool.ask("die")
    with asking(pool) as threads:
        innocent = threads.submit(pool.ask, f"late {tmp_path / 'go'}")
        until(lambda: running(pool) == 1)
        (process,) = (one.child.pid for one in pool._processes if one.running)
        for _ in range(2):
            with pytest.raises(QueryError, match="more memory"):
                pool.ask("die")
        (tmp_path / "go").touch()
        # It is still where it was: nothing of that touched it.
        assert innocent.result(120) == [str(process)]


def test_while_one_goes_on_those_that_nobody_knows_leave_a_process_to_the_quick(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool = pool_of()
    (first,) = pool.ask("pid")
    assert pool.ask("pid") == [first]
    monkeypatch.setattr(query_processes, "_LONG_SECONDS", 0.3)
    monkeypatch.setattr(query_processes, "_BESIDE_SECONDS", 300.0)
    with asking(pool) as threads:
        stop = Stop()
        long = threads.submit(pool.ask, "wait 300", stop)
        until(lambda: len(pool.pids()) == 2 and all(one.ready for one in pool._processes))
        until(lambda: any(one.crowded for one in pool._processes))
        unknown = threads.submit(pool.ask, f"late {tmp_path / 'go'}")
        until(lambda: running(pool) == 2)
        # The second process is clear, and for those who were quick.
        assert pool.ask("pid") != [first]
        (tmp_path / "go").touch()
        assert unknown.result(120) == [first]
        stop.stop()
        with pytest.raises(QueryStopped):
            long.result(120)


def test_who_was_quick_is_no_suspect_beside_one_that_nobody_knows(pool_of: Callable[..., Pool], tmp_path: Path) -> None:
    pool = pool_of()
    go, fall = tmp_path / "go", tmp_path / "fall"
    go.touch()
    assert len(pool.ask(f"late {go}")) == 1
    go.unlink()
    with asking(pool) as threads:
        # It is the older of the two.
        quick = threads.submit(pool.ask, f"late {go}")
        until(lambda: running(pool) == 1)
        guilty = threads.submit(pool.ask, f"fall {fall}")
        until(lambda: running(pool) == 2)
        fall.touch()
        with pytest.raises(QueryError, match="more memory"):
            guilty.result(120)
        go.touch()
        assert len(quick.result(120)) == 1
        assert pool._standings.of(f"late {go}") == "quick"
        assert pool._standings.of(f"fall {fall}") == "harmful"


def test_one_that_is_to_be_alone_has_another_process_made_for_the_rest(
    pool_of: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long after the last process was lost.
    monkeypatch.setattr(query_processes, "_TROUBLE_SECONDS", 0.0)
    pool = pool_of()
    assert pool.ask("echo x") == ["x"]
    pool._standings.note("echo y", "harmful")
    assert pool.ask("echo y") == ["y"]


def test_who_was_quick_is_asked_again_at_once_when_its_process_is_killed(
    pool_of: Callable[..., Pool], tmp_path: Path
) -> None:
    pool = pool_of()
    vanish = f"vanish once {tmp_path / 'gone'}"
    pool._standings.note(vanish, "quick")
    assert pool.ask(vanish) == []
    assert pool._standings.of(vanish) == "quick"
