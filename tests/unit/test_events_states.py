"""States of aggregates: as of then, with snapshots and without, folded otherwise, upcast, and forgotten."""

from __future__ import annotations

import functools
import json
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import EventsRejected, HeadraceError
from headrace.events.reading import Wanted
from headrace.events.snapshots import KEPT
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
    read = store.within.reached("Customer", "a").read
    assert read < 60
    assert store.drop_snapshots() == 2 * KEPT
    assert store.within.reached("Customer", "a").read > 100


def test_snapshots_are_taken_every_so_many_events(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, snapshot_events=10)
    for n in range(25):
        store.append("Counter", "a", [event("Noted", n=n)])
    store._parts.snapshots.threads.shutdown()
    assert store.within.reached("Counter", "a").read <= 15
    assert store.state("Counter", "a") == {"n": 24}


def test_a_fold_of_ones_own(store: SmallStore) -> None:
    @store.fold("Account")
    def balance(state: Any, event: Any) -> Any:
        return {"balance": (state or {"balance": 0})["balance"] + event["event_data"]["amount"]}

    store.append("Account", "a", [event("Paid", amount=n) for n in range(5)])
    assert store.snapshot("Account", "a")
    store.append("Account", "a", [event("Paid", amount=10)])
    assert store.within.reached("Account", "a").read == 1
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
        ({"$ref": "https://example.com/schema.json"}, "neither within the schema nor"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "neither within the schema nor"),
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


def times(rate: int) -> Any:
    return lambda state, event: {"n": (state or {"n": 0})["n"] + rate * event["event_data"]["n"]}


def multiplied(rate: int, state: Any, event: Any) -> Any:
    return times(rate)(state, event)


class Multiplier:
    def __init__(self, rate: int) -> None:
        self.rate = rate

    def fold(self, state: Any, event: Any) -> Any:
        return times(self.rate)(state, event)


@pytest.mark.parametrize("made", [times, lambda rate: functools.partial(multiplied, rate)])
def test_a_fold_made_with_something_else_finds_no_snapshot_of_before(store: SmallStore, made: Any) -> None:
    store.append("A", "a", [event("x", n=1)] * 3)
    store.fold("A")(made(1))
    assert store.snapshot("A", "a")
    assert store.within.reached("A", "a").read == 0
    store.fold("A")(made(10))
    assert store.state("A", "a") == {"n": 30}


def test_a_fold_that_cannot_be_told_apart_has_snapshots_only_with_a_version(store: SmallStore) -> None:
    store.append("A", "a", [event("x", n=1)] * 3)
    store.fold("A")(Multiplier(1).fold)
    assert not store.snapshot("A", "a")
    store.fold("A", version="1")(Multiplier(1).fold)
    assert store.snapshot("A", "a")
    assert store.within.reached("A", "a").read == 0
    store.fold("A", version="2")(Multiplier(2).fold)
    assert store.state("A", "a") == {"n": 6}


def test_a_fold_registered_while_a_snapshot_is_taken_does_not_give_it_its_name(store: SmallStore) -> None:
    def new(state: Any, event: Any) -> Any:
        return {"new": (state or {"new": 0})["new"] + 1}

    def old(state: Any, event: Any) -> Any:
        if event["position"] == 3:
            store.fold("A")(new)
        return {"old": (state or {"old": 0})["old"] + 1}

    store.append("A", "a", [event("x")] * 3)
    store.fold("A", version="old")(old)
    store.snapshot("A", "a")
    store.append("A", "a", [event("x")])
    assert store.state("A", "a") == {"new": 4}


def test_an_upcaster_that_is_registered_later_finds_no_snapshot_of_before(store: SmallStore) -> None:
    store.append("A", "a", [event("Made", n=1)] * 3)
    assert store.snapshot("A", "a")
    store.upcast("Made", 1)(lambda data: {"upcast": data["n"]})
    assert store.state("A", "a") == {"upcast": 1}
    assert store.snapshot("A", "a")
    store.upcast("Made", 1)(lambda data: {"otherwise": data["n"]})
    assert store.state("A", "a") == {"otherwise": 1}


