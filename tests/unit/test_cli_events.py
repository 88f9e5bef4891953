"""`headrace events`, asked of the process that has the home open; the store is one in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.events.for_others import events_verb
from headrace.owner.control import Control
from headrace.owner.ownership import take_ownership
from tests.command_line import code_of
from tests.small_events import SmallStore, event


@pytest.fixture
def home(tmp_path: Path) -> Iterator[tuple[str, str]]:
    store = SmallStore(tmp_path / "keys")
    store.append("Account", "a1", [{**event("Opened", n=1), "metadata": {"user": "ann"}}])
    store.append("Account", "gone", [event("Opened"), event("AccountDeleted")])
    ownership = take_ownership(tmp_path / "home", timedelta(seconds=30))
    control = Control({"events": events_verb(lambda name: store)})
    ownership.announce(control.address)
    yield "--home", str(tmp_path / "home")
    control.close()
    ownership.release()


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (("account", "a1"), "there is no account a1: no aggregate is of the type account; there are Account"),
        (("Account", "d1"), "there is no Account d1"),
        (("Account", "a1", "--as-of", "0"), "there is no Account a1 as of 0"),
        (("Account", "gone"), "Account gone is deleted, at version 2"),
    ],
)
def test_what_is_not_there_is_named(
    home: tuple[str, str], capsys: pytest.CaptureFixture[str], named: tuple[str, ...], told: str
) -> None:
    assert code_of("events", "state", *named, *home) == 1
    assert capsys.readouterr().out.strip() == told


def test_events_are_shown_with_their_metadata(home: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("events", "read", "Account", "a1", *home) == 0
    shown = capsys.readouterr().out
    assert "metadata" in shown
    assert "ann" in shown
    assert code_of("events", "read", "Account", "a1", "--json", *home) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["created_at"].endswith("Z")


def test_a_receipt_counts_the_events(home: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("events", "append", "Account", "a2", "Opened", "{}", "--json", *home) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["applied"] == {"events": 1}
