"""Standing by, with a home that is stood in for: whatever hides its owner for a while is told once and waited for."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace.owner.ownership
from headrace.cli import standby
from headrace.cli.standby import stand_by
from headrace.errors import LedgerError, LedgerNotWritten, LedgerOutOfSight
from headrace.owner.ownership import Ownership, take_ownership
from headrace.owner.register import FileRegister
from tests.waiting import until

LONG = timedelta(seconds=600)


class Followed:
    """A home that is followed: how often, and how often it was tried to be taken over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.core: Any = SimpleNamespace(epoch=1, closed=False, catalog=SimpleNamespace(views=lambda: []))
        self.follows = 0
        self.tries = 0
        self.taken: Ownership | None = None
        # What a try meets before it comes to who owns the home.
        self.meets: Callable[[], None] = lambda: None

    def refresh(self) -> None:
        self.follows += 1

    def take_over(self) -> None:
        self.tries += 1
        self.meets()
        self.taken = take_ownership(self.path, LONG)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    monkeypatch.setattr(standby, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(standby, "_FOLLOW_SECONDS", 0.01)
    monkeypatch.setattr(standby, "_PAUSE_SECONDS", 0.05)
    made = Followed(tmp_path / "home")
    yield made
    if made.taken is not None:
        made.taken.release()


@contextmanager
def standing_by(home: Any) -> Iterator[threading.Thread]:
    """Inside, a thread stands by; it must have taken over by the end."""
    thread = threading.Thread(target=stand_by, args=(home,), daemon=True)
    thread.start()
    yield thread
    thread.join(90)
    assert home.taken is not None


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "headrace.operation"]


def test_an_owner_that_cannot_be_looked_for_is_told_once_and_waited_for(
    home: Followed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner = take_ownership(home.path, LONG)
    failed: list[str] = []

    def failing(register: FileRegister) -> None:
        # The text of an object store tells how long each request took.
        failed.append("look")
        raise OSError(errno.EIO, f"input/output error after {len(failed)} ms")

    with caplog.at_level(logging.INFO), standing_by(home) as thread:
        with monkeypatch.context() as broken:
            broken.setattr(FileRegister, "look", failing)
            until(lambda: len(failed) > 5)
        assert thread.is_alive()
        until(lambda: len(told(caplog)) == 2)
        assert not owner.is_lost
        owner.release()
    begun, over = told(caplog)
    assert "cannot be taken over" in begun
    assert "input/output error" in begun
    assert "has an owner again" in over


@pytest.mark.parametrize("kind", [LedgerError, LedgerOutOfSight])
def test_a_home_that_cannot_be_taken_over_is_told_once_and_tried_again(
    home: Followed, kind: type[LedgerError], caplog: pytest.LogCaptureFixture
) -> None:
    away = threading.Event()
    away.set()

    def meets() -> None:
        if away.is_set():
            raise kind(f"out of sight at try {home.tries}")

    home.meets = meets
    with caplog.at_level(logging.INFO), standing_by(home) as thread:
        until(lambda: home.tries > 3 and home.follows > 3)
        assert thread.is_alive()
        away.clear()
    assert told(caplog) == [f"the home {home.path} cannot be taken over: out of sight at try 1"]


def test_a_home_that_failed_while_it_was_taken_over_is_not_stood_by_for(home: Followed) -> None:
    def meets() -> None:
        home.core.closed = True
        raise LedgerNotWritten("the disk is full")

    home.meets = meets
    with pytest.raises(LedgerNotWritten, match="the disk is full"):
        stand_by(home)  # pyright: ignore[reportArgumentType]
    assert home.tries == 1


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_differs_keeps_nobody_from_following(
    home: Followed, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = take_ownership(home.path, LONG)
    other = SimpleNamespace(time=lambda: time.time() + 3600 * hours, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(headrace.owner.ownership, "time", other)
    with standing_by(home):
        # Until its heart is seen to beat, the owner may have been silent for an hour.
        until(lambda: home.follows > 3)
        FileRegister(home.path).beat(owner.owner)
        follows = home.follows
        until(lambda: home.follows > follows + 2)
        tries, follows = home.tries, home.follows
        until(lambda: home.follows > follows + 10)
        assert home.tries == tries
        assert not owner.is_lost
        owner.release()
