"""The calls of one epoch: each on top of those before it, all of a call or nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from headrace.epoch.batch import Batch
from headrace.epoch.bulk import Bulk
from headrace.epoch.work import Work
from headrace.errors import ChangesRejected, RelationNameError
from tests.small_engine import Host, table, view

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def host() -> Host:
    return Host(table("t"), table("bag", key=()), table("s", sequence="n"), view("v", "t"), view("w", "bag"))


@pytest.fixture
def batch(host: Host) -> Batch:
    return Batch(host.catalog, Work(host.stores, 1000), NOW, timedelta(days=1))


def put(number: int, n: int | None = 0) -> Any:
    return {"insert": {"id": number, "n": n}}


def bulk(*numbers: int, removed: tuple[int, ...] = ()) -> Bulk:
    def columns(ids: tuple[int, ...]) -> pa.Table:
        return pa.table({"c0": pa.array(ids, pa.int64()), "c1": pa.array([7] * len(ids), pa.int32())})

    return Bulk(columns(removed), columns(numbers))


def held(batch: Batch, name: str) -> dict[Any, int]:
    """What a table holds after the accepted calls; before them it was empty."""
    net = batch.deltas().get(name)
    if net is None:
        return {}
    columns = [column.to_pylist() for column in net.rows.columns]
    return dict(zip(zip(*columns, strict=True), net.weights.tolist(), strict=True))


def test_a_call_counts_what_it_applied(batch: Batch) -> None:
    taken = batch.take({"t": [put(1), put(2)], "bag": [put(1)]})
    assert (taken.applied, taken.stale) == ({"t": 2, "bag": 1}, {"t": 0, "bag": 0})
    assert (taken.dead, taken.rejections) == ({"t": 0, "bag": 0}, ())
    assert held(batch, "t") == {(1, 0): 1, (2, 0): 1}


def test_a_call_that_fails_in_one_table_leaves_no_other_changed(batch: Batch) -> None:
    batch.take({"t": [put(1)]})
    with pytest.raises(ChangesRejected) as rejected:
        batch.take({"t": [put(1, 5), put(2)], "bag": [{"delete": {"id": 9, "n": 9}}], "s": [put(1, None)]})
    assert {one.table for one in rejected.value.rejections} >= {"bag"}
    assert held(batch, "t") == {(1, 0): 1}
    assert held(batch, "bag") == {}
    batch.take({"t": [put(2)]})
    assert {name: len(delta) for name, delta in batch.deltas().items()}["t"] == 2


def test_an_unknown_table_rejects_the_whole_call(batch: Batch) -> None:
    with pytest.raises(RelationNameError):
        batch.take({"t": [put(1)], "nowhere": [put(1)]})
    assert held(batch, "t") == {}


def test_whole_columns_and_single_rows_lie_on_top_of_each_other(batch: Batch) -> None:
    batch.take({"t": [put(1), put(2)]})
    batch.take({"t": bulk(2, 3)})
    batch.take({"t": [{"delete": {"id": 3}}, put(1, 9)]})
    assert held(batch, "t") == {(1, 9): 1, (2, 7): 1}
    net = batch.deltas()["t"]
    assert sorted(zip(net.rows.column(0).to_pylist(), net.weights.tolist(), strict=True)) == [(1, 1), (2, 1)]


def test_a_call_undone_after_whole_columns_gives_them_back(batch: Batch) -> None:
    batch.take({"t": [put(1)]})
    with pytest.raises(ChangesRejected):
        batch.take({"t": bulk(1, 2), "bag": [{"delete": {"id": 9, "n": 9}}]})
    assert held(batch, "t") == {(1, 0): 1}


def test_a_table_and_the_views_over_it_are_known_to_change(batch: Batch) -> None:
    batch.take({"bag": [put(1)]})
    assert [name for name in ("t", "bag", "s", "v", "w") if batch.changes(name)] == ["bag", "w"]
    batch.take({"t": [put(1)]})
    assert [name for name in ("t", "bag", "s", "v", "w") if batch.changes(name)] == ["t", "bag", "v", "w"]


def test_a_change_that_came_and_went_changes_nothing(batch: Batch) -> None:
    batch.take({"t": [put(1)]})
    batch.take({"t": [{"delete": {"id": 1}}]})
    assert not batch.changes("t")
    assert not batch.changes("v")


def test_late_changes_are_stale_also_behind_a_delete_of_the_same_epoch(batch: Batch) -> None:
    batch.take({"s": [put(1, 5)]})
    batch.take({"s": [{"delete": {"id": 1, "n": 7}}]})
    late = batch.take({"s": [put(1, 6)]})
    assert (late.applied, late.stale) == ({"s": 0}, {"s": 1})
    assert held(batch, "s") == {}
    assert len(batch.deltas()["s#tombstones"]) == 1


def test_changes_that_stand_each_for_itself_are_taken_but_for_those_rejected(batch: Batch) -> None:
    bad, unknown = {"insert": {"id": "no", "n": 1}}, {"delete": {"id": 9, "n": 9}}
    taken = batch.take({"t": [put(1), bad, put(2)], "bag": [put(1), unknown]}, each=True)
    assert (taken.applied, taken.dead) == ({"t": 2, "bag": 1}, {"t": 1, "bag": 1})
    assert [(one.table, one.index) for one in taken.rejections] == [("t", 1), ("bag", 1)]
    assert [one.change for one in taken.rejections] == [bad, unknown]
    assert held(batch, "t") == {(1, 0): 1, (2, 0): 1}
    assert held(batch, "bag") == {(1, 0): 1}


def test_an_update_of_a_row_that_was_refused_is_refused_alone(batch: Batch) -> None:
    changes = [
        {"insert": {"id": 1, "n": "no"}},
        {"update": {"id": 1}},
        {"update": {"id": 2}},
        put(2),
        {"update": {"id": 2}},
    ]
    taken = batch.take({"t": changes}, each=True)
    assert [one.index for one in taken.rejections] == [0, 1, 2]
    assert held(batch, "t") == {(2, 0): 1}


def test_a_batch_goes_back_to_a_mark(batch: Batch) -> None:
    batch.take({"t": [put(1)]})
    mark = batch.mark()
    batch.take({"t": [put(1, 5), put(2)], "bag": [put(3)]})
    batch.rollback(mark)
    assert held(batch, "t") == {(1, 0): 1}
    assert held(batch, "bag") == {}
