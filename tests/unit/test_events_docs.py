"""What docs/reference/events.md shows of commands and of two aggregates at once, run as it stands there."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import BadArguments, CommandRefused, VersionConflict
from headrace.serving.problems import problem_of
from tests.small_events import SmallStore, event

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    found = SmallStore(tmp_path, snapshot_events=2)
    found.append("Account", "a1", [event("Opened", balance=5)])
    found.append("Account", "a2", [event("Opened", balance="1.10")])
    return found


@pytest.fixture
def shown() -> dict[str, Any]:
    """The names that the section's snippets define."""
    section = PAGE.read_text().split("## What functions are given")[1].split("\n## ")[0]
    names: dict[str, Any] = {"headrace": headrace}
    for snippet in re.findall(r"```python\n(.*?)```", section, re.S):
        exec(snippet, names)
    return names


def test_a_command_computes_with_decimals_and_refuses(store: SmallStore, shown: dict[str, Any]) -> None:
    store.run(shown["withdraw"], account="a1", amount="1.50")
    assert Decimal(str((store.state("Account", "a1") or {})["balance"])) == Decimal("3.50")
    with pytest.raises(CommandRefused) as refused:
        store.run(shown["withdraw"], account="a1", amount=10)
    told = problem_of(refused.value)
    assert (told["status"], told["code"], told["hint"]) == (422, "command_refused", "withdraw less")
    with pytest.raises(BadArguments) as mistaken:
        store.run(shown["withdraw"], account="a1")
    told = problem_of(mistaken.value)
    assert (told["detail"], told["hint"]) == ("amount: Field required", "the command withdraw takes account, amount")


def test_a_transfer_is_of_both_or_of_none_and_decided_anew(store: SmallStore, shown: dict[str, Any]) -> None:
    first = store.append_many
    asked: list[int] = []

    def overtaken(appends: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            store.append("Account", "a1", [event("Noted")])
        return first(appends)

    store.append_many = overtaken  # pyright: ignore[reportAttributeAccessIssue]
    receipt = shown["transfer"](store, "a1", "a2", Decimal("0.90"))
    assert len(asked) == 2
    balances = [Decimal(str((store.state("Account", name) or {})["balance"])) for name in ("a1", "a2")]
    assert balances == [Decimal("4.10"), Decimal("2.00")]
    assert store.read().num_rows == 5
    # A snapshot may have had an epoch of its own meanwhile.
    assert (receipt.position, receipt.epoch <= store.host.epoch) == (5, True)
    with pytest.raises(CommandRefused):
        shown["transfer"](store, "a1", "a2", Decimal(100))
    assert store.read().num_rows == 5
    with pytest.raises(VersionConflict):
        first([{"aggregate_type": "Account", "aggregate_id": "a1", "events": [event("Noted")], "expected": 1}])


def test_what_folds_subscribers_and_upcasters_are_given(store: SmallStore) -> None:
    seen: list[tuple[str, Any]] = []
    of_state = {"event_type", "event_data", "metadata", "event_version", "position", "created_at"}

    @store.fold("Account")
    def fold(state: Any, one: Any) -> Any:
        seen.append(("fold", dict(one)))
        return {"n": (state or {"n": 0})["n"] + 1}

    store.state("Account", "a1")
    followed = store.subscribe("watch", lambda one: seen.append(("subscription", dict(one))))
    followed.wait_for(2, 90)
    followed.stop()
    given = dict(seen)
    assert of_state <= given["fold"].keys()
    assert of_state | {"event_id", "aggregate_type", "aggregate_id"} <= given["subscription"].keys()
    for one in given.values():
        assert isinstance(one["event_data"], dict)
        assert isinstance(one["metadata"], dict)
        assert one["created_at"].utcoffset() is not None


@pytest.mark.parametrize(
    ("state", "kept"),
    [({"n": 1, "all": ["a", 1.5]}, True), ({"n": Decimal(1)}, False), ({"n": (1, 2)}, False), ({"n": {1: 2}}, False)],
)
def test_which_states_have_snapshots(store: SmallStore, state: Any, kept: bool) -> None:
    store.fold("Account")(lambda before, one: state)
    assert store.snapshot("Account", "a1") is kept


def test_a_fold_over_encrypted_fields_has_none_and_a_merged_state_has_one(store: SmallStore) -> None:
    store.register_schema("Named", encrypted=["name"])
    store.append("Person", "p1", [event("Named", name="Ada")])
    assert store.snapshot("Person", "p1")
    assert "Ada" not in str(store.host.newest_of_names(["events_snapshots"])["events_snapshots"][0].all().rows)
    store.drop_snapshots()
    store.fold("Person")(lambda before, one: {"letters": len(one["event_data"]["name"])})
    assert not store.snapshot("Person", "p1")


def test_a_store_has_the_verbs_that_are_written_there_and_no_others() -> None:
    rows = PAGE.read_text().split("## Python")[1].split("\n## ")[0].splitlines()
    heads = [row.split(" | ")[0] for row in rows if row.startswith("| `")]
    written = {name for head in heads for name in re.findall(r"`(?:@store\.)?(\w+)\(", head)}
    assert written == {name for name in vars(headrace.EventStore) if not name.startswith("_")}
