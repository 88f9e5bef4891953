"""Events looked for: newest first, by names, page after page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import KeyReused
from headrace.events.for_others import events_verb
from headrace.events.reading import Wanted
from tests.small_events import SmallStore, event


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    found = SmallStore(tmp_path)
    for index in range(40):
        kind, name = ("Account", f"a{index % 3}") if index % 4 else ("Customer", "c1")
        found.append(kind, name, [event("Paid" if index % 2 else "Noted", n=index)], correlation_id="x")
    return found


def read(store: SmallStore, **wanted: Any) -> list[int]:
    """All positions, page after page."""
    found: list[int] = []
    while True:
        rows, more = store.within.find(Wanted(**wanted, limit=3))
        found += [row["position"] for row in rows]
        if not more:
            return found
        assert len(rows) == 3
        wanted["before" if wanted.get("newest_first") else "since"] = found[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        {},
        {"aggregate_type": "Customer"},
        {"aggregate_id": "a1"},
        {"event_type": "Paid"},
        {"aggregate_type": "Account", "aggregate_id": "a1"},
        {"aggregate_type": "Account", "aggregate_id": "a1", "event_type": "Paid"},
        {"aggregate_type": "Nobody"},
    ],
    ids=str,
)
def test_pages_have_every_event_that_is_looked_for_once(
    store: SmallStore, names: dict[str, str], newest_first: bool
) -> None:
    rows = store.read().to_pylist()
    fitting = [row["position"] for row in rows if all(row[name] == value for name, value in names.items())]
    assert read(store, **names, newest_first=newest_first) == (fitting[::-1] if newest_first else fitting)
    between = [one for one in fitting if 5 < one < 31]
    found = read(store, **names, newest_first=newest_first, since=5, before=31)
    assert found == (between[::-1] if newest_first else between)


def test_a_store_without_events_has_none(tmp_path: Path) -> None:
    empty = SmallStore(tmp_path)
    assert empty.within.find(Wanted(newest_first=True)) == ([], False)
    assert empty.within.find(Wanted("Customer", "c1")) == ([], False)
    assert empty.within.aggregate_types() == []


def test_a_receipt_counts_what_was_asked_for(store: SmallStore) -> None:
    asked = events_verb(lambda name: store)
    told = asked("append", aggregate_type="Account", aggregate_id="a9", events=[event("Noted"), event("Noted")])
    assert told["applied"] == {"events": 2}
    assert (told["version"], told["position"]) == (2, 42)


def test_other_processes_are_told_times_in_z_and_which_types_there_are(store: SmallStore) -> None:
    asked = events_verb(lambda name: store)
    read = asked("read", aggregate_type="Customer", limit=2)
    assert read["more"]
    missing = asked("state", aggregate_type="account", aggregate_id="a1")
    assert (missing["state"], missing["version"], missing["types"]) == (None, 0, ["Account", "Customer"])
    assert "types" not in asked("state", aggregate_type="Account", aggregate_id="a1")


def test_a_key_that_stands_for_another_append_is_told_as_it_was_sent(store: SmallStore) -> None:
    store.append("Account", "a1", [event("Paid", n=1)], key="x1")
    with pytest.raises(KeyReused) as refused:
        store.append("Account", "a1", [event("Paid", n=2)], key="x1")
    assert "The key 'x1' stands for other changes" in refused.value.detail
