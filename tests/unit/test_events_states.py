"""States of aggregates: as of then, with snapshots and without, folded otherwise, upcast, and forgotten."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import EventsRejected, HeadraceError
from tests.small_events import SmallStore, event

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    return SmallStore(tmp_path)


def test_a_state_is_its_events_merged_by_position(store: SmallStore) -> None:
    store.append("Customer", "a", [event("CustomerCreated", name="Ada", email="a@x")])
    store.append("Customer", "b", [event("CustomerCreated", name="Bob")])
    store.append("Customer", "a", [event("CustomerEmailUpdated", email="b@x"), event("Tagged", tags=[1])])
    assert store.state("Customer", "a") == {"name": "Ada", "email": "b@x", "tags": [1]}
    assert store.state("Customer", "a", as_of=2) == {"name": "Ada", "email": "a@x"}
    assert store.state("Customer", "b", as_of=1) is None
    assert store.state("Customer", "c") is None
    assert store.state("Order", "a") is None


def test_a_deleted_aggregate_has_no_state_until_it_is_made_again(store: SmallStore) -> None:
    for one in (event("CustomerCreated", name="Ada", email="a"), event("CustomerDeleted"), event("Noted", n=1)):
        store.append("Customer", "a", [one])
    assert store.state("Customer", "a", as_of=2) is None
    assert store.state("Customer", "a") == {"n": 1}


def test_a_state_as_of_a_time(store: SmallStore) -> None:
    for n in range(3):
        store.append("Customer", "a", [event("Noted", n=n)])
    assert store.state("Customer", "a", as_of=BEGIN + timedelta(seconds=1)) == {"n": 1}
    assert store.state("Customer", "a", as_of="2026-01-01T00:00:01.5Z") == {"n": 1}
    assert store.state("Customer", "a", as_of=BEGIN - timedelta(seconds=1)) is None


@pytest.mark.parametrize("as_of", ["soon", "2026-01-01", -1, True, 1.5, datetime(2026, 1, 1)])
def test_what_is_neither_a_position_nor_a_time_is_told(store: SmallStore, as_of: Any) -> None:
    with pytest.raises(HeadraceError, match="as_of"):
        store.state("Customer", "a", as_of=as_of)


def test_with_and_without_snapshots_states_are_equal(store: SmallStore) -> None:
    chosen = random.Random(5)
    for _ in range(300):
        name = chosen.choice("ab")
        kind = "CustomerDeleted" if chosen.random() < 0.02 else "Noted"
        store.append("Customer", name, [event(kind, **{chosen.choice("xyz"): chosen.random()})])
        if chosen.random() < 0.1:
            assert store.snapshot("Customer", name)
    for name in "ab":
        for as_of in (None, *range(0, 301, 7), *(BEGIN + timedelta(seconds=n) for n in range(0, 300, 11))):
            assert store.state("Customer", name, as_of) == store.state("Customer", name, as_of, snapshots=False)
    read = store.reached("Customer", "a").read
    assert read < 60
    assert store.drop_snapshots() > 10
    assert store.reached("Customer", "a").read > 100


def test_snapshots_are_taken_every_so_many_events(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, snapshot_events=10)
    for n in range(25):
        store.append("Counter", "a", [event("Noted", n=n)])
    store._parts.snapshots.shutdown()
    assert store.reached("Counter", "a").read <= 15
    assert store.state("Counter", "a") == {"n": 24}


def test_a_fold_of_ones_own(store: SmallStore) -> None:
    @store.fold("Account")
    def balance(state: Any, event: Any) -> Any:
        return {"balance": (state or {"balance": 0})["balance"] + event["event_data"]["amount"]}

    store.append("Account", "a", [event("Paid", amount=n) for n in range(5)])
    assert store.snapshot("Account", "a")
    store.append("Account", "a", [event("Paid", amount=10)])
    assert store.reached("Account", "a").read == 1
    assert store.state("Account", "a") == {"balance": 20}

    # Another way to fold finds none of the snapshots of the first.
    @store.fold("Account")
    def largest(state: Any, event: Any) -> Any:
        return {"largest": max((state or {"largest": 0})["largest"], event["event_data"]["amount"])}

    assert store.state("Account", "a") == {"largest": 10}


def test_a_state_that_json_does_not_give_back_is_not_kept(store: SmallStore) -> None:
    @store.fold("Set")
    def seen(state: Any, event: Any) -> Any:
        return {"seen": (state or {"seen": ()})["seen"] + (event["event_data"]["n"],)}

    store.append("Set", "a", [event("Added", n=1)])
    assert not store.snapshot("Set", "a")
    assert store.state("Set", "a") == {"seen": (1,)}


def test_old_events_are_upcast(store: SmallStore) -> None:
    @store.upcast("CustomerCreated", 1)
    def in_parts(data: Any) -> Any:
        first, last = data["name"].split()
        return {"first": first, "last": last}

    @store.upcast("CustomerCreated", 2)
    def shouted(data: Any) -> Any:
        return {**data, "last": data["last"].upper()}

    store.append("Customer", "a", [event("CustomerCreated", name="Ada Byron")])
    store.append("Customer", "b", [{**event("CustomerCreated", first="Bob", last="Ray"), "schema_version": 3}])
    assert store.state("Customer", "a") == {"first": "Ada", "last": "BYRON"}
    assert store.state("Customer", "b") == {"first": "Bob", "last": "Ray"}


SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "email": {"type": "string", "pattern": "^[^@]+@[^@]+$"}},
}


def test_events_are_checked_against_the_schema_of_their_version(store: SmallStore) -> None:
    store.register_schema("CustomerCreated", SCHEMA)
    store.register_schema("CustomerCreated", json.dumps({"required": ["first"]}), version=2)
    store.append("Customer", "a", [event("CustomerCreated", name="Ada", email="a@x")])
    store.append("Customer", "b", [{**event("CustomerCreated", first="Ada"), "schema_version": 2}])
    for bad, reason in (
        (event("CustomerCreated"), "'name' is a required property"),
        (event("CustomerCreated", name=1), r"event_data\.name: 1 is not of type"),
        (event("CustomerCreated", name="A", email="x"), "does not match"),
        (event("CustomerCreated", name="A", email="x" * 2000), "too long for a pattern"),
        ({**event("CustomerCreated", name="A"), "schema_version": 3}, "no schema version 3; there is 1, 2"),
    ):
        with pytest.raises(EventsRejected, match=reason):
            store.append("Customer", "c", [bad])
    store.append("Customer", "c", [event("Unheard", of=1)])


def test_a_closed_store_takes_only_types_that_it_knows(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, unknown_types=False)
    store.register_schema("Known")
    store.append("Customer", "a", [event("Known", n=1)])
    with pytest.raises(EventsRejected, match="Unknown is not registered; those that are: Known"):
        store.append("Customer", "a", [event("Unknown")])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "no JSON"),
        ([], "A schema is an object"),
        ({"type": "nonsense"}, "nonsense"),
        ({"$ref": "https://example.com/schema.json"}, "reaches outside"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "reaches outside"),
        ({"properties": {"a": {"pattern": "(a*){5}(b)\\2"}}}, "cannot be read"),
        ({"properties": {"a": {"pattern": "^(a{0,64}){0,64}$"}}}, "cannot be read"),
        ({"patternProperties": {"(?=x)y": {}}}, "cannot be read"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "do not go together"),
        ({"properties": {"a": {"pattern": "("}}}, "cannot be read"),
        ({"description": "x" * 300_000}, "letters"),
        ({"enum": list(range(6_000)), "properties": {str(n): {} for n in range(6_000)}}, "more than 5,000 parts"),
    ],
)
def test_schemas_that_could_do_harm_are_refused(store: SmallStore, schema: Any, reason: str) -> None:
    with pytest.raises(HeadraceError, match=reason):
        store.register_schema("X", schema)


def test_a_registered_version_stays_as_it_is(store: SmallStore) -> None:
    store.register_schema("X", {"type": "object"})
    epoch = store.host.epoch
    store.register_schema("X", {"type": "object"})
    assert store.host.epoch == epoch
    with pytest.raises(HeadraceError, match="registered already, otherwise"):
        store.register_schema("X", {"type": "object", "required": ["a"]})


def test_a_schema_may_refer_to_itself(store: SmallStore) -> None:
    store.register_schema("Tree", {"$defs": {"t": {"properties": {"t": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"})
    store.append("A", "a", [event("Tree", t={"t": {"t": {}}})])


def test_forgetting_a_key_erases_marked_fields_everywhere(store: SmallStore) -> None:
    store.register_schema("CustomerCreated", SCHEMA, encrypted=["name", "email"])
    created = {"event_id": "x", **event("CustomerCreated", name="Ada", email="ada@x", city="Rome")}
    store.append("Customer", "a", [created])
    store.append("Customer", "b", [event("CustomerCreated", name="Bob")])
    assert "Ada" not in str(store.host.holds("events"))
    assert store.state("Customer", "a") == {"name": "Ada", "email": "ada@x", "city": "Rome"}
    assert json.loads(store.read("Customer", "a").to_pylist()[0]["event_data"])["email"] == "ada@x"
    assert store.append("Customer", "a", [created]).version == 1
    assert store.snapshot("Customer", "a")
    assert "Ada" not in str(store.host.holds("events_snapshots"))
    assert store.forget("Customer", "a")
    assert not store.forget("Customer", "a")
    for snapshots in (True, False):
        found = store.state("Customer", "a", snapshots=snapshots)
        assert found == {"name": None, "email": None, "city": "Rome"}
    assert store.state("Customer", "b") == {"name": "Bob"}
    # Who comes back has another key, which opens nothing of before.
    store.append("Customer", "a", [event("CustomerCreated", name="Eve")])
    assert store.state("Customer", "a") == {"name": "Eve", "email": None, "city": "Rome"}


def test_a_fold_of_ones_own_sees_what_was_encrypted_and_leaves_no_snapshot_of_it(store: SmallStore) -> None:
    store.register_schema("Made", encrypted=["name"])

    @store.fold("Customer")
    def greeted(state: Any, event: Any) -> Any:
        return {"greeting": f"Hello {event['event_data']['name']}"}

    store.append("Customer", "a", [event("Made", name="Ada")])
    assert store.state("Customer", "a") == {"greeting": "Hello Ada"}
    assert not store.snapshot("Customer", "a")


def test_a_field_may_name_whom_the_encrypted_ones_are_about(store: SmallStore) -> None:
    store.register_schema("Ordered", encrypted=["address"], subject="customer")
    for order, customer in (("1", "ada"), ("2", "ada"), ("3", "bob")):
        store.append("Order", order, [event("Ordered", customer=customer, address="here")])
    store.forget_subject("ada")
    found = [store.state("Order", one) for one in "123"]
    assert [one["address"] for one in found if one] == [None, None, "here"]
    with pytest.raises(EventsRejected, match="has no customer"):
        store.append("Order", "4", [event("Ordered", address="there")])