def test_only_some_of_the_newest_snapshots_are_kept(store: SmallStore) -> None:
    for n in range(3 * KEPT):
        store.append("A", "a", [event("x", n=n)])
        store.append("A", "b", [event("x", n=n)])
        assert store.snapshot("A", "a")
    held = sorted(row[2] for row in store.host.holds("events_snapshots"))
    assert held == list(range(2 * KEPT + 1, 3 * KEPT + 1))


def test_of_a_state_that_cannot_be_kept_no_replays_wait_in_line(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, snapshot_events=10)
    folded: list[int] = []
    busy, go_on = threading.Event(), threading.Event()

    @store.fold("T")
    def tuples(state: Any, event: Any) -> Any:
        folded.append(1)
        return {"n": ((state or {"n": (0,)})["n"][0] + 1,)}

    threads = store._parts.snapshots.threads
    threads.submit(lambda: (busy.set(), go_on.wait(90)))
    assert busy.wait(90)
    store.append("T", "a", [event("x")] * 100)
    for _ in range(10):
        store.state("T", "a")
    assert len(folded) == 1000
    go_on.set()
    threads.submit(lambda: None).result(90)
    # One for all who asked, which could not be kept, and none after it.
    assert len(folded) == 1100
    store.state("T", "a")
    threads.submit(lambda: None).result(90)
    assert len(folded) == 1200
    threads.shutdown()


def test_upcasters_know_the_version_in_a_store_of_maps(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, data="map")
    store.upcast("Made", 1)(lambda data: {**data, "one": "1"})
    store.upcast("Made", 2)(lambda data: {**data, "two": "2"})
    store.append("A", "a", [{**event("Made", x="x"), "schema_version": 1}])
    store.append("A", "b", [{**event("Made", x="x"), "schema_version": 2}])
    assert store.state("A", "a") == {"x": "x", "one": "1", "two": "2"}
    assert store.state("A", "b") == {"x": "x", "two": "2"}


def test_upcasters_see_what_was_encrypted_and_leave_no_snapshot_of_it(store: SmallStore) -> None:
    store.register_schema("Made", encrypted=["name"])
    store.append("A", "a", [event("Made", name="Ada Byron")])
    store.upcast("Made", 1)(lambda data: {"first": (data["name"] or "nobody").split()[0]})
    assert store.state("A", "a") == {"first": "Ada"}
    assert not store.snapshot("A", "a")
    store.forget("A", "a")
    assert store.state("A", "a") == {"first": "nobody"}


def test_a_page_is_the_same_as_what_is_read(store: SmallStore) -> None:
    chosen = random.Random(3)
    for n in range(200):
        kind = chosen.choice(["A", "B", "B", "B"])
        store.append(kind, chosen.choice("ab"), [event("x", n=n)])
    whole = store.read().to_pylist()
    for kind, name in ((None, None), ("A", None), ("A", "a"), ("B", "b"), ("C", None), ("A", "c"), (None, "a")):
        fits = [one for one in whole if kind in (None, one["aggregate_type"]) and name in (None, one["aggregate_id"])]
        for since in (0, 1, 77, 199, 200, 2**62):
            for limit in (1, 7, 500):
                after = [one for one in fits if one["position"] > since]
                wanted = Wanted(kind, name, since=since, limit=limit)
                assert store.within.find(wanted) == (after[:limit], len(after) > limit)


def test_a_page_reads_no_more_than_it_needs(store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append_many([{"aggregate_type": "A", "aggregate_id": "a", "events": [event("x")] * 500} for _ in range(4)])
    state = type(store.host.stores["events"].snapshot())
    read: list[int] = []

    def counted(name: str) -> None:
        real = getattr(state, name)

        def run(*given: Any, **named: Any) -> Any:
            found = real(*given, **named)
            read.append(found.rows.num_rows)
            return found

        monkeypatch.setattr(state, name, run)

    for name in ("lookup", "between", "all"):
        counted(name)
    for name in (None, "a"):
        read.clear()
        rows, more = store.within.find(Wanted("A", name, since=1000, limit=10))
        assert ([one["position"] for one in rows], more) == (list(range(1001, 1011)), True)
        assert sum(read) < 40
