"""Sessions of browsers: how many there are, whose, and until when."""

from __future__ import annotations

import pytest

from headrace.access.grants import Access
from headrace.serving import sessions
from headrace.serving.sessions import Sessions


def test_who_signs_in_again_and_again_ends_no_session_but_his_own() -> None:
    found = Sessions()
    others = [found.begin(b"other"), found.begin_as(Access("ada"), 3600)]
    mine = [found.begin(b"mine") for _ in range(sessions._MOST + 1)]
    assert all(found.find(one) is not None for one in others)
    assert [one for one in mine if found.find(one) is not None] == mine[-sessions._MOST_OF_ONE :]


def test_among_too_many_holders_one_with_the_most_loses_his_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MOST", 5)
    found = Sessions()
    (single, *many) = found.begin(b"a"), found.begin(b"b"), found.begin(b"b"), found.begin(b"b")
    later = [found.begin(b"c"), found.begin(b"d")]
    assert [found.find(one) is not None for one in (single, *many, *later)] == [True, False, True, True, True, True]


def test_who_signs_out_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MOST_OF_ONE", 2)
    found = Sessions()
    first, second = found.begin(b"a"), found.begin(b"a")
    found.end(second)
    found.end(second)
    third = found.begin(b"a")
    assert [found.find(one) is not None for one in (first, second, third)] == [True, False, True]
