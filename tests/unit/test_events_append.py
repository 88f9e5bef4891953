"""Appends: versions and positions without holes, expected versions, ids that come again, and all that is refused."""

from __future__ import annotations

import uuid
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ChangesRejected, EventsRejected, SystemTable, VersionConflict
from headrace.events.append import append_call
from headrace.events.event import read_append
from tests.small_engine import table, verdicts
from tests.small_events import SmallStore, event, named


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return SmallStore(tmp_path, table("t"))


def numbers(store: SmallStore) -> list[tuple[str, int, int]]:
    rows = store.read().to_pylist()
    return [(row["aggregate_id"], row["event_version"], row["position"]) for row in rows]


def call(store: SmallStore, aggregate: str, *events: Any, expected: Any = "any") -> Any:
    return store.within.call("Customer", aggregate, list(events), expected)


def test_versions_count_within_an_aggregate_and_positions_within_the_store(store: SmallStore) -> None:
    assert store.append("Customer", "a", [event("Made"), event("Moved")]).version == 2
    assert store.append("Customer", "b", [event("Made")]).version == 1
    receipt = store.append("Customer", "a", [event("Moved")])
    assert (receipt.version, receipt.position) == (3, 4)
    assert numbers(store) == [("a", 1, 1), ("a", 2, 2), ("b", 1, 3), ("a", 3, 4)]


def test_appends_of_one_epoch_come_one_after_the_other(store: SmallStore) -> None:
    calls = [call(store, "ab"[i % 2], event("Noted"), event("Noted")) for i in range(6)]
    found = verdicts(store.loop, *calls)
    assert {one.epoch for one in found} == {1}
    assert [one.version for one in found] == [2, 2, 4, 4, 6, 6]
    assert [position for *_, position in numbers(store)] == list(range(1, 13))


@pytest.mark.parametrize(
    ("expected", "version"), [("any", 2), (1, 2), ("none", VersionConflict), (0, VersionConflict), (2, VersionConflict)]
)
def test_the_version_that_is_expected_must_be_there(store: SmallStore, expected: Any, version: Any) -> None:
    store.append("Customer", "a", [event("Made")], "none")
    if version is VersionConflict:
        with pytest.raises(VersionConflict) as conflict:
            store.append("Customer", "a", [event("Moved")], expected)
        assert conflict.value.version == 1
        assert len(numbers(store)) == 1
    else:
        assert store.append("Customer", "a", [event("Moved")], expected).version == version


def test_of_two_in_one_epoch_that_expect_the_same_the_second_is_rejected_alone(store: SmallStore) -> None:
    first, second, third = verdicts(
        store.loop,
        call(store, "a", event("Made"), expected="none"),
        call(store, "a", event("Made"), expected="none"),
        call(store, "b", event("Made"), expected="none"),
    )
    assert (first.version, third.version, first.epoch) == (1, 1, third.epoch)
    assert isinstance(second, VersionConflict)
    assert second.version == 1
    assert numbers(store) == [("a", 1, 1), ("b", 1, 2)]


def test_the_same_ids_again_have_the_first_version_and_change_nothing(store: SmallStore) -> None:
    events = [named("x"), named("y", n=1.5)]
    first = store.append("Customer", "a", events, "none")
    store.append("Customer", "a", [event("Later")])
    again = store.append("Customer", "a", events, "none")
    assert (again.version, again.position) == (first.version, first.position) == (2, 2)
    assert len(numbers(store)) == 3
    assert store.host.epoch == 2


def test_the_same_ids_twice_in_one_epoch_are_one(store: SmallStore) -> None:
    found = verdicts(store.loop, *(call(store, "a", named("x"), expected="none") for _ in range(3)))
    assert [one.version for one in found] == [1, 1, 1]
    assert numbers(store) == [("a", 1, 1)]


def test_what_came_with_events_that_are_known_is_not_applied_again(store: SmallStore) -> None:
    changes = {"t": [{"insert": {"id": 1, "n": 1}}]}
    store.append("Customer", "a", [named("x")], changes=changes)
    store.append("Customer", "a", [named("x")], changes={"t": [{"insert": {"id": 2, "n": 2}}]})
    assert store.host.holds("t") == {(1, 1)}


