"""The work of an epoch: views in the order of their reading, side by side where they can; and who is to blame."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.epoch import work as works
from headrace.epoch.blame import with_guilty_row
from headrace.epoch.bulk import Bulk, bulk_delta
from headrace.epoch.work import Work, follow
from headrace.errors import ChangesRejected, ViewEvaluationError, WorkFailed
from headrace.rules.base import TooLarge
from headrace.state.delta import Delta, consolidate
from tests.small_engine import THREADS, Following, Host, rows, table, view

NO_FRAMES: Any = None


def delta_of(host: Host, *pairs: tuple[int, int], weight: int = 1) -> Delta:
    ids, numbers = pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs], pa.int32())
    schema = host.stores["t"].schema
    return consolidate(pa.table([ids, numbers], schema=schema), np.full(len(pairs), weight, dtype=np.int64))


def worked(host: Host, *pairs: tuple[int, int], bound: int = 1000) -> Work:
    work = Work(host.stores, bound)
    work.record("t", delta_of(host, *(pairs or ((1, 1),))))
    return work


def test_a_view_runs_after_what_it_reads_and_only_if_that_changed() -> None:
    def slow(epoch: Any) -> Delta:
        time.sleep(0.2)
        return epoch.delta_of("t")

    still = Following(lambda epoch: epoch.delta_of("u"))
    gone = Following(lambda epoch: delta_of(host))
    below = Following(lambda epoch: epoch.delta_of("nothing"))
    host = Host(
        view("last", "middle"),
        view("middle", "first"),
        view("first", "t", rule=Following(slow)),
        view("still", "u", rule=still),
        view("nothing", "t", rule=gone),
        view("below", "nothing", rule=below),
        table("t"),
        table("u"),
    )
    work = worked(host)
    follow(work, host.catalog, NO_FRAMES, THREADS)
    assert rows(work.after("last")) == {(1, 1): 1}
    assert (gone.runs, still.runs, below.runs) == (1, 0, 0)


def test_views_that_do_not_read_each_other_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=90)

    def meet(epoch: Any) -> Delta:
        meeting.wait()
        return epoch.delta_of("t")

    host = Host(table("t"), view("a", "t", rule=Following(meet)), view("b", "t", rule=Following(meet)))
    follow(worked(host), host.catalog, NO_FRAMES, THREADS)


def test_a_view_that_fails_ends_the_epoch_and_nobody_follows_it() -> None:
    def fail(_: Any) -> Delta:
        raise ViewEvaluationError("it failed", view="a")

    after = Following(lambda epoch: epoch.delta_of("a"))
    host = Host(table("t"), view("a", "t", rule=Following(fail)), view("b", "a", rule=after), view("c", "t"))
    with pytest.raises(ViewEvaluationError):
        follow(worked(host), host.catalog, NO_FRAMES, THREADS)
    assert after.runs == 0
    assert host.holds("t") == set(), "nothing is changed until the epoch is committed"


def test_views_that_are_filled_otherwise_are_left_out() -> None:
    left = Following(lambda epoch: epoch.delta_of("t"))
    host = Host(table("t"), view("a", "t", rule=left), view("b", "t"))
    work = worked(host)
    follow(work, host.catalog, NO_FRAMES, THREADS, but={"a"})
    assert left.runs == 0
    assert work.changed("b")


@pytest.fixture
def refilled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(works, "refill", lambda _work, _catalog, _frames, one: names.append(one.name))
    return names


def test_what_a_rule_cannot_bring_to_the_driver_is_filled_anew(refilled: list[str]) -> None:
    def too_large(epoch: Any) -> Delta:
        epoch.record("a#0", epoch.delta_of("t"))
        raise TooLarge

    host = Host(table("t"), view("a", "t", rule=Following(too_large), hidden=("a#0",)))
    work = worked(host)
    follow(work, host.catalog, NO_FRAMES, THREADS)
    assert refilled == ["a"]
    assert "a#0" not in work.deltas, "what the rule had left is forgotten"


@pytest.mark.parametrize(("rows_held", "changed", "filled"), [(0, 3, True), (5, 3, False), (5, 12, True)])
def test_a_large_change_is_a_fill(
    refilled: list[str], monkeypatch: pytest.MonkeyPatch, rows_held: int, changed: int, filled: bool
) -> None:
    monkeypatch.setattr(works, "_FIRST_FILL", 2)
    host = Host(table("t"), view("a", "t"))
    if rows_held:
        host.stores["t"].apply(delta_of(host, *((i, 0) for i in range(rows_held))))
    follow(worked(host, *((100 + i, 0) for i in range(changed)), bound=10), host.catalog, NO_FRAMES, THREADS)
    assert refilled == (["a"] if filled else [])


def test_a_view_without_a_rule_is_filled(refilled: list[str]) -> None:
    host = Host(table("t"), view("a", "t"))
    host.catalog.view("a").rule = None
    follow(worked(host), host.catalog, NO_FRAMES, THREADS)
    assert refilled == ["a"]


def test_the_content_after_an_epoch_is_made_once() -> None:
    host = Host(table("t"))
    work = worked(host, (1, 1), (2, 2))
    assert rows(work.after("t")) == {(1, 1): 1, (2, 2): 1}
    assert work.after("t").runs[-1] is work.after("t").runs[-1]
    work.record("t", delta_of(host, (3, 3)))
    assert rows(work.after("t")) == {(3, 3): 1}
    assert rows(work.before("t")) == {}


ERROR = ViewEvaluationError("view v cannot be computed", view="v", expression="1 / n", detail="Division by zero.")


class Suspicion:
    """Fails as the view does on some rows, and counts how often it is asked."""

    def __init__(self, guilty: set[int], error: Exception = ERROR, together: bool = False) -> None:
        self._guilty, self._error, self._together = guilty, error, together
        self.asked = 0

    def __call__(self, _: str, change: Delta) -> None:
        self.asked += 1
        present = self._guilty & set(change.rows.column(0).to_pylist())
        if present == self._guilty if self._together else present:
            raise self._error


def many(host: Host) -> Work:
    return worked(host, *((i, i) for i in range(200)))


@pytest.mark.parametrize("guilty", [0, 77, 199])
def test_the_guilty_row_is_found_by_halves(guilty: int) -> None:
    host = Host(table("t"))
    suspicion = Suspicion({guilty})
    found = with_guilty_row(ERROR, many(host), host.catalog, suspicion)
    assert found.row == {"id": guilty, "n": guilty}
    assert "of table t" in found.detail
    assert found.expression == "1 / n"
    assert suspicion.asked < 20


def test_rows_that_fail_only_together_are_not_blamed_alone() -> None:
    host = Host(table("t"))
    assert with_guilty_row(ERROR, many(host), host.catalog, Suspicion({3, 150}, together=True)).row is None


def test_another_view_s_fault_is_not_this_one_s() -> None:
    host = Host(table("t"))
    other = ViewEvaluationError("view w cannot be computed", view="w")
    assert with_guilty_row(ERROR, many(host), host.catalog, Suspicion({3}, other)).row is None


def test_when_the_machine_fails_meanwhile_nobody_is_blamed() -> None:
    host = Host(table("t"))
    assert with_guilty_row(ERROR, many(host), host.catalog, Suspicion({3}, WorkFailed("no memory"))) is ERROR


def test_a_backfill_is_not_halved() -> None:
    host = Host(table("t"))
    suspicion = Suspicion({3})
    failed = worked(host, *((i, i) for i in range(200)), bound=100)
    assert with_guilty_row(ERROR, failed, host.catalog, suspicion).row is None
    assert suspicion.asked == 0


def columns(*pairs: tuple[int | None, int | None]) -> pa.Table:
    return pa.table(
        {"c0": pa.array([a for a, _ in pairs], pa.int64()), "c1": pa.array([b for _, b in pairs], pa.int32())}
    )


def after_bulk(host: Host, bulk: Bulk, name: str = "t") -> Counter[Any]:
    one = host.catalog.table(name)
    one.store.apply(bulk_delta(one, one.store.snapshot(), bulk))
    return rows(one.store.snapshot())


def test_whole_columns_replace_by_key_and_the_last_wins() -> None:
    host = Host(table("t"))
    assert after_bulk(host, Bulk(columns(), columns((1, 1), (2, 2), (1, 3)))) == {(1, 3): 1, (2, 2): 1}
    assert after_bulk(host, Bulk(columns((2, 2)), columns((1, 4)))) == {(1, 4): 1}


def test_without_a_key_equal_rows_are_counted() -> None:
    host = Host(table("t", key=()))
    assert after_bulk(host, Bulk(columns(), columns((1, 1), (1, 1)))) == {(1, 1): 2}
    assert after_bulk(host, Bulk(columns((1, 1)), columns())) == {(1, 1): 1}


def test_a_key_that_may_come_once_is_named_when_it_comes_twice() -> None:
    host = Host(table("t"))
    with pytest.raises(ChangesRejected) as rejected:
        after_bulk(host, Bulk(columns(), columns((1, 1), (2, 2), (1, 3)), once=True))
    assert [one.reason for one in rejected.value.rejections] == ["key {'id': 1} comes 2 times"]


def test_null_in_a_key_is_refused() -> None:
    host = Host(table("t"))
    with pytest.raises(ChangesRejected):
        after_bulk(host, Bulk(columns(), columns((None, 1))))
