"""A small fixed part of the crash checks: a kill at each named point, errors at some. `make crash` has all of them, and
random instants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace
from tests.checks.scenarios import POINTS, CrashTest
from tests.object_store import ObjectStore


def test_every_named_point_is_crashed_at() -> None:
    sources = Path(headrace.__file__).parent.rglob("*.py")
    named = {point for file in sources for point in re.findall(r'crash_point\("([^"]+)"\)', file.read_text())}
    assert named == set(POINTS)


# Before a commit, in it, after it, and in a thread of its own.
SOME = ("data written", "log named", "epoch shown", "base written")


@pytest.mark.slow
@pytest.mark.parametrize("points", [SOME[1:3], pytest.param(POINTS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_kill_at_a_named_point_loses_nothing(points: tuple[str, ...]) -> None:
    with CrashTest(seed=1) as crash_test:
        crash_test.points("sample", points, most_passes=0)
    tally = crash_test.tally
    assert [finding.text for finding in tally.findings] == []
    assert tally.unreached == []
    assert tally.kills == len(points)


@pytest.mark.slow
def test_an_error_at_a_named_point_loses_nothing() -> None:
    with CrashTest(seed=2) as crash_test:
        crash_test.raises("sample", SOME, most_passes=1)
    tally = crash_test.tally
    assert [finding.text for finding in tally.findings] == []
    assert tally.unreached == []
    assert tally.raises == len(SOME)


@pytest.mark.slow
def test_a_kill_at_each_named_point_loses_nothing_in_an_object_store(object_store: ObjectStore) -> None:
    with CrashTest(seed=1, store=object_store) as crash_test:
        crash_test.points("sample", most_passes=0)
    assert [finding.text for finding in crash_test.tally.findings] == []
    assert crash_test.tally.unreached == []
