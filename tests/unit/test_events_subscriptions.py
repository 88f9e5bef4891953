"""Subscriptions: every event in order, from where it was; what cannot be taken is parked and replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.epoch.calls import Outdated
from tests.small_events import SmallStore, event


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return SmallStore(tmp_path)


def filled(store: SmallStore, count: int) -> None:
    for n in range(count):
        store.append("Customer" if n % 3 else "Order", f"a{n % 4}", [event("Noted", n=n)])


def test_events_come_in_order_and_go_on_where_it_was(store: SmallStore) -> None:
    filled(store, 10)
    seen: list[int] = []
    one = store.subscribe("mail", lambda given: seen.append(given["event_data"]["n"]))
    assert one.wait_for(10)
    one.stop()
    filled(store, 3)
    again = store.subscribe("mail", lambda given: seen.append(given["position"]))
    assert again.wait_for(13)
    again.stop()
    assert seen == [*range(10), 11, 12, 13]
    assert again.position == 13


def test_only_one_type_and_only_later_ones(store: SmallStore) -> None:
    filled(store, 10)
    seen: list[int] = []
    one = store.subscribe("o", lambda given: seen.append(given["position"]), aggregate_type="Order", since=4)
    assert one.wait_for(10)
    one.stop()
    assert seen == [7, 10]


def test_what_cannot_be_taken_is_parked_and_replayed(store: SmallStore) -> None:
    filled(store, 6)
    tries: list[int] = []
    broken = True

    def handle(given: dict[str, Any]) -> None:
        tries.append(given["position"])
        if broken and given["position"] in (2, 5):
            raise ValueError(f"cannot take {given['position']}")

    one = store.subscribe("mail", handle, attempts=2)
    assert one.wait_for(6)
    one.stop()
    assert tries == [1, 2, 2, 3, 4, 5, 5, 6]
    parked = store.parked("mail")
    assert [(each["position"], each["reason"], each["attempts"]) for each in parked] == [
        (2, "ValueError: cannot take 2", 2),
        (5, "ValueError: cannot take 5", 2),
    ]
    assert store.replay_parked("mail", handle) == (0, 2)
    assert [each["attempts"] for each in store.parked()] == [3, 3]
    broken = False
    assert store.replay_parked("mail", handle) == (2, 0)
    assert store.parked() == []


def test_a_subscription_can_be_forgotten(store: SmallStore) -> None:
    filled(store, 2)
    one = store.subscribe("mail", lambda given: 1 / 0, attempts=1)
    assert one.wait_for(2)
    store.unsubscribe("mail")
    assert (store.parked(), one.position) == ([], 0)
    assert store.host.holds("events_subscriptions") == set()


def test_encrypted_values_are_given_as_they_were(store: SmallStore) -> None:
    store.register_schema("Made", encrypted=["name"])
    store.append("A", "a", [event("Made", name="Ada")])
    seen: list[Any] = []
    one = store.subscribe("s", lambda given: seen.append(given["event_data"]))
    assert one.wait_for(1)
    one.stop()
    assert seen == [{"name": "Ada"}]


def test_of_two_of_one_name_each_event_is_counted_once(store: SmallStore) -> None:
    filled(store, 3)
    first = store.subscribe("s", lambda given: None)
    assert first.wait_for(3)
    first.stop()
    with pytest.raises(Outdated):
        first.submit({}, 2, 3)
    first.submit({}, 3, 4)
    assert first.position == 4
