"""How an error is told where there is one line for it."""

from __future__ import annotations

import pytest

from headrace.errors import FeedError


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FeedError("t was dropped"), "t was dropped"),
        (FeedError("t was dropped", hint="drop it"), "t was dropped. Hint: drop it."),
        (FeedError("no such column", detail="It is kg."), "no such column: It is kg."),
        (FeedError("no such column", detail="It is kg.", hint="mend it"), "no such column: It is kg. Hint: mend it."),
    ],
)
def test_the_hint_is_a_sentence_of_its_own(error: FeedError, line: str) -> None:
    assert error.in_a_line() == line
