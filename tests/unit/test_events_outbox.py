"""Rows of an outbox: which of them are events, in what order, each once, and what is parked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import EventsRejected, RelationNameError
from headrace.events.outbox import OutboxFollower, append_of, inserted_rows, refuse_no_outbox
from tests.small_events import SmallStore


def row(number: int, **other: Any) -> dict[str, Any]:
    given = {"id": f"r{number}", "aggregatetype": "Order", "aggregateid": "o", "type": "Ordered"}
    return {**given, "payload": json.dumps({"n": number}), **other}


def follower(store: SmallStore) -> OutboxFollower:
    return OutboxFollower(
        store.loop,
        "events",
        "outbox",
        lambda rows, kept: store.call_many([append_of("events", one) for one in rows], kept),
    )


def test_rows_are_appended_once_however_often_they_are_read(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    one = follower(store)
    one.append_rows([row(1), row(2, trace="x")], 5)
    assert one.position == 5
    one.append_rows([row(1), row(2, trace="x"), row(3)], 7)
    one.append_rows([row(3)], 8)
    assert one.position == 8
    found = store.read().to_pylist()
    assert [(each["event_id"], each["position"]) for each in found] == [("r1", 1), ("r2", 2), ("r3", 3)]
    assert found[1]["metadata"] == '{"outbox":{"trace":"x"}}'
    assert store.state("Order", "o") == {"n": 3}


def test_what_is_no_event_is_parked_and_the_others_are_taken(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    one = follower(store)
    one.append_rows([row(1), row(2, payload="{"), row(3, type=None), row(4), row(1, payload='{"n": "other"}')], 9)
    assert [each["event_id"] for each in store.read().to_pylist()] == ["r1", "r4"]
    assert sorted(each["event_id"] for each in store.parked()) == ["r1", "r2", "r3"]
    assert one.position == 9


def test_of_raw_rows_those_that_were_written_come_in_the_order_of_the_log() -> None:
    raw = [
        {"operation": "create", "after": json.dumps(row(2)), "log_order": "b", "position": "2", "event_id": "y"},
        {"operation": "create", "after": json.dumps(row(1)), "log_order": "a", "position": "1", "event_id": "x"},
        {"operation": "delete", "after": None, "log_order": "c", "position": "3", "event_id": "z"},
        {"operation": "update", "after": json.dumps(row(1)), "log_order": "d", "position": "4", "event_id": "w"},
    ]
    assert [one["id"] for one in inserted_rows(raw)] == ["r1", "r2"]


def test_a_payload_that_is_no_object_is_kept_under_its_name() -> None:
    assert append_of("events", row(1, payload="[1]"))["events"][0]["event_data"] == {"payload": [1]}
    assert append_of("events", row(1, payload={"a": 1}))["events"][0]["event_data"] == {"a": 1}
    with pytest.raises(EventsRejected, match="no id"):
        append_of("events", row(1, id=None))


def test_what_is_no_outbox_is_told() -> None:
    refuse_no_outbox(["ID", "aggregateType", "aggregateid", "type", "payload", "more"], "t")
    refuse_no_outbox(["event_id", "operation", "before", "after"], "s_raw")
    with pytest.raises(RelationNameError, match="t is no outbox"):
        refuse_no_outbox(["id", "payload"], "t")
