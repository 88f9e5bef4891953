"""Keys of appends and commands: one key is one call, whatever was in flight, decided or sent with it."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import EventsRejected, KeyReused
from headrace.events.commands import run_command
from tests.small_events import SmallStore, create, event, named


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return SmallStore(tmp_path)


def test_the_parts_of_a_key_are_told_apart(store: SmallStore) -> None:
    store.run(create, customer_id="a/b", name="Ada", key="k")
    store.run(create, customer_id="a", name="Eve", key="b/k")
    assert store.state("Customer", "a") == {"name": "Eve"}
    store.append("A/B", "c", [event("x")], key="k")
    store.append("A", "B/c", [event("x")], key="k")
    assert len(store.read()) == 4


def test_one_that_is_sent_again_while_the_first_is_in_flight_has_its_result(store: SmallStore) -> None:
    class Overtaken:
        """A store in which the first sending commits after the second has begun."""

        name = store.name
        first: Any = None

        def __getattr__(self, name: str) -> Any:
            return getattr(store.within, name)

        def shown_state(self, *given: Any) -> Any:
            if self.first is None:
                self.first = store.run(create, customer_id="a", name="Ada", key="k")
            return store.within.shown_state(*given)

    overtaken: Any = Overtaken()
    again = run_command(overtaken, create, {"customer_id": "a", "name": "Ada"}, "k")
    assert (again.version, again.events, len(store.read())) == (1, 1, 1)


def test_many_at_once_under_one_key_are_one(store: SmallStore) -> None:
    found: list[Any] = []

    def send() -> None:
        found.append(store.run(create, customer_id="a", name="Ada", key="k"))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [(one.version, one.events) for one in found] == [(1, 1)] * 8
    assert len(store.read()) == 1


def test_other_arguments_under_a_key_are_refused(store: SmallStore) -> None:
    store.run(create, customer_id="a", name="Ada", key="k")
    with pytest.raises(KeyReused, match="another request"):
        store.run(create, customer_id="a", name="Other", key="k")
    assert store.state("Customer", "a") == {"name": "Ada"}


def test_ids_of_ones_own_under_a_key_are_refused(store: SmallStore) -> None:
    @headrace.command("Customer")
    def pay(state: Any, customer_id: str) -> Any:
        return named("mine", "Paid")

    with pytest.raises(EventsRejected, match="follow from it"):
        store.run(pay, customer_id="a", key="k")
    assert store.run(pay, customer_id="a").version == 1


def test_that_nothing_was_decided_is_remembered(store: SmallStore) -> None:
    ready: list[int] = []

    @headrace.command("A")
    def go(state: Any, a: str) -> Any:
        return event("x") if ready else None

    assert store.run(go, a="1", key="k").events == 0
    ready.append(1)
    assert store.run(go, a="1", key="k").events == 0
    assert store.run(go, a="1", key="other").events == 1


def test_a_result_is_known_by_its_events_when_its_receipt_is_gone(store: SmallStore) -> None:
    first = store.run(create, customer_id="a", name="Ada", key="k")
    store.host._keys.clear()  # pyright: ignore[reportPrivateUsage]
    again = store.run(create, customer_id="a", name="Ada", key="k")
    assert (again.version, again.position, again.events) == (first.version, first.position, 1)


@pytest.mark.parametrize(
    "others",
    [
        [event("x")],
        [event("x"), event("y"), event("z")],
        [event("x"), event("y", n=1)],
        [named("i", "x"), event("y")],
    ],
    ids=["fewer", "more", "other data", "ids of their own"],
)
def test_an_append_of_other_events_under_a_key_is_refused(store: SmallStore, others: Any) -> None:
    first = store.append("A", "a", [event("x"), event("y")], key="k")
    again = store.append("A", "a", [event("x"), event("y")], key="k")
    assert (again.epoch, again.version, again.position) == (first.epoch, 2, 2)
    with pytest.raises(KeyReused):
        store.append("A", "a", others, key="k")
    assert len(store.read()) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, True), (Decimal("1e400"), Decimal("1e500")), (Decimal("1.10"), Decimal("1.1")), (0.1, Decimal("0.1000"))],
)
def test_an_id_with_a_value_that_only_looks_the_same_is_refused(store: SmallStore, first: Any, second: Any) -> None:
    store.append("A", "a", [named("i", n=first, m={"b": 1, "a": 2})])
    store.append("A", "a", [named("i", m={"a": 2, "b": 1}, n=first)])
    with pytest.raises(EventsRejected, match="stands for another event"):
        store.append("A", "a", [named("i", n=second, m={"b": 1, "a": 2})])


def test_of_several_appends_it_is_said_which_is_wrong(store: SmallStore) -> None:
    right = {"aggregate_type": "A", "aggregate_id": "a", "events": [event("x")]}
    for wrong, reason in (
        ({**right, "events": [{"bad": 1}]}, r"append 2: unknown field 'bad'"),
        ({**right, "expected_version": 99}, "append 2 has an unknown part 'expected_version'"),
        ("text", "append 2 is no object"),
        ({**right, "events": [named("x"), named("x")]}, "append 2: two events"),
    ):
        with pytest.raises(EventsRejected, match=reason):
            store.append_many([right, wrong])  # pyright: ignore[reportArgumentType]
    for nothing in ([], "text"):
        with pytest.raises(EventsRejected, match="nothing to append"):
            store.append_many(nothing)  # pyright: ignore[reportArgumentType]
    assert len(store.read()) == 0


def test_names_inside_of_data_are_texts_and_a_text_may_name_anything(store: SmallStore) -> None:
    with pytest.raises(EventsRejected, match="names in event_data are texts"):
        store.append("A", "a", [event("x", a={1: "x", "1": "y"})])
    store.append("A", "a", [event("x", note="the $sealed bids", listed=["$sealed"])])
    assert store.state("A", "a") == {"note": "the $sealed bids", "listed": ["$sealed"]}
    for hidden in ({"$sealed": 1}, {"a": [{"$sealed": 1}]}):
        with pytest.raises(EventsRejected, match="stands for encrypted"):
            store.append("A", "a", [event("x", a=hidden)])


def test_a_store_that_is_dropped_right_after_the_commit_does_not_take_the_receipt(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, snapshot_events=10)

    def drop(*_: Any) -> None:
        store.host.catalog = store.host.catalog.without("events")

    store.loop.ran = drop
    assert store.append("A", "a", [event("x")]).version == 1
