"""The owner's socket: what is asked of it, what it answers, and how it ends."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError, HomeBusy, LedgerError, UnsupportedStatement, WorkFailed
from headrace.owner.control import Control, ask_owner
from headrace.owner.ownership import Ownership, take_ownership


class Verbs:
    """A few verbs, one of which waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()

    def fold(self) -> dict[str, Any]:
        raise UnsupportedStatement("fold is not available yet", detail="Really.", hint="wait")

    def backup(self, destination: str, epoch: int = 0) -> dict[str, Any]:
        return {"destination": destination, "epoch": epoch}

    def break_down(self) -> dict[str, Any]:
        raise ZeroDivisionError("by zero")

    def wait(self) -> dict[str, Any]:
        self.entered.set()
        assert self.let_go.wait(90)
        return {"waited": True}

    def all(self) -> dict[str, Any]:
        return {"fold": self.fold, "backup": self.backup, "break": self.break_down, "wait": self.wait}


@pytest.fixture
def verbs() -> Verbs:
    return Verbs()


@pytest.fixture
def control(verbs: Verbs) -> Iterator[Control]:
    control = Control(verbs.all())
    yield control
    verbs.let_go.set()
    control.close()


@pytest.fixture
def home(tmp_path: Path, control: Control) -> Iterator[Path]:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    ownership.announce(control.address)
    yield tmp_path
    ownership.release()


def test_a_verb_is_run_by_the_owner(home: Path) -> None:
    asked = ask_owner(home, "backup", {"destination": "/elsewhere", "epoch": 3})
    assert asked == {"destination": "/elsewhere", "epoch": 3}


def test_the_owners_error_is_the_askers(home: Path) -> None:
    with pytest.raises(HeadraceError) as caught:
        ask_owner(home, "fold")
    error = caught.value
    assert (error.code, error.message) == ("unsupported_statement", "fold is not available yet")
    assert (error.detail, error.hint) == ("Really.", "wait")


def test_a_failure_is_told_and_the_owner_goes_on(home: Path) -> None:
    with pytest.raises(HeadraceError, match="ZeroDivisionError: by zero"):
        ask_owner(home, "break")
    assert ask_owner(home, "backup", {"destination": "x"}) is not None


