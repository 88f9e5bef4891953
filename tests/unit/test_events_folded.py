"""Projections by Python functions: what changed code finds, and what they hold of what was encrypted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from headrace.catalog.catalog import Table
from headrace.catalog.make import make_table
from headrace.events.folded import FoldedProjection
from headrace.intake.table import TableContract
from tests.small_events import SmallStore, event

COLUMNS = StructType(
    [
        StructField("aggregate_id", StringType(), False),
        StructField("n", LongType()),
        StructField("version", LongType(), False),
        StructField("position", LongType(), False),
        StructField("updated_at", TimestampType(), False),
        StructField("state", StringType(), False),
    ]
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallStore:
    """A store beside which the table of the projection lies already, and whose rebuilds run here."""

    def there(self: FoldedProjection, columns: str) -> Table:
        return self._loop.core.catalog.table(self.name)

    def here(self: FoldedProjection, events: Any, columns: Any) -> Any:
        return self._folded_here(events, columns)

    monkeypatch.setattr(FoldedProjection, "_made", there)
    monkeypatch.setattr(FoldedProjection, "_folded_on_spark", here)
    table = make_table(TableContract("p", COLUMNS, ("aggregate_id",)), system=True, kept_for="events")
    return SmallStore(tmp_path, table)


def held(store: SmallStore) -> list[tuple[Any, ...]]:
    return sorted((row[0], row[1], row[2]) for row in store.host.holds("p"))


def adding(step: int) -> Callable[..., Any]:
    return lambda state, event: {"n": (state or {"n": 0})["n"] + step * event["event_data"]["n"]}


def projected(store: SmallStore, fold: Callable[..., Any], position: int, **options: Any) -> FoldedProjection:
    made = store.project("p", "A", "n BIGINT", fold, **options)
    assert made.follower.wait_for(position, 90), made.follower.error
    return made


def test_changed_code_begins_from_nothing_and_the_same_goes_on(store: SmallStore) -> None:
    store.append("A", "a", [event("x", n=1)] * 3)
    store.append("A", "b", [event("x", n=5)])
    projected(store, adding(1), 4)
    assert held(store) == [("a", 3, 3), ("b", 5, 1)]
    store.append("A", "a", [event("x", n=1)])
    again = projected(store, adding(1), 5)
    assert held(store) == [("a", 4, 4), ("b", 5, 1)]
    changed = projected(store, adding(10), 5)
    assert held(store) == [("a", 40, 4), ("b", 50, 1)]
    assert again.follower.is_stopped
    store.append("A", "a", [event("x", n=1)])
    assert changed.follower.wait_for(6, 90)
    assert held(store) == [("a", 50, 5), ("b", 50, 1)]
    # One row says how far the projection is, whatever code it has had.
    assert [row[:2] for row in store.host.holds("events_subscriptions")] == [("projection:p", 6)]
    changed.follower.stop()


def test_rows_of_other_code_serve_until_the_new_ones_are_whole(store: SmallStore) -> None:
    store.append("A", "a", [event("x", n=1)] * 3)
    projected(store, adding(1), 3).follower.stop()
    changed = store.project("p", "A", "n BIGINT", adding(10), live=False)
    assert (changed.position, held(store)) == (0, [("a", 3, 3)])
    epoch = store.host.epoch
    assert changed.rebuild() == 1
    assert (changed.position, held(store), store.host.epoch) == (3, [("a", 30, 3)], epoch + 1)


def test_another_version_begins_from_nothing_and_so_does_what_cannot_be_told_apart(store: SmallStore) -> None:
    class Factor:
        factor = 1

        def fold(self, state: Any, event: Any) -> Any:
            return adding(self.factor)(state, event)

    one = Factor()
    store.append("A", "a", [event("x", n=1)] * 3)
    projected(store, one.fold, 3).follower.stop()
    one.factor = 2
    projected(store, one.fold, 3).follower.stop()
    assert held(store) == [("a", 6, 3)]
    projected(store, one.fold, 3, version="2").follower.stop()
    one.factor = 3
    projected(store, one.fold, 3, version="2").follower.stop()
    assert held(store) == [("a", 6, 3)]
    projected(store, one.fold, 3, version="3").follower.stop()
    assert held(store) == [("a", 9, 3)]


def test_rows_of_which_nobody_says_how_far_they_are_are_folded_anew(store: SmallStore) -> None:
    store.append("A", "a", [event("x", n=1)] * 3)
    projected(store, adding(1), 3).follower.stop()
    store.unsubscribe("projection:p")
    projected(store, adding(1), 3).follower.stop()
    assert held(store) == [("a", 3, 3)]


def keep(state: Any, event: Any) -> Any:
    return {**(state or {}), **event["event_data"]}


def states(store: SmallStore) -> list[Any]:
    return [json.loads(row[5]) for row in store.host.holds("p")]


def test_what_is_encrypted_is_none_for_a_projection_before_and_after_it_is_forgotten(store: SmallStore) -> None:
    store.register_schema("Made", encrypted=["name"])
    store.append("A", "a", [event("Made", name="Ada Byron", n=1)])
    made = projected(store, keep, 1)
    assert states(store) == [{"name": None, "n": 1}]
    store.forget("A", "a")
    made.rebuild()
    made.follower.stop()
    assert states(store) == [{"name": None, "n": 1}]


def test_a_projection_that_opens_what_is_encrypted_says_so_and_forgets_when_it_is_rebuilt(store: SmallStore) -> None:
    store.register_schema("Made", encrypted=["name"])
    store.append("A", "a", [event("Made", name="Ada Byron", n=1)])
    projected(store, keep, 1).follower.stop()
    made = projected(store, keep, 1, opens_encrypted=True)
    assert states(store) == [{"name": "Ada Byron", "n": 1}]
    store.forget("A", "a")
    made.rebuild()
    made.follower.stop()
    assert states(store) == [{"name": None, "n": 1}]


def test_a_fold_that_fails_is_told_and_tried_again(store: SmallStore) -> None:
    fails = [True]

    def fold(state: Any, event: Any) -> Any:
        if fails:
            raise SystemExit("no")
        return adding(1)(state, event)

    store.append("A", "a", [event("x", n=1)])
    made = store.project("p", "A", "n BIGINT", fold)
    while made.follower.error is None:
        made.follower.wait_for(1, 0.02)
    assert made.follower.error == "SystemExit: no"
    fails.clear()
    assert made.follower.wait_for(1, 90)
    made.follower.stop()
    assert held(store) == [("a", 1, 1)]
