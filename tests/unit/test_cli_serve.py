"""`headrace serve` where it cannot: a port that is taken, a home that another serves; told before anything begins.

And how it begins and ends, with a home that is stood in for: who stands by, who lost its home.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI

import headrace.cli.serve
from headrace.access.grants import read_grant
from headrace.access.keys import create_key
from headrace.cli.standby import _Follower
from headrace.errors import LedgerError
from headrace.ledger.ledger import Ledger
from headrace.owner.control import Control
from headrace.owner.ownership import take_ownership
from headrace.serving.server import Server, run_until_told
from headrace.settings import Settings
from tests.command_line import code_of

# Within this a server ends whose home is lost from the beginning; one that does not is ended, for a test to fail.
_END_SECONDS = 20


@dataclass
class Stage:
    """A server whose home is stood in for: what it was asked for, and what happens while it stands by."""

    opened_with: dict[str, Any] = field(default_factory=dict[str, Any])
    service: Any = None
    standing_by: Callable[[], None] = lambda: None
    reloaded: list[Settings] = field(default_factory=list[Settings])
    paused: list[str] = field(default_factory=list[str])

    @contextmanager
    def opened(self, *_: Any, **how: Any) -> Iterator[Any]:
        self.opened_with = how
        core = SimpleNamespace(catalog=SimpleNamespace(relations={}))
        yield SimpleNamespace(epoch=7, _home=self._home(core))

    def _home(self, core: Any) -> Any:
        return SimpleNamespace(core=core, path="shop", offer=lambda *_: None, paused_by_restore=lambda: self.paused)

    def build_app(self, _: Any, settings: Settings, __: Any) -> FastAPI:
        app = FastAPI()
        nothing = lambda: None  # noqa: E731 - said three times below
        self.service = app.state.service = SimpleNamespace(
            settings=settings, is_lost=True, end=nothing, answer_others=nothing, rehearse=nothing
        )
        app.state.credentials = SimpleNamespace(is_needed=False)
        return app


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()
    root = logging.getLogger("headrace")
    monkeypatch.setattr(root, "handlers", root.handlers)
    monkeypatch.setattr(root, "propagate", root.propagate)
    monkeypatch.setattr(headrace.cli.serve, "opened", made.opened)
    monkeypatch.setattr(headrace.cli.serve, "stand_by", lambda _: made.standing_by())
    monkeypatch.setattr("headrace.serving.app.build_app", made.build_app)
    monkeypatch.setattr("headrace.serving.server.run_until_told", run_within_bounds)
    monkeypatch.setattr("headrace.serving.rehearsal.warm_queries", lambda _: nullcontext())
    monkeypatch.setattr("headrace.spark.make_class_archive.Making", lambda _: nullcontext())
    monkeypatch.setattr("headrace.serving.reload.reload", lambda _, settings: made.reloaded.append(settings))
    return made


def run_within_bounds(server: Server, taken: socket.socket) -> None:
    ending = threading.Timer(_END_SECONDS, setattr, (server, "should_exit", True))
    ending.start()
    try:
        run_until_told(server, taken)
    finally:
        ending.cancel()


def test_a_server_whose_home_another_took_over_ends_with_a_code_for_whoever_starts_it_again(
    stage: Stage, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.paused = ["source s", "changefeed f"]
    assert code_of("serve", "--home", str(tmp_path), "--port", "0") == 1
    told = capfd.readouterr().err
    assert "Paused: source s, changefeed f. RESUME starts them here." in told
    assert "another process took the home over: the server ends" in told
    assert "no longer owns the home" in told
    assert "--standby" in told


@pytest.mark.parametrize(("named", "arguments"), [(True, ["--home", "new"]), (False, [])])
def test_who_stands_by_makes_a_home_that_is_named_and_not_there(
    stage: Stage, named: bool, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code_of("serve", *arguments, "--standby", "--port", "0")
    assert stage.opened_with == {"write": False, "create": named}


def test_who_stands_by_is_told_of_a_taken_port_at_once(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert code_of("serve", "--home", str(tmp_path), "--standby", "--port", str(port)) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err
    assert stage.opened_with == {}


def test_what_is_read_anew_while_standing_by_holds_after_the_home_is_taken_over(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.yml"
    settings.write_text("serve_queries: 3\n")

    is_reading = threading.Event()
    monkeypatch.setattr(headrace.cli.serve, "set_level", lambda _: is_reading.set())

    def standing_by() -> None:
        is_reading.clear()
        settings.write_text("serve_queries: 5\n")
        os.kill(os.getpid(), signal.SIGHUP)
        # Read before the home is taken over, when there is nothing to limit yet.
        assert is_reading.wait(90)

    stage.standing_by = standing_by
    code_of("serve", "--home", str(tmp_path), "--standby", "--port", "0", "--settings", str(settings))
    assert stage.service.settings.serve_queries == 3
    assert [one.serve_queries for one in stage.reloaded] == [5]


def test_who_takes_a_home_over_whose_keys_are_gone_does_not_open_it_to_everybody(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(tmp_path, 1000)
    ledger.open()
    ledger.claim(1)
    create_key(tmp_path, "ci", [read_grant("read:*")], "ann")
    stage.standing_by = lambda: shutil.rmtree(tmp_path / "access")
    assert code_of("serve", "--home", str(tmp_path), "--standby", "--host", "0.0.0.0", "--port", "0") == 1
    assert stage.service is not None
    assert "refusing to listen on 0.0.0.0 without an API key" in capsys.readouterr().err


def test_what_cannot_be_followed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    # The texts of an object store differ: they tell how long each request took.
    fails = [LedgerError("the ledger cannot be read", detail=f"No rights, after {ms} ms.") for ms in (7, 8, 9)]

    def refresh() -> None:
        if fails:
            raise fails.pop()

    home: Any = SimpleNamespace(
        path="shop", refresh=refresh, core=SimpleNamespace(catalog=SimpleNamespace(views=lambda: []))
    )
    follower = _Follower(home)
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            follower._next_at = 0.0
            follower.follow()
    assert [one.getMessage() for one in caplog.records] == [
        "the home shop cannot be followed: the ledger cannot be read; detail: No rights, after 9 ms.",
        "the home shop is followed again",
    ]


def test_a_port_that_is_taken_is_told_before_a_home_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        home = tmp_path / "new"
        assert code_of("serve", "--home", str(home), "--port", str(port)) == 1
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in told
    assert "--port" in told
    assert not home.exists()


def test_a_home_in_use_is_told_with_where_it_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    control = Control({"address": lambda: {"url": "http://127.0.0.1:8099"}})
    try:
        ownership.announce(control.address)
        assert code_of("serve", "--home", str(tmp_path), "--port", "0") == 1
        told = capsys.readouterr().err
        assert "It serves it at http://127.0.0.1:8099." in told
        assert "--standby" in told
        assert "read_only" not in told
    finally:
        control.close()
        ownership.release()


def test_an_owner_that_serves_nothing_is_named_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    control = Control({})
    try:
        ownership.announce(control.address)
        assert code_of("serve", "--home", str(tmp_path), "--port", "0") == 1
        told = capsys.readouterr().err
        assert "is in use" in told
        assert "It serves it" not in told
    finally:
        control.close()
        ownership.release()


def test_a_home_that_nobody_serves_is_named_by_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("status", "--check", "--home", str(tmp_path)) == 2
    told = capsys.readouterr().out
    assert f"broken home {tmp_path}: It is not served: no process has it open; headrace serve --home {tmp_path}" in told
