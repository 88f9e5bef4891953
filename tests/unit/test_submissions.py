"""Changes over HTTP: whatever becomes of the thread that runs their epochs, what a sender hears is so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.loop import Call, Loop
from headrace.errors import WorkFailed
from headrace.serving.submissions import Submissions
from tests.small_engine import Host, rows, table


class Home:
    """A home of one table without a key, in memory."""

    def __init__(self) -> None:
        self.host = Host(table("t", key=()))
        self.loop = Loop(self.host)
        self.settle, self.withdraw, self.known = self.loop.settle, self.loop.withdraw, self.host.known
        self.on_enter: Callable[[], object] = lambda: None

    def enter(self, changes: Any, key: str | None = None, digest: str = "") -> Call:
        call = self.loop.enter(Call(changes, key, digest))
        self.on_enter()
        return call

    def held(self) -> dict[int, int]:
        return {row[0]: times for row, times in rows(self.host.stores["t"].snapshot()).items()}


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.fixture
def submissions(home: Home) -> Iterator[Submissions]:
    hr: Any = home
    metrics: Any = SimpleNamespace(count=lambda _: None, refuse=lambda _: None)
    made = Submissions(hr, metrics)
    yield made
    made.close()


def insert(number: int) -> dict[str, list[object]]:
    return {"t": [{"insert": {"id": number, "n": 0}}]}


class Room:
    """A place that tells whether it was left."""

    left = 0

    def leave(self) -> None:
        self.left += 1


def test_changes_that_no_thread_can_carry_are_not_in_a_later_epoch(home: Home, submissions: Submissions) -> None:
    place: Any = Room()
    submissions.close()
    with pytest.raises(WorkFailed) as told:
        submissions.submit(insert(1), place=place)
    assert told.value.transient
    assert place.left == 1
    home.loop.submit(Call(insert(2)))
    assert home.held() == {2: 1}


def test_changes_that_another_took_meanwhile_have_its_verdict(home: Home, submissions: Submissions) -> None:
    place: Any = Room()
    submissions.close()
    home.on_enter = lambda: home.loop.submit(Call(insert(2)))
    submission: Future[Any] = submissions.submit(insert(1), place=place)
    assert submission.result(20).epoch == 1
    assert place.left == 1
    assert home.held() == {1: 1, 2: 1}
