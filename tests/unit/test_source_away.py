"""A source whose server is away, that is paused or that has stopped: it is told, and so are its views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.capture.connector import Connector, Lag
from headrace.catalog.catalog import Source
from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.serving.findings import findings
from headrace.serving.home_metrics import HomeMetrics
from headrace.serving.source_metrics import SourceMetrics
from headrace.sources import runner as runner_module
from headrace.sources.intake import Progress
from headrace.sources.runner import Runner
from headrace.sources.running import Sources, progress_of, tables_of
from headrace.sources.status import Status
from headrace.sources.system_tables import PROGRESS, dead_letters_table, progress_table
from tests.small_engine import Host, table, view
from tests.small_sources import Listed, inserts, runner_of, source_home
from tests.waiting import until


class Server:
    """What sources read; it may be away, or not be heard though it is polled."""

    def __init__(self) -> None:
        self.is_up = self.is_heard = True
        server = self

        class Reading(Listed):
            def __init__(self, *arguments: Any) -> None:
                if not server.is_up and server.is_heard:
                    raise ConnectionRefusedError("connection refused")
                super().__init__(*arguments)
                self.polls = 0

            def poll(self, most: int, seconds: float) -> Any:
                self.polls += 1
                if not server.is_up and (server.is_heard or self.polls > 3):
                    raise ConnectionResetError("server closed the connection")
                return super().poll(most, seconds) if server.is_heard else []

            def lag(self) -> Lag:
                return replace(super().lag(), is_heard=server.is_heard)

        self.connector = Connector("LISTED", {}, partial(Reading, inserts([{"id": 1, "n": 1}])))

    def read_by(self, host: Host) -> Runner:
        return runner_of(Loop(host), Source("s", "t", "listed", "", "", {}, state="Running"), self.connector)


@pytest.fixture
def host() -> Host:
    return source_home()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(runner_module, "_LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(runner_module, "_REACHED_SECONDS", 600)


def _fails_for_a_while(runner: Any) -> None:
    """Wait until a source is told as failing, and for long since the same moment."""
    until(lambda: runner.status.failing_since is not None)
    since = runner.status.failing_since
    until(lambda: (runner.status.lag_seconds or 0.0) > 0.5)
    assert runner.status.failing_since == since


def test_a_source_that_is_away_is_told_and_is_well_once_it_answers(host: Host) -> None:
    server = Server()
    runner = server.read_by(host)
    runner.start()
    try:
        until(lambda: runner.status.lag_seconds == 0.0 and runner.status.progress.applied == 1)
        server.is_up = False
        _fails_for_a_while(runner)
        status = runner.status
        assert status.state == "Running"
        assert "connection refused" in (status.error or "")
        server.is_up = True
        # It has nothing new: that it answers is enough.
        until(lambda: runner.status.error is None)
        status = runner.status
        assert (status.failing_since, status.lag_seconds) == (None, 0.0)
    finally:
        runner.stop()


def test_one_that_is_polled_in_vain_while_it_is_being_reached_is_not_well(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    server.is_up = server.is_heard = False
    runner = server.read_by(host)
    runner.start()
    try:
        _fails_for_a_while(runner)
        # One that has not failed for long is reached, though it has nothing to say.
        monkeypatch.setattr(runner_module, "_REACHED_SECONDS", 0.2)
        server.is_up = True
        until(lambda: runner.status.failing_since is None)
    finally:
        runner.stop()


def test_what_fails_on_its_way_into_an_epoch_is_not_well_because_it_was_polled(host: Host) -> None:
    def fail() -> None:
        raise ConnectionError("no Spark")

    host.before_commit = fail
    runner = Server().read_by(host)
    runner.start()
    try:
        _fails_for_a_while(runner)
        host.before_commit = lambda: None
        until(lambda: runner.status.failing_since is None)
        assert runner.status.progress.applied == 1
    finally:
        runner.stop()


def _keep(host: Host, row: dict[str, Any]) -> None:
    loop = Loop(host)  # pyright: ignore[reportArgumentType]
    loop.submit(Call({PROGRESS: [{"insert": row}]}))


def _home(table_name: str, status: Callable[[Source], Status], position: dict[str, Any] | None = None) -> Any:
    """A home of one table, a view of it, and a source of which this is known."""
    host = Host(table("orders"), table("others"), view("revenue", "orders"), progress_table(), dead_letters_table())
    progress = Progress(position or {})
    _keep(host, progress.row("shop", datetime.now(UTC)))
    source = Source("shop", table_name, "kafka", "", "", {}, state="Running")
    host.catalog = replace(host.catalog, sources={"shop": source})
    core: Any = host
    core.is_lost = False
    sources = SimpleNamespace(status_of=status, totals={"shop": {"applied": 0, "stale": 0, "dead": 0}})
    return SimpleNamespace(core=host, sources=sources, feeds=SimpleNamespace(), status=dict)


def _found(home: Any) -> set[str]:
    return {one.kind for one in findings(home, 300)}


AN_HOUR = 3600.0


@pytest.mark.parametrize(
    ("position", "is_behind"),
    [
        ({"shop.public.orders:0": 17, "shop.public.orders:1": 3, "topic_ids": {}}, True),
        ({"offset": {"lsn": 1}, "number": 4, "topics": ["shop.public.Orders"]}, True),
        ({"shop.public.others:0": 17}, False),
        ({}, False),
    ],
)
def test_a_source_without_a_table_of_its_own_counts_for_all_that_it_has_brought(
    position: dict[str, Any], is_behind: bool
) -> None:
    home = _home("", lambda _: Status("Running", Progress(), 0, 5, AN_HOUR), position)
    assert ("orders" in tables_of(home.core, home.core.catalog.sources["shop"])) is is_behind
    assert HomeMetrics(home).behind() == {"revenue": AN_HOUR if is_behind else 0.0}
    assert ("view_stale" in _found(home)) is is_behind


@pytest.mark.parametrize("state", ["Paused", "Error"])
@pytest.mark.parametrize("answered", [False, True], ids=["since its last commit", "since it last answered"])
def test_a_source_that_has_stopped_is_behind_since_it_was_last_read(
    state: Any, answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    home = _home("orders", lambda _: Status("Running", Progress()))
    sources = Sources(Loop(home.core))
    source = replace(home.core.catalog.sources["shop"], state="Paused" if state == "Paused" else "Running")
    progress = Progress(committed_at=now - timedelta(hours=2))
    monkeypatch.setattr("headrace.sources.running.progress_of", lambda *_: progress)
    if state == "Error":
        monkeypatch.setattr(sources._runners, "unable", lambda *_: "no secret")
    if answered:
        sources._heard_at["shop"] = now - timedelta(hours=1)
    status = sources.status_of(source)
    assert status.state == state
    assert status.lag_seconds == pytest.approx(AN_HOUR if answered else 2 * AN_HOUR, abs=600)
    home.sources.status_of = lambda _: status
    assert HomeMetrics(home).behind()["revenue"] > 3000
    assert _found(home) == {"view_stale"} | ({"source_failing"} if state == "Error" else set())


def test_another_source_of_a_dropped_ones_name_has_not_been_heard() -> None:
    home = _home("orders", lambda _: Status("Running", Progress()))
    sources = Sources(Loop(home.core))
    paused = replace(home.core.catalog.sources["shop"], state="Paused")
    home.core.catalog = replace(home.core.catalog, sources={"shop": paused})
    sources._heard_at["shop"] = datetime.now(UTC) - timedelta(hours=1)
    sources.reconcile()
    assert sources._heard_at.keys() == {"shop"}
    home.core.catalog = replace(home.core.catalog, sources={})
    sources.reconcile()
    home.core.catalog = replace(home.core.catalog, sources={"shop": paused})
    sources.reconcile()
    assert not sources._heard_at


def test_one_that_fails_for_long_is_a_finding_and_a_figure_at_once() -> None:
    now = datetime.now(UTC)
    status = Status("Running", Progress(), 0, 0, 10.0, "connection refused", failing_since=now - timedelta(seconds=10))
    home = _home("orders", lambda _: status)
    assert _found(home) == set()
    engine: Any = SimpleNamespace(core=home.core, sources=home.sources)
    home.core.changed_at = {}
    figures = {one.name: one.samples for one in SourceMetrics(engine).collect()}
    assert [one.value for one in figures["headrace_source_failing"]] == [1.0]
    status = replace(status, failing_since=now - timedelta(seconds=400), lag_seconds=400.0)
    (failing, _) = findings(home, 300)
    assert (failing.kind, failing.about) == ("source_failing", "shop")
    assert "connection refused" in failing.text


def test_the_progress_that_is_kept_tells_when_it_was(host: Host) -> None:
    at = datetime(2026, 5, 1, 12, tzinfo=UTC)
    _keep(host, Progress(received=1, applied=1).row("s", at))
    assert progress_of(host, "s").committed_at == at  # pyright: ignore[reportArgumentType]
