"""Which dead letters are found, in which order, and how many at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.epoch.calls import Call
from headrace.epoch.loop import Loop
from headrace.sources.dead_letters import Filter, count_letters, discard, find_letters
from headrace.sources.system_tables import DEAD_LETTERS, PROGRESS, dead_letters_table, progress_table
from tests.small_engine import Host
from tests.unit.test_conservation import SOURCE

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def host_with(count: int) -> Any:
    host = Host(progress_table(), dead_letters_table())
    host.catalog = host.catalog.recorded(1, {"sources": [SOURCE]})
    letters = [
        {
            "insert": {
                "id": f"{number:03}",
                "source": "s" if number % 2 else "other",
                "stage": "text" if number % 3 else "view",
                "changes": 1,
                # Several come at one time, and not in the order of their names.
                "arrived_at": BEGIN + timedelta(seconds=(count - number) // 4),
            }
        }
        for number in range(count)
    ]
    Loop(host).submit(Call({DEAD_LETTERS: letters}))  # pyright: ignore[reportArgumentType]
    return host


def ids(found: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in found]


def test_letters_are_found_oldest_first_by_what_is_asked() -> None:
    host = host_with(200)
    everything = find_letters(host, Filter())
    assert ids(everything) == ids(sorted(everything, key=lambda one: (one["arrived_at"], one["id"])))
    assert len(everything) == count_letters(host, Filter()) == 200
    mine = find_letters(host, Filter(source="s", stage="view"))
    assert {(one["source"], one["stage"]) for one in mine} == {("s", "view")}
    assert len(mine) == 33
    some = ["007", "003", "nowhere"]
    assert sorted(ids(find_letters(host, Filter(tuple(some))))) == ["003", "007"]
    many = tuple(f"{number:03}" for number in range(100))
    assert sorted(ids(find_letters(host, Filter(many, source="s")))) == list(many[1::2])
    assert find_letters(host, Filter(())) == []
    assert find_letters(Host(), Filter()) == []  # pyright: ignore[reportArgumentType]


def test_pages_have_each_letter_once() -> None:
    host = host_with(50)
    seen: list[str] = []
    after = None
    while page := find_letters(host, Filter(), after, 7):
        assert len(page) <= 7
        seen += ids(page)
        after = page[-1]["arrived_at"], page[-1]["id"]
    assert seen == ids(find_letters(host, Filter()))


def test_a_letter_is_let_go_once() -> None:
    host = host_with(4)
    loop = Loop(host)
    letters = find_letters(host, Filter(source="s"))
    assert discard(loop, letters).epoch == 2
    assert discard(loop, letters).epoch == 2
    assert ids(find_letters(host, Filter())) == ["002", "000"]
    (progress,) = host.holds(PROGRESS)
    assert progress[:7] == ("s", "{}", 2, 0, 0, 2, 2)
