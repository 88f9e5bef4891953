"""Rows of an outbox: which of them are events, in what order, each once, and what is parked."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import EventsRejected, LedgerNotWritten, RelationNameError, ViewEvaluationError
from headrace.events import outbox
from headrace.events.outbox import OutboxFollower, append_of, inserted_rows, refuse_no_outbox
from headrace.state.arrow_types import arrow_schema
from headrace.state.delta import empty
from tests.small_engine import COLUMNS, Following, view
from tests.small_events import SmallStore


def row(number: int, **other: Any) -> dict[str, Any]:
    given = {"id": f"r{number}", "aggregatetype": "Order", "aggregateid": "o", "type": "Ordered"}
    return {**given, "payload": json.dumps({"n": number}), **other}


def follower(store: SmallStore) -> OutboxFollower:
    return OutboxFollower(store.loop, "events", "outbox", store.within.call_of_rows)


def ids(store: SmallStore) -> list[str]:
    return [each["event_id"] for each in store.read().to_pylist()]


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


def test_only_the_last_piece_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_PIECE", 2)
    store = SmallStore(tmp_path)
    one = follower(store)

    def full() -> None:
        if len(store.read()) == 2:
            raise LedgerNotWritten("the disk is full")

    store.host.before_commit = full
    rows = [row(n) for n in range(5)]
    with pytest.raises(LedgerNotWritten):
        one.append_rows(rows, 5)
    # The first piece is there, and the others would be lost if the epoch counted as read.
    assert (ids(store), one.position) == (["r0", "r1"], 0)
    store.host.before_commit = lambda: None
    one.append_rows(rows, 5)
    assert (ids(store), one.position) == (["r0", "r1", "r2", "r3", "r4"], 5)


def test_a_parked_row_is_kept_whole_and_replayed_as_an_event(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    one = follower(store)
    one.append_rows([row(1), row(2)], 1)
    one.append_rows([row(7, payload="{", amount=Decimal("9.50"), at=b"x")], 2)
    (parked,) = store.parked("outbox:outbox")
    assert json.loads(parked["outbox_row"]) == row(7, payload="{", amount="9.50", at="eA==")
    assert store.replay_parked("outbox:outbox") == (0, 1)
    assert (ids(store), store.parked()[0]["attempts"]) == (["r1", "r2"], 2)
    given: list[dict[str, Any]] = []

    def mended(was: dict[str, Any]) -> dict[str, Any]:
        given.append(was)
        return {**was, "payload": '{"n": 7}'}

    assert store.replay_parked("outbox:outbox", mended) == (1, 0)
    assert given == [json.loads(parked["outbox_row"])]
    assert (ids(store), store.parked()) == (["r1", "r2", "r7"], [])
    assert store.state("Order", "o") == {"n": 7}


def test_a_row_is_replayed_once_what_refused_it_is_mended(tmp_path: Path) -> None:
    store = SmallStore(tmp_path, unknown_types=False)
    one = follower(store)
    one.append_rows([row(1)], 1)
    assert store.replay_parked("outbox:outbox", lambda was: 1 / 0) == (0, 1)
    assert store.parked()[0]["reason"] == "ZeroDivisionError: division by zero"
    store.register_schema("Ordered")
    # What the function returns counts, and nothing returned leaves the row as it is.
    assert store.replay_parked("outbox:outbox", [].append) == (1, 0)
    assert ids(store) == ["r1"]


def test_rows_whose_names_are_in_capitals_or_that_have_no_id_are_parked_apart(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    rows = [{name.upper(): value for name, value in row(n, payload="{").items()} for n in (1, 2)]
    follower(store).append_rows([*rows, row(3, id=None), row(4, id=None)], 1)
    found = [each["event_id"] for each in store.parked()]
    assert {"r1", "r2"} < set(found)
    assert len(set(found)) == 4


def test_what_is_no_event_costs_no_epoch_of_its_own(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    one = follower(store)
    one.append_rows([*(row(n) for n in range(500)), row(500, payload="{"), row(501, type=None)], 1)
    assert (store.host.epoch, len(store.read()), len(store.parked()), one.position) == (1, 500, 2, 1)
    one.append_rows([row(502, payload="{")], 2)
    assert (store.host.epoch, len(store.parked()), one.position) == (2, 3, 2)


def test_a_row_that_a_view_fails_on_is_parked_and_the_others_are_taken(tmp_path: Path) -> None:
    tries: list[int] = []

    def picky(epoch: Any) -> Any:
        found = epoch.delta_of("events").rows.column(0).to_pylist()
        tries.append(len(found))
        if "r13" in found:
            raise ViewEvaluationError("it cannot be computed", view="v", expression="1 / n")
        return empty(arrow_schema([field.dataType for field in COLUMNS.fields]))

    store = SmallStore(tmp_path, view("v", "events", rule=Following(picky)))
    one = follower(store)
    one.append_rows([row(n) for n in range(20)], 5)
    assert ids(store) == [f"r{n}" for n in range(20) if n != 13]
    assert [each["event_id"] for each in store.parked()] == ["r13"]
    assert store.parked()[0]["reason"] == "it cannot be computed"
    assert one.position == 5
    assert len(tries) < 20


def test_what_is_wrong_with_the_machine_parks_nothing(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    one = follower(store)

    def full() -> None:
        raise LedgerNotWritten("the disk is full")

    store.host.before_commit = full
    with pytest.raises(LedgerNotWritten):
        one.append_rows([row(1), row(2, payload="{")], 1)
    store.host.before_commit = lambda: None
    assert (ids(store), store.parked(), one.position) == ([], [], 0)


def test_numbers_are_ordered_as_numbers() -> None:
    for kind in (int, Decimal):
        found = inserted_rows([row(0, id=kind(n)) for n in (10, 8, 11, 9)])
        assert [one["id"] for one in found] == [8, 9, 10, 11]
    assert [one["ID"] for one in inserted_rows([{"ID": n} for n in (10, 9)])] == [9, 10]
    assert [one["id"] for one in inserted_rows([row(0, id=one) for one in ("b", 2, "a")])] == [2, "a", "b"]


@pytest.mark.parametrize("log_order", ["7 0016B3", None])
def test_raw_rows_of_one_place_in_the_log_are_ordered_by_topic_partition_and_offset(log_order: str | None) -> None:
    def raw(partition: int, offset: int) -> dict[str, Any]:
        name = f"db.outbox-{partition}-{offset}"
        after = json.dumps(row(offset, id=name))
        return {"operation": "read", "after": after, "log_order": log_order, "position": name, "event_id": name}

    found = inserted_rows([raw(10, 1), *(raw(9, n) for n in (12, 7, 100))])
    assert [one["id"].rpartition("outbox-")[2] for one in found] == ["9-7", "9-12", "9-100", "10-1"]


def test_an_update_of_a_row_is_no_event(tmp_path: Path) -> None:
    store = SmallStore(tmp_path)
    one = follower(store)
    one.append_rows(list(inserted_rows([row(1, sent=False, _change_type="insert")])), 1)
    changed = [
        row(1, sent=False, _change_type="update_preimage"),
        row(1, sent=True, _change_type="update_postimage"),
        row(1, sent=True, _change_type="delete"),
    ]
    one.append_rows(list(inserted_rows(changed)), 2)
    assert (ids(store), store.parked(), one.position) == (["r1"], [], 2)