def test_an_event_and_a_refused_change_are_neither_there(store: SmallStore) -> None:
    with pytest.raises(ChangesRejected):
        store.append("Customer", "a", [event("Made")], changes={"t": [{"insert": {"id": "no number"}}]})
    assert numbers(store) == []
    assert store.append("Customer", "a", [event("Made")], "none").position == 1


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([named("x"), named("new")], "not all events of this append are"),
        ([named("x", n=2)], "stands for another event"),
        ([named("x", "Other")], "stands for another event"),
        ([named("new"), named("new")], "the same event_id"),
    ],
)
def test_ids_that_stand_for_something_else_are_refused(store: SmallStore, events: Any, reason: str) -> None:
    store.append("Customer", "a", [named("x")])
    with pytest.raises(EventsRejected, match=reason):
        store.append("Customer", "a", events)
    assert len(numbers(store)) == 1


def test_an_id_of_another_aggregate_is_refused(store: SmallStore) -> None:
    store.append("Customer", "a", [named("x")])
    with pytest.raises(EventsRejected, match="of Customer a at version 1"):
        store.append("Customer", "b", [named("x")])


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([], "1 to 100000 events"),
        ("text", "come as a list"),
        (["text"], "an event is an object"),
        ([{}], "event_type is a text"),
        ([{"event_type": ""}], "event_type is a text"),
        ([{"event_type": "x" * 256}], "longer than 255"),
        ([{"event_type": "\ud800"}], "surrogate"),
        ([{"event_type": "x", "other": 1}], "unknown field 'other'"),
        ([{"event_type": "x", "event_data": [1]}], "event_data is an object"),
        ([{"event_type": "x", "metadata": "m"}], "metadata is an object"),
        ([{"event_type": "x", "event_data": {"a": float("nan")}}], "no JSON"),
        ([{"event_type": "x", "event_data": {"a": Decimal("Infinity")}}], "no JSON"),
        ([{"event_type": "x", "event_data": {"a": object()}}], "type object"),
        ([{"event_type": "x", "event_data": {1: 2}}], "names in event_data"),
        ([{"event_type": "x", "event_data": {"a": "\udfff"}}], "surrogate"),
        ([{"event_type": "x", "event_data": {"a": "x" * 20_000}}], "event_bytes allows 10,000"),
        ([{"event_type": "x", "event_data": {"$sealed": "x"}}], r"\$sealed"),
        ([{"event_type": "x", "schema_version": 0}], "schema_version"),
        ([{"event_type": "x", "event_id": ""}], "event_id is a text"),
    ],
)
def test_malformed_events_are_told(store: SmallStore, events: Any, reason: str) -> None:
    with pytest.raises(EventsRejected, match=reason):
        store.append("Customer", "a", events)
    assert store.host.epoch == 0


def test_nesting_is_bounded(store: SmallStore) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(EventsRejected, match="nested too deeply"):
        store.append("Customer", "a", [{"event_type": "x", "event_data": deep}])
    circle: dict[str, Any] = {}
    circle["a"] = circle
    with pytest.raises(EventsRejected, match="nested too deeply"):
        store.append("Customer", "a", [{"event_type": "x", "event_data": circle}])


@pytest.mark.parametrize("expected", ["all", -1, True, 1.0, None])
def test_expected_is_any_none_or_a_number(store: SmallStore, expected: Any) -> None:
    with pytest.raises(EventsRejected, match="expected is") as caught:
        store.append("Customer", "a", [event("Made")], expected)
    # No event is to blame.
    assert caught.value.message == "this append to events is not as it must be"
    assert caught.value.hint == "mend the call and append again; nothing of it was appended"
    assert "[0]" not in str(caught.value)


@pytest.mark.parametrize(("kind", "name"), [("", "a"), ("Customer", ""), (None, "a"), ("Customer", None)])
def test_an_aggregate_has_a_type_and_an_id(store: SmallStore, kind: Any, name: Any) -> None:
    with pytest.raises(EventsRejected, match="is a text that is not empty"):
        store.append(kind, name, [event("Made")])


