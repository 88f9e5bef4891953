"""The parts of changefeeds without Spark: positions, order, options, keys that wait."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from headrace.errors import FeedError, LedgerError
from headrace.feeds.batch import Batch, EventForm, Events, Mark
from headrace.feeds.blocked import Blocked
from headrace.feeds.cursor import change_events, scan_events
from headrace.feeds.delivered import DeliveredSequences
from headrace.feeds.files import FILES
from headrace.feeds.keyed_state import State
from headrace.feeds.options import read_options
from headrace.feeds.progress import Progress, ProgressFiles
from headrace.feeds.sink import EventsRefused
from headrace.reading.history import EpochChanges
from headrace.state.change_images import change_images
from headrace.state.delta import consolidate, weights_of
from headrace.state.snapshot import holding
from headrace.storage.objects import Location

AT = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = StructType([StructField("id", LongType(), False), StructField("n", IntegerType())])
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32())])
PLAIN = pa.schema([("c0", pa.int64()), ("c1", pa.int32())])


def test_a_new_owner_begins_at_the_furthest_and_an_old_one_takes_nothing_back(location: Location) -> None:
    old, new = ProgressFiles(location, "f", 3), ProgressFiles(location, "f", 4)
    assert old.read() is None
    old.write(Progress(Mark(5, 2, 20), delivered=20))
    assert new.read() == Progress(Mark(5, 2, 20), delivered=20)
    new.write(Progress(Mark(9, 1, 31), delivered=31))
    # It was stopped, and does not know.
    old.write(Progress(Mark(5, 3, 21), delivered=21))
    assert ProgressFiles(location, "f", 5).read() == Progress(Mark(9, 1, 31), delivered=31)
    last = ProgressFiles(location, "f", 6)
    last.write(Progress(Mark(9, 1, 31), delivered=31))
    assert [one.name for one in last.folder.iterdir()] == [f"{6:020d}.json"]
    last.forget()
    assert last.read() is None


def test_a_position_that_cannot_be_read_is_told(tmp_path: Any) -> None:
    files = ProgressFiles(tmp_path, "f", 1)
    files.write(Progress(Mark(1, None, 1)))
    (files.folder / f"{2:020d}.json").write_text("{")
    with pytest.raises(LedgerError, match="cannot be read"):
        files.read()


def test_marks_are_ordered_by_what_was_told() -> None:
    # All was told anew at the same epoch.
    assert Mark(7, 1, 11) > Mark(7, 9, 10)
    assert Mark(8, None, 10) > Mark(7, 9, 10)
    assert not Mark(7, 9, 10) > Mark(7, 9, 10)


def changes(rows: list[tuple[int, int | None, int]], key: list[int]) -> EpochChanges:
    table = pa.table([pa.array([one[0] for one in rows], pa.int64()), pa.array([one[1] for one in rows], pa.int32())],
                     schema=PLAIN)  # fmt: skip
    positions, kinds = change_images(table, weights_of([one[2] for one in rows]), key)
    taken = table.take(pa.array(positions))
    return EpochChanges(7, AT, kinds, pa.table(taken.columns, schema=ARROW))


def told(events: Events) -> list[Any]:
    rows, olds = events.rows.to_pylist(), events.old_rows.to_pylist()
    return [
        (operation, row["id"], row["n"], old["n"], place)
        for operation, row, old, place in zip(events.operations, rows, olds, events.places.tolist(), strict=True)
    ]


@pytest.mark.parametrize("key", [[0], []], ids=["keyed", "bag"])
def test_events_of_an_epoch_have_one_order_whatever_order_its_rows_have(key: list[int]) -> None:
    rows = [(1, 10, -1), (1, 11, 1), (2, 20, -1), (3, 30, 1), (4, None, -1), (4, 1, 1), (5, 5, 1)]
    if not key:
        rows.append((9, 9, 3))
    expected = told(change_events(changes(rows, key), key or [0, 1]))
    dice = random.Random(3)
    for _ in range(10):
        dice.shuffle(rows)
        assert told(change_events(changes(rows, key), key or [0, 1])) == expected
    if key:
        assert {one[:4] for one in expected} == {
            ("UPDATE", 1, 11, 10), ("DELETE", 2, 20, 20), ("INSERT", 3, 30, None), ("UPDATE", 4, 1, None),
            ("INSERT", 5, 5, None),
        }  # fmt: skip
    else:
        assert [one[:3] for one in expected].count(("INSERT", 9, 9)) == 3
    assert [one[4] for one in expected] == list(range(1, len(expected) + 1))


def test_a_scan_has_one_order_and_goes_on_in_its_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows_of(ids: range, weight: int) -> Any:
        columns = [pa.array(ids, pa.int64()), pa.array([one % 7 for one in ids], pa.int32())]
        return consolidate(pa.table(columns, schema=PLAIN), weights_of([weight] * len(ids)))

    def told_after(state: Any, after: int) -> list[tuple[int, int]]:
        pieces = list(scan_events(state, COLUMNS, 7, AT, after))
        ids = [one for piece in pieces for one in piece.rows.column("id").to_pylist()]
        return list(zip(ids, np.concatenate([piece.places for piece in pieces] or [np.zeros(0)]).tolist(), strict=True))

    whole = holding(PLAIN, rows_of(range(500), 1))
    # The same in other parts, with rows that came and went, and others twice.
    parted = holding(PLAIN, rows_of(range(300), 1)).plus(rows_of(range(300, 600), 1)).plus(rows_of(range(500, 600), -1))
    expected = told_after(whole, 0)
    assert sorted(one for one, _ in expected) == list(range(500))
    monkeypatch.setattr("headrace.feeds.cursor._PIECE", 64)
    assert told_after(parted, 0) == expected
    for after in (1, 63, 64, 65, 499):
        assert told_after(parted, after) == expected[after:]
    assert told_after(parted, 500) == []
    doubled = parted.plus(rows_of(range(500), 1))
    assert [one for one, _ in told_after(doubled, 0)] == [one for one, _ in expected for _ in range(2)]


def test_options_are_read_or_refused() -> None:
    read = read_options({"batch_size": "7", "resolved": "500ms", "include_old_values": "TRUE", "cursor": 5}, FILES)
    assert (read.batch_size, read.resolved, read.include_old_values, read.initial_scan) == (7, 0.5, True, "no")
    assert read_options({"resolved": True, "flush_interval_ms": 20}, FILES).resolved == 0.02
    for wrong in (
        {"batch_size": True},
        {"batch_size": "9" * 5000},
        {"max_retries": -1},
        {"on_error": "stop"},
        {"include_old_values": "maybe"},
    ):
        with pytest.raises(FeedError, match="cannot be"):
            read_options(wrong, FILES)


def batch(first: int, *ids: int) -> Batch:
    rows = pa.table([pa.array(ids, pa.int64()), pa.array(ids, pa.int32())], schema=ARROW)
    events = Events.of_epoch(first, AT, "INSERT", rows, rows)
    return Batch.of(EventForm("f", "t", COLUMNS, ("id",)), events, Mark(first, len(ids), first + len(ids) - 1))


def test_a_refused_event_holds_back_its_key_until_it_is_parked() -> None:
    blocked = Blocked(max_retries=1)
    blocked.refuse(batch(1, 1, 2, 3), EventsRefused({1: "no"}))
    assert blocked.first_mark() == Mark(1, 1, 1)
    rest = blocked.parted(batch(4, 2, 3, 2))
    assert rest is not None
    assert (list(rest.sequences), rest.rows.column("id").to_pylist()) == ([5], [3])
    assert blocked.count == 3
    parked: list[tuple[int, int]] = []
    sent: list[int] = []

    def deliver(one: Batch) -> None:
        if one.sequences[0] == 2:
            raise EventsRefused({0: "still no"})
        sent.extend(one.sequences)

    for waiting in blocked.keys.values():
        waiting.due_at = 0
    blocked.retry(deliver, lambda given_up: parked.extend((one.batch.sequences[0], one.attempts) for one in given_up))
    assert (parked, sent, blocked.count) == ([(2, 2)], [4, 6], 0)


def test_a_mark_before_the_first_event_of_an_epoch_is_past_the_epoch_before() -> None:
    assert batch(4, 2, 3).mark_before(0) == Mark(3, None, 3)
    assert batch(4, 2, 3).mark_before(1) == Mark(4, 1, 4)


def test_states_that_earlier_releases_stored_in_redis_and_dynamodb_are_read() -> None:
    told = DeliveredSequences(9, ((4, 4),), {4: "k"})
    stored = {"fence": 2, "mark": {"epoch": 5, "event": 0, "sequence": 3}, "told": told.as_json()}
    state = State(2, Mark(5, None, 3), told)
    assert State.from_json(json.dumps({**stored, "scanning": False})) == state
    assert State.from_json(json.dumps({**stored, "scanning": True})) == replace(state, scan_after=0)
    of_dynamodb = {**stored, "version": 7, "scan_after": 3, "has_parked": True}
    newer = replace(state, version=7, scan_after=3, has_parked=True)
    assert State.from_json(json.dumps(of_dynamodb)) == newer == State.from_json(newer.as_json())
    # They read what this release stores, too.
    assert json.loads(newer.as_json()) == {**of_dynamodb, "scanning": True}
