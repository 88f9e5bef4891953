"""Half a minute of the siege; `make siege` runs it for ten."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headrace.errors import ResultTooLarge, SparkLost
from headrace.serving.problems import Refusal, respond
from tests.checks.hostile import ANSWERED, BUSY, REFUSED, TIMED_OUT, end_of
from tests.checks.siege import besiege


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ResultTooLarge("too many rows"), REFUSED),
        (Refusal(400, "timeout", "too long"), TIMED_OUT),
        (Refusal(429, "too_busy", "too many"), BUSY),
        (SparkLost("gone"), BUSY),
        (Refusal(400, "unheard_of", "what"), "400 unheard_of"),
        (RuntimeError("nobody foresaw it"), "500 internal_error"),
    ],
)
def test_how_a_query_ends_is_told_by_its_code(error: Exception, end: str) -> None:
    answer = respond(error)
    assert end_of(httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.body)) == end


def test_rows_are_an_answer_and_a_broken_answer_is_none() -> None:
    assert end_of(httpx.Response(200)) == ANSWERED
    assert end_of(httpx.Response(502, text="bad gateway")) == "502"


@pytest.mark.slow
def test_a_short_siege_breaks_no_limit(tmp_path: Path) -> None:
    # The limits of time are for a machine that does nothing else.
    assert besiege(40, tmp_path, timed=False) == []