def test_numbers_and_uuids_are_ids_too(store: SmallStore) -> None:
    name: Any = uuid.uuid4()
    number: Any = 7
    store.append("Customer", number, [{"event_type": "x", "event_id": name}])
    assert store.state("Customer", number) == {}
    assert store.read().to_pylist()[0]["event_id"] == str(name)


def test_numbers_keep_their_digits(store: SmallStore) -> None:
    store.append("Customer", "a", [event("Paid", amount=Decimal("9.50"), units=12345678901234567890)])
    assert store.read().to_pylist()[0]["event_data"] == '{"amount":9.50,"units":12345678901234567890}'


def test_correlation_and_causation_go_into_the_metadata(store: SmallStore) -> None:
    store.append("Customer", "a", [event("Made")], correlation_id="r1", causation_id="c1")
    assert store.read().to_pylist()[0]["metadata"] == '{"correlation_id":"r1","causation_id":"c1"}'


def test_several_aggregates_are_appended_to_together_or_not_at_all(store: SmallStore) -> None:
    store.append("Customer", "a", [event("Made")])
    both = [{"aggregate_type": "Customer", "aggregate_id": one, "events": [event("Made")]} for one in "ba"]
    with pytest.raises(VersionConflict):
        store.append_many([both[0], {**both[1], "expected": "none"}])
    assert store.append_many(both).position == 3
    assert numbers(store) == [("a", 1, 1), ("b", 1, 2), ("a", 2, 3)]


def test_the_tables_of_a_store_take_no_other_changes(store: SmallStore) -> None:
    for name in ("events", "events_aggregates", "events_types", "events_snapshots"):
        with pytest.raises(SystemTable):
            store.loop.apply({name: [{"insert": {}}]})


def test_a_map_holds_texts(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, data="map")
    events = [named("x", "Made", name="Ada", n=1, parts=[1, "b"], nothing=None)]
    store.append("Customer", "a", events)
    assert store.append("Customer", "a", events).version == 1
    assert store.state("Customer", "a") == {"name": "Ada", "n": "1", "parts": '[1,"b"]', "nothing": None}


def test_numbers_in_a_map_keep_their_digits(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, data="map")
    digits = Decimal("12345678901234567890.10")
    events = [named("x", "Paid", total=digits, lines=[{"price": digits}])]
    store.append("Order", "a", events)
    assert store.append("Order", "a", events).version == 1
    assert store.state("Order", "a") == {"total": str(digits), "lines": f'[{{"price":{digits}}}]'}


def test_events_are_read_by_aggregate_type_and_position(store: SmallStore) -> None:
    for kind, name in (("A", "1"), ("B", "1"), ("A", "2"), ("A", "1")):
        store.append(kind, name, [event("x")])

    def positions(*where: Any, **span: Any) -> list[int]:
        return [row["position"] for row in store.read(*where, **span).to_pylist()]

    assert positions() == [1, 2, 3, 4]
    assert positions("A") == [1, 3, 4]
    assert positions("A", "1") == [1, 4]
    assert positions(since=1, until=3) == [2, 3]
    assert positions("A", since=1) == [3, 4]
    assert positions("A", "1", since=1) == [4]
    assert positions("A", "1", until=3) == [1]
    assert positions("C") == []


def test_an_append_is_refused_by_a_store_that_is_gone(store: SmallStore) -> None:
    append = read_append("other", "A", "1", [event("x")], "any", 1000)
    (found,) = verdicts(store.loop, append_call("other", [append]))
    assert "there is no event store other" in str(found)


def test_an_aggregate_keeps_when_it_was_made(store: SmallStore) -> None:
    store.append("Customer", "a", [event("Made")])
    store.append("Customer", "b", [event("Made")])
    begun = store.host.tick()
    store.append("Customer", "a", [event("Moved")])
    # Two of one epoch: the second finds what the first has noted.
    verdicts(store.loop, call(store, "c", event("Made")), call(store, "c", event("Moved")))
    store.append("Customer", "c", [event("Moved")])
    times = {row[1]: row[4:6] for row in store.host.holds("events_aggregates")}
    first = begun - timedelta(seconds=2)
    assert times["a"] == (first, begun)
    assert times["c"] == (begun + timedelta(seconds=1), begun + timedelta(seconds=2))
