"""The stores of a home: what goes on after definitions and after a home was opened, and what a drop takes with it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.epoch.calls import Call
from headrace.errors import RelationNameError
from headrace.events.define import create_event_store, drop_event_store
from headrace.events.erasure import Keys
from headrace.events.outbox import refuse_column_gone
from headrace.events.store import open_store_of
from headrace.events.stores import EventStores
from headrace.events.tables import store_tables
from headrace.sql.syntax import CreateEventStore, DropColumn, DropEventStore, RenameColumn
from tests.small_engine import table
from tests.small_events import OPTIONS, SmallStore, event
from tests.waiting import until

CREATE = CreateEventStore(sql="", line=1, column=1, name="fresh", options=(), if_not_exists=False)
DROP = DropEventStore(sql="", line=1, column=1, name="events", if_exists=False)
FOLLOWED = {"subscription": "outbox:outbox", "position": 3, "code": None}


@pytest.fixture
def store(tmp_path: Path) -> SmallStore:
    found = SmallStore(tmp_path, table("outbox"))
    found.host.path = tmp_path  # type: ignore[attr-defined]
    return found


@pytest.fixture
def stores(store: SmallStore) -> Iterator[EventStores]:
    found = EventStores(store.loop)
    store.loop.defined = found.resume
    yield found
    found.close()


def test_a_followed_relation_that_is_no_outbox_any_more_stops_neither_definitions_nor_openings(
    store: SmallStore, stores: EventStores
) -> None:
    store.loop.submit(Call({"events_subscriptions": [{"insert": {**FOLLOWED, "updated_at": store.host.tick()}}]}))
    assert store.loop.define(lambda: "committed") == "committed"
    (follower,) = stores.get("events")._parts.followers
    until(lambda: follower.error is not None)
    assert follower.error == "outbox is no outbox"
    # It is there once, however many definitions come.
    store.loop.define(lambda: None)
    assert stores.get("events")._parts.followers == [follower]


@pytest.mark.parametrize(
    "statement",
    [
        RenameColumn(sql="", line=1, column=1, table="outbox", old="id", new="a", new_spelled="a"),
        DropColumn(sql="", line=1, column=1, table="outbox", column_name="payload", if_exists=False),
    ],
)
def test_columns_of_an_outbox_that_is_followed_stay(store: SmallStore, statement: Any) -> None:
    core: Any = store.host
    refuse_column_gone(core, statement)
    store.loop.submit(Call({"events_subscriptions": [{"insert": {**FOLLOWED, "updated_at": store.host.tick()}}]}))
    with pytest.raises(RelationNameError, match=r"column (id|payload) of outbox") as refused:
        refuse_column_gone(core, statement)
    assert 'unsubscribe("outbox:outbox")' in refused.value.hint
    refuse_column_gone(core, replace(statement, table="other"))
    others = {"old": "n"} if isinstance(statement, RenameColumn) else {"column_name": "n"}
    refuse_column_gone(core, replace(statement, **others))


def test_whatever_fails_when_outboxes_are_followed_again_is_logged_and_the_home_goes_on(
    store: SmallStore, stores: EventStores, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(store: str) -> None:
        raise ValueError("of its own")

    monkeypatch.setattr(stores, "_resume", broken)
    with caplog.at_level(logging.ERROR, "headrace.events"):
        assert store.loop.define(lambda: "committed") == "committed"
    assert "the outboxes of event store events are not followed" in caplog.text


def test_an_outbox_is_followed_again_after_its_follower_was_stopped(store: SmallStore, stores: EventStores) -> None:
    first = open_store_of(stores.get("events")).followed_outbox("outbox")
    assert open_store_of(stores.get("events")).followed_outbox("outbox") is first
    first.stop()
    second = open_store_of(stores.get("events")).followed_outbox("outbox")
    assert second is not first
    assert second._thread.is_alive()


def test_all_are_told_to_stop_before_any_is_waited_for(store: SmallStore, stores: EventStores) -> None:
    one = stores.get("events")
    one.append("A", "a", [event("x")])
    followers = [one.subscribe(f"s{n}", lambda given: None) for n in range(3)]
    stopped: list[list[bool]] = []
    for each in followers:
        each.stop = lambda: stopped.append([other.is_stopped for other in followers])  # type: ignore[method-assign]
    stores.close()
    assert stopped == [[True] * 3] * 3


def test_a_dropped_store_takes_its_followers_its_code_and_its_keys_with_it(
    store: SmallStore, stores: EventStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = stores.get("events")
    one.register_schema("Made", encrypted=["n"])
    one.append("A", "a", [event("Made", n=1)])
    one.fold("A")(lambda state, event: {"old": "fold"})
    given: list[Any] = []
    follower = one.subscribe("mail", given.append)
    assert follower.wait_for(1, 90)
    keys = tmp_path / "event-keys" / "events"
    assert len(list(keys.iterdir())) == 1

    def dropped(core: Any, tables: Any, _: Any) -> None:
        for each in tables:
            core.catalog = core.catalog.without(each.name)

    monkeypatch.setattr("headrace.events.define.drop_tables", dropped)
    core: Any = store.host
    store.loop.define(lambda: drop_event_store(core, DROP))
    until(lambda: not follower._thread.is_alive())
    assert list(keys.iterdir()) == []
    store.host.catalog = store.host.catalog.having(*store_tables("events", OPTIONS))
    again = stores.get("events")
    again.append("A", "z", [event("New")])
    time.sleep(0.1)
    assert len(given) == 1
    assert again.state("A", "z") == {}
    assert store.host.holds("events_subscriptions") == set()


def test_a_new_store_has_none_of_the_keys_that_a_crash_left_behind(
    store: SmallStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Keys(tmp_path, "fresh").of("0" * 64)
    monkeypatch.setattr("headrace.events.define.adopt", lambda core, made: None)
    core: Any = SimpleNamespace(path=tmp_path, catalog=store.host.catalog)
    create_event_store(core, CREATE)
    assert list((tmp_path / "event-keys" / "fresh").iterdir()) == []


def test_keys_that_cannot_be_deleted_do_not_fail_a_drop_that_is_committed(
    store: SmallStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(self: Keys) -> None:
        raise PermissionError("read-only folder")

    monkeypatch.setattr(Keys, "forget_all", refused)
    monkeypatch.setattr("headrace.events.define.drop_tables", lambda *_: None)
    core: Any = store.host
    with caplog.at_level(logging.WARNING, "headrace.events"):
        drop_event_store(core, DROP)
    assert "keys of the dropped event store events are still there" in caplog.text