@pytest.mark.parametrize(("verb", "arguments"), [("unknown", {}), ("backup", {}), ("fold", {"x": 1}), ([], {})])
def test_what_is_not_understood_is_answered(home: Path, verb: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(HeadraceError, match="does not understand"):
        ask_owner(home, verb, arguments)


def test_one_connection_may_ask_more_than_once(control: Control) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(control.address)
        line.sendall(b'nonsense\n[]\n{"verb": "backup", "arguments": {"destination": "x"}}\n')
        with line.makefile("rb") as answers:
            first, second, third = (json.loads(answers.readline()) for _ in range(3))
    assert first["error"]["code"] == second["error"]["code"] == "not_understood"
    assert third == {"result": {"destination": "x", "epoch": 0}}


def test_one_question_does_not_hold_up_another(home: Path, verbs: Verbs) -> None:
    answers: list[Any] = []
    slow = threading.Thread(target=lambda: answers.append(ask_owner(home, "wait")))
    slow.start()
    assert verbs.entered.wait(90)
    assert ask_owner(home, "backup", {"destination": "x"}) is not None
    assert answers == []
    verbs.let_go.set()
    slow.join()
    assert answers == [{"waited": True}]


def test_closing_answers_what_was_asked_and_hangs_up_on_the_idle(home: Path, control: Control, verbs: Verbs) -> None:
    answers: list[Any] = []
    slow = threading.Thread(target=lambda: answers.append(ask_owner(home, "wait")))
    slow.start()
    assert verbs.entered.wait(90)
    with socket.socket(socket.AF_UNIX) as idle:
        idle.settimeout(90)
        idle.connect(control.address)
        # An answer shows that the connection was taken; one that still waits in line would be reset instead.
        idle.sendall(b"nonsense\n")
        assert idle.recv(4096).endswith(b"\n")
        closing = threading.Thread(target=control.close)
        closing.start()
        assert idle.recv(1) == b""
        assert closing.is_alive()
        verbs.let_go.set()
        closing.join(90)
    slow.join(90)
    assert answers == [{"waited": True}]
    assert not Path(control.address).parent.exists()
    with pytest.raises(HomeBusy, match="did not answer fold"):
        ask_owner(home, "fold")


def test_an_owner_that_hangs_up_in_the_middle_may_have_done_it(tmp_path: Path) -> None:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    # A path of pytest's own may be longer than that of a socket can be.
    with tempfile.TemporaryDirectory(prefix="headrace-test-") as folder, socket.socket(socket.AF_UNIX) as ear:
        ear.bind(f"{folder}/control")
        ear.listen()
        ownership.announce(f"{folder}/control")

        def hang_up() -> None:
            line, _ = ear.accept()
            line.recv(4096)
            line.close()

        listening = threading.Thread(target=hang_up)
        listening.start()
        with pytest.raises(HeadraceError, match="did not answer") as told:
            ask_owner(tmp_path, "fold")
        listening.join(90)
    assert (told.value.code, told.value.transient) == ("not_known", False)
    ownership.release()


def test_whether_it_may_be_sent_again_is_told_through_the_socket(home: Path, verbs: Verbs, control: Control) -> None:
    def fail(transient: bool) -> dict[str, Any]:
        raise WorkFailed("no memory") if transient else LedgerError("cannot be read")

    control.offer("fail", fail)
    for transient, code in ((True, "work_failed"), (False, "ledger_error")):
        with pytest.raises(HeadraceError) as told:
            ask_owner(home, "fail", {"transient": transient})
        assert (told.value.code, told.value.transient) == (code, transient)


def test_nobody_is_asked_where_nobody_owns(tmp_path: Path) -> None:
    assert ask_owner(tmp_path, "fold") is None
    assert ask_owner(tmp_path / "none", "fold") is None
    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_does_not_listen_yet_is_busy(tmp_path: Path) -> None:
    ownership = take_ownership(tmp_path, timedelta(seconds=30))
    with pytest.raises(HomeBusy, match=f"process {os.getpid()} on"):
        ask_owner(tmp_path, "fold")
    ownership.release()


def test_an_owner_that_falls_silent_is_not_waited_for(tmp_path: Path, control: Control, verbs: Verbs) -> None:
    ownership: Ownership = take_ownership(tmp_path, timedelta(seconds=30))
    ownership.announce(control.address)
    letting_go = threading.Thread(target=lambda: verbs.entered.wait(90) and ownership.release())
    letting_go.start()
    # It had been asked, so it may have done it: nobody must do it a second time without a look.
    with pytest.raises(HeadraceError, match="ended while it ran this") as told:
        ask_owner(tmp_path, "wait")
    assert (told.value.code, told.value.transient) == ("not_known", False)
    letting_go.join()
    assert ask_owner(tmp_path, "wait") is None


def test_the_socket_is_its_users_own_and_short(tmp_path: Path, verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    control = Control(verbs.all())
    folder = Path(control.address).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(control.address) < 104
    assert list(deep.iterdir()) == []
    control.close()
    assert not folder.exists()


def test_the_folder_of_a_killed_owner_is_swept_away_by_the_next(tmp_path: Path, verbs: Verbs) -> None:
    script = """
import os, signal
from headrace.owner.control import Control
print(Control({}).address, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    folder = Path(killed.stdout.strip()).parent
    assert folder.is_dir()
    Control(verbs.all()).close()
    assert not folder.exists()


def test_closing_does_not_need_the_socket_to_be_there_still(verbs: Verbs) -> None:
    control = Control(verbs.all())
    Path(control.address).unlink()
    control.close()
    control.close()
