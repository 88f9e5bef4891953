"""What sources count, against the tables that prove it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.sources.conservation import imbalances
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, dead_letters_table, progress_table, raw_table
from tests.small_engine import Host

COUNTS = {"received": 10, "applied": 6, "stale": 1, "dead": 3, "discarded": 1, "recorded": 2}


def host_with(**other: int) -> Host:
    host = Host(progress_table(), dead_letters_table(), raw_table("s"))
    host.catalog = host.catalog.recorded(1, {"sources": [SOURCE]})
    row = {"source": "s", "position": "{}", **COUNTS, **other}
    letter = {"id": "s:1", "source": "s", "changes": 2}
    raw = [{"insert": {"event_id": str(number)}} for number in range(2)]
    Loop(host).submit(  # pyright: ignore[reportArgumentType]
        Call({PROGRESS: [{"insert": row}], DEAD_LETTERS: [{"insert": letter}], "s_raw": raw})
    )
    return host


SOURCE: dict[str, Any] = {
    "name": "s",
    "table": "t",
    "connector": "kafka",
    "location": "",
    "mode": "",
    "options": {},
    "position": {},
    "rows": 0,
    "state": "Running",
}


def found(host: Host) -> list[str]:
    return [str(one) for one in imbalances(host.catalog, host.relations())]


def test_what_adds_up_is_not_told() -> None:
    assert found(host_with()) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"received": 11}, "source s: changes received, by what became of them: told are 11, found 10"),
        ({"discarded": 0}, "source s: dead changes, by its dead letters: told are 3, found 2"),
        ({"recorded": 3}, "source s: records kept, by the rows of s_raw: told are 3, found 2"),
    ],
)
def test_what_does_not_is(other: dict[str, int], told: str) -> None:
    assert found(host_with(**other)) == [told]


def test_a_source_that_is_gone_is_not_asked() -> None:
    host = host_with(received=11)
    host.catalog = host.catalog.recorded(2, {"drop_sources": ["s"]})
    assert found(host) == []
