"""Subscriptions: every event in order, from where it was; what cannot be taken is parked and replayed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.epoch.calls import Call, Outdated
from headrace.errors import HeadraceError
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
    assert one.wait_for(10, 90)
    one.stop()
    filled(store, 3)
    again = store.subscribe("mail", lambda given: seen.append(given["position"]))
    assert again.wait_for(13, 90)
    again.stop()
    assert seen == [*range(10), 11, 12, 13]
    assert again.position == 13


def test_only_one_type_and_only_later_ones(store: SmallStore) -> None:
    filled(store, 10)
    seen: list[int] = []
    one = store.subscribe("o", lambda given: seen.append(given["position"]), aggregate_type="Order", since=4)
    assert one.wait_for(10, 90)
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
    assert one.wait_for(6, 90)
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
    assert one.wait_for(2, 90)
    store.unsubscribe("mail")
    assert (store.parked(), one.position) == ([], 0)
    assert store.host.holds("events_subscriptions") == set()


def test_encrypted_values_are_given_as_they_were(store: SmallStore) -> None:
    store.register_schema("Made", encrypted=["name"])
    store.append("A", "a", [event("Made", name="Ada")])
    seen: list[Any] = []
    one = store.subscribe("s", lambda given: seen.append(given["event_data"]))
    assert one.wait_for(1, 90)
    one.stop()
    assert seen == [{"name": "Ada"}]


def test_of_two_of_one_name_each_event_is_counted_once(store: SmallStore) -> None:
    filled(store, 3)
    first = store.subscribe("s", lambda given: None)
    assert first.wait_for(3, 90)
    first.stop()
    with pytest.raises(Outdated):
        first.submit({}, 2, 3)
    first.submit({}, 3, 4)
    assert first.position == 4


def test_of_two_of_one_name_in_one_epoch_each_event_is_counted_once(store: SmallStore) -> None:
    filled(store, 3)
    one = store.subscribe("s", lambda given: None)
    assert one.wait_for(3, 90)
    one.stop()
    first, second = (_caught(store, one, 3, 4) for _ in range(2))
    store.loop.enter(first)
    store.loop.enter(second)
    store.loop.wait_for(first)
    with pytest.raises(Outdated):
        store.loop.wait_for(second)
    assert store.host.epoch == 5


def _caught(store: SmallStore, one: Any, before: int, after: int) -> Call:
    """The call by which a follower would say how far it is."""
    calls: list[Any] = []

    class Line:
        core = store.loop.core
        submit = staticmethod(calls.append)

    real, one._loop = one._loop, Line
    try:
        one.submit({}, before, after)
    finally:
        one._loop = real
    return calls[0]


def test_an_upcaster_that_fails_parks_the_event_and_the_next_comes(store: SmallStore) -> None:
    @store.upcast("Bad", 1)
    def without(data: Any) -> Any:
        return {"n": data["missing"]}

    store.append("A", "a", [event("Bad"), event("Good")])
    seen: list[Any] = []
    one = store.subscribe("m", seen.append, attempts=1)
    assert one.wait_for(2, 90)
    one.stop()
    assert [each["event_type"] for each in seen] == ["Good"]
    assert [(each["position"], each["reason"]) for each in store.parked()] == [(1, "KeyError: 'missing'")]
    assert store.replay_parked("m", seen.append) == (0, 1)
    store.upcast("Bad", 1)(lambda data: data)
    assert store.replay_parked("m", seen.append) == (1, 0)


def test_what_ends_a_program_parks_the_event_too(store: SmallStore) -> None:
    filled(store, 2)

    def ends(given: Any) -> None:
        raise SystemExit(1)

    one = store.subscribe("m", ends, attempts=1)
    assert one.wait_for(2, 90)
    one.stop()
    assert [each["reason"] for each in store.parked()] == ["SystemExit: 1", "SystemExit: 1"]


def test_each_try_is_given_an_event_of_its_own(store: SmallStore) -> None:
    filled(store, 1)
    seen: list[Any] = []

    def takes_apart(given: dict[str, Any]) -> None:
        seen.append(dict(given))
        given.pop("position")
        given["event_data"].clear()
        raise ValueError("no")

    one = store.subscribe("m", takes_apart, attempts=2)
    assert one.wait_for(1, 90)
    one.stop()
    assert len(seen) == 2
    assert seen[0].keys() == seen[1].keys()
    assert [each["position"] for each in store.parked()] == [1]


def test_a_follower_that_is_stopped_keeps_how_far_it_is_to_the_event(store: SmallStore) -> None:
    filled(store, 10)
    seen: list[int] = []
    subscribed = threading.Event()

    def stops(given: dict[str, Any]) -> None:
        # Its thread may be here before the name below stands for it.
        assert subscribed.wait(90)
        seen.append(given["position"])
        if given["position"] == 4:
            one.stop()

    one = store.subscribe("m", stops)
    subscribed.set()
    one._thread.join(90)
    assert (seen, one.position) == ([1, 2, 3, 4], 4)


def test_a_follower_that_waits_to_try_again_is_stopped_at_once(
    store: SmallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.events.subscriptions._PAUSE_SECONDS", 600)
    filled(store, 1)
    tried = threading.Event()

    def fails(given: Any) -> None:
        tried.set()
        raise ValueError("no")

    one = store.subscribe("m", fails, attempts=1000)
    assert tried.wait(90)
    one.stop()
    assert not one._thread.is_alive()
    assert (one.position, store.parked()) == (0, [])


def test_a_subscription_that_is_forgotten_while_it_works_stays_forgotten(store: SmallStore) -> None:
    filled(store, 3)
    begun, go_on = threading.Event(), threading.Event()

    def slow(given: Any) -> None:
        begun.set()
        go_on.wait(90)

    one = store.subscribe("m", slow)
    assert begun.wait(90)
    threading.Timer(0.2, go_on.set).start()
    one._thread.join = lambda timeout: None  # type: ignore[method-assign]
    store.unsubscribe("m")
    del one._thread.join
    one._thread.join(90)
    assert not one._thread.is_alive()
    assert store.host.holds("events_subscriptions") == set()


def test_followers_that_were_stopped_are_not_kept(store: SmallStore) -> None:
    for _ in range(5):
        store.subscribe("m", lambda given: None).stop()
    assert len(store._parts.followers) == 1


def test_names_that_stand_for_others_are_refused(store: SmallStore) -> None:
    for name in ("outbox:o", "projection:p"):
        with pytest.raises(HeadraceError, match="cannot be the name of a subscription"):
            store.subscribe(name, lambda given: None)
    with pytest.raises(HeadraceError, match="nobody takes"):
        store.replay_parked("m")


def test_whoever_follows_a_store_that_is_gone_ends_without_a_warning(
    store: SmallStore, caplog: pytest.LogCaptureFixture
) -> None:
    def dropped(given: Any) -> None:
        for name in ("events", "events_subscriptions", "events_parked"):
            store.host.catalog = store.host.catalog.without(name)

    filled(store, 1)
    one = store.subscribe("m", dropped)
    one._thread.join(90)
    assert not one._thread.is_alive()
    assert (one.error, caplog.records) == (None, [])
