"""Encrypted fields: whose key it is, when it is made, and what forgetting it leaves."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.access.audit import Audit
from headrace.errors import ChangesRejected, EventsRejected, EventTypeTaken, VersionConflict
from tests.small_engine import table
from tests.small_events import SmallStore, event, named


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    made = SmallStore(tmp_path, table("t"))
    made.register_schema("Made", encrypted=["n"])
    return made


def test_an_aggregate_shares_its_key_with_no_other(store: SmallStore) -> None:
    store.append("A/B", "c", [event("Made", n="one")])
    store.append("A", "B/c", [event("Made", n="two")])
    assert store.forget("A/B", "c")
    assert store.state("A/B", "c") == {"n": None}
    assert store.state("A", "B/c") == {"n": "two"}


def test_a_named_subject_is_never_an_aggregate(store: SmallStore) -> None:
    store.register_schema("Of", encrypted=["n"], subject="who")
    store.append("A", "c", [event("Made", n="one")])
    store.append("A", "d", [event("Of", n="two", who="A/c")])
    assert store.forget_subject("A/c")
    assert (store.state("A", "c"), store.state("A", "d")) == ({"n": "one"}, {"n": None, "who": "A/c"})


def test_what_was_encrypted_under_an_older_name_can_be_forgotten(store: SmallStore, tmp_path: Path) -> None:
    import hashlib

    store.append("A", "c", [event("Made", n="one")])
    (file,) = (tmp_path / "event-keys" / "events").iterdir()
    file.rename(file.with_name(f"{hashlib.sha256(b'A/c').hexdigest()}.json"))
    assert store.forget("A", "c")
    assert not list((tmp_path / "event-keys" / "events").iterdir())


def test_an_event_that_is_in_line_while_its_subject_is_forgotten_can_be_read(store: SmallStore) -> None:
    store.append("A", "a", [event("Made", n=1)])
    waiting = store.within.call("A", "a", [event("Made", n=2)])
    store.forget("A", "a")
    store.loop.submit(waiting)
    assert store.state("A", "a") == {"n": 2}


def test_forgetting_waits_for_the_epoch_that_is_under_way(store: SmallStore) -> None:
    over: list[str] = []

    def forget() -> None:
        store.forget("A", "a")
        over.append("forgotten")

    thread = threading.Thread(target=forget)

    def commit() -> None:
        store.host.before_commit = lambda: None
        thread.start()
        time.sleep(0.1)
        over.append("committed")

    store.host.before_commit = commit
    store.append("A", "a", [event("Made", n=1)])
    thread.join(90)
    assert over == ["committed", "forgotten"]


def test_an_event_that_was_forgotten_is_the_same_when_it_comes_again(store: SmallStore) -> None:
    store.append("A", "a", [named("i", "Made", n=1, m=2)])
    store.forget("A", "a")
    assert store.append("A", "a", [named("i", "Made", n=1, m=2)]).version == 1
    with pytest.raises(EventsRejected, match="another event"):
        store.append("A", "a", [named("i", "Made", n=1, m=3)])
    with pytest.raises(EventsRejected, match="another event"):
        store.append("A", "a", [named("i", "Made", m=2)])
    assert not store.forget("A", "a")


def test_one_that_is_not_forgotten_is_compared_to_the_digit(store: SmallStore) -> None:
    store.append("A", "a", [named("i", "Made", n=Decimal("1.10"))])
    assert store.append("A", "a", [named("i", "Made", n=Decimal("1.10"))]).version == 1
    with pytest.raises(EventsRejected, match="another event"):
        store.append("A", "a", [named("i", "Made", n=Decimal("1.1"))])


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda store: store.append("A", "a", [event("Made", n=1)], 5), VersionConflict),
        (
            lambda store: store.append_many(
                [
                    {"aggregate_type": "A", "aggregate_id": "a", "events": [event("Made", n=1)]},
                    {"aggregate_type": "A", "aggregate_id": "b", "events": [event("Made", n=1)], "expected": 5},
                ]
            ),
            VersionConflict,
        ),
        (lambda store: store.append("A", "a", [event("Made", n="\ud800")]), ChangesRejected),
    ],
    ids=["another version", "another version of the second", "no text"],
)
def test_what_is_refused_leaves_no_key(store: SmallStore, refused: Callable[[Any], Any], error: Any) -> None:
    with pytest.raises(error):
        refused(store)
    assert not store.forget("A", "a")


def test_a_key_that_was_deleted_elsewhere_is_not_used_any_more(store: SmallStore, tmp_path: Path) -> None:
    store.append("A", "a", [event("Made", n="one")])
    assert store.state("A", "a") == {"n": "one"}
    (file,) = (tmp_path / "event-keys" / "events").iterdir()
    file.unlink()
    assert store.state("A", "a") == {"n": None}
    assert json.loads(store.read().to_pylist()[0]["event_data"]) == {"n": None}
    store.append("A", "a", [event("Made", n="two")])
    assert store.state("A", "a") == {"n": "two"}
    assert [json.loads(row["event_data"])["n"] for row in store.read().to_pylist()] == [None, "two"]


def test_keys_are_for_their_user_alone(store: SmallStore, tmp_path: Path) -> None:
    store.append("A", "a", [event("Made", n="one")])
    folder = tmp_path / "event-keys"
    modes = {path.stat().st_mode & 0o777 for path in (folder, folder / "events")}
    assert modes == {0o700}
    assert {path.stat().st_mode & 0o777 for path in (folder / "events").iterdir()} == {0o600}


def test_a_key_is_looked_for_once_in_a_call(store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("A", "a", [event("Made", n=i) for i in range(50)])
    keys, looked = store._parts.keys, list[str]()  # pyright: ignore[reportPrivateUsage]
    find, of = keys.find, keys.of
    monkeypatch.setattr(keys, "find", lambda name: [looked.append(name), find(name)][1])  # pyright: ignore
    monkeypatch.setattr(keys, "of", lambda name: [looked.append(name), of(name)][1])  # pyright: ignore
    assert len(store.read()) == 50
    store.append("A", "a", [event("Made", n=i) for i in range(50)])
    assert len(looked) == 2


def test_forgetting_and_registering_are_in_the_audit_trail(store: SmallStore, tmp_path: Path) -> None:
    store.append("A", "a", [event("Made", n=1)])
    store.forget("A", "a")
    store.forget_subject("ada@example.org")
    with pytest.raises(EventTypeTaken):
        store.register_schema("Made", encrypted=["m"])
    noted = [(one["what"], one["outcome"]) for one in Audit(tmp_path).entries()]
    assert noted[:2] == [
        ("CREATE EVENT TYPE store=events event_type=Made version=1", "done"),
        ("FORGET store=events aggregate_type=A aggregate_id=a", "done"),
    ]
    assert noted[2][0].startswith("FORGET store=events subject=")
    assert "ada" not in noted[2][0]
    assert noted[3][1] == "event_type_taken"


def test_of_two_that_register_a_version_at_once_one_is_refused(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    heard: list[Any] = []

    def register() -> None:
        try:
            heard.append(store.register_schema("X", {"type": "object", "required": ["b"]}).epoch)
        except EventTypeTaken as error:
            heard.append(error)

    thread = threading.Thread(target=register)

    def commit() -> None:
        store.host.before_commit = lambda: None
        thread.start()
        time.sleep(0.2)

    store.host.before_commit = commit
    store.register_schema("X", {"type": "object", "required": ["a"]})
    thread.join(90)
    assert isinstance(heard[0], EventTypeTaken)
    (held,) = store.host.holds("events_types")
    assert '"a"' in held[2]


def test_types_are_read_again_only_when_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.events import define

    store = SmallStore(tmp_path)
    store.register_schema("X", {"type": "object"})
    read: list[int] = []
    plain = define._read_types  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(define, "_read_types", lambda state: [read.append(1), plain(state)][1])  # pyright: ignore
    for _ in range(20):
        store.append("A", "a", [event("X")])
    before = len(read)
    store.register_schema("Y", {"type": "object", "required": ["a"]})
    with pytest.raises(EventsRejected, match="'a' is a required"):
        store.append("A", "a", [event("Y")])
    assert before <= 1
    assert len(read) > before
