"""A store answers like the plain sum of all the deltas it was given, however its runs were merged."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.state import run as run_module
from headrace.state.delta import Delta, consolidate, empty, project, project_and_sum, weights_of
from headrace.state.hashing import identity, key_hashes
from headrace.state.run import IDENTITY, Run, order_numbers, spans
from headrace.state.snapshot import Snapshot
from headrace.state.store import Store

FIXED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("c2", pa.float64())])

Row = tuple[Any, ...]
Model = Counter[Row]
rows = st.tuples(
    st.none() | st.integers(0, 3),
    st.none() | st.sampled_from(["", "a", "b"]),
    st.none() | st.sampled_from([-1.5, 0.0, 2.0, math.inf]),
)
deltas = st.lists(st.tuples(rows, st.integers(-2, 2)), max_size=8)
keys = st.sampled_from([(0,), (1,), (0, 1), (1, 0), (2,), (0, 1, 2)])


def table(some: list[Row]) -> pa.Table:
    return pa.table([pa.array([row[i] for row in some], kind) for i, kind in enumerate(SCHEMA.types)], SCHEMA)


def delta(some: list[tuple[Row, int]]) -> Delta:
    return consolidate(table([row for row, _ in some]), weights_of([weight for _, weight in some]))


def content(one: Delta) -> dict[Row, int]:
    found = [tuple(row.values()) for row in one.rows.to_pylist()]
    assert len(found) == len(one)
    assert 0 not in one.weights
    total: Model = Counter()
    for row, weight in zip(found, one.weights.tolist(), strict=True):
        total[row] += weight
    return dict(total)


def add(model: Model, some: list[tuple[Row, int]]) -> None:
    for row, weight in some:
        model[row] += weight
        if model[row] == 0:
            del model[row]


def wanted_hashes(key: tuple[int, ...], some: list[Row]) -> Any:
    return np.unique(key_hashes(table(some), key))


def of_keys(model: Model, key: tuple[int, ...], some: list[Row]) -> dict[Row, int]:
    wanted = {tuple(row[i] for i in key) for row in some}
    return {row: weight for row, weight in model.items() if tuple(row[i] for i in key) in wanted}


def check(snapshot: Snapshot, model: Model, key: tuple[int, ...], some: list[Row], low: float, high: float) -> None:
    assert content(snapshot.all()) == model
    assert snapshot.count == sum(model.values())
    assert snapshot.size >= len(model)
    assert content(snapshot.lookup(key, wanted_hashes(key, some))) == of_keys(model, key, some)
    inside = {row: weight for row, weight in model.items() if row[2] is not None and low <= row[2] <= high}
    assert content(snapshot.between(2, low, high)) == inside
    counts = snapshot.multiplicity(*identity(table(some).columns, len(some)))
    assert counts.tolist() == [model[row] for row in some]


@pytest.mark.thorough
@settings(FIXED, max_examples=50)
@given(
    st.lists(st.tuples(deltas, keys, st.lists(rows, max_size=4)), max_size=10),
    st.sampled_from([-math.inf, -1.5, 0.0, 1.0]),
    st.sampled_from([-1.5, 0.0, 1.0, math.inf]),
)
def test_a_store_follows_the_naive_sum(epochs: list[tuple[Any, Any, Any]], low: float, high: float) -> None:
    store, model = Store("t", SCHEMA), Counter()
    past: list[tuple[Snapshot, Model]] = []
    for some, key, asked in epochs:
        store.apply(delta(some))
        add(model, some)
        check(store.snapshot(), model, key, asked, low, high)
        past.append((store.snapshot(), Counter(model)))
    for snapshot, then in past:
        check(snapshot, then, (0, 1), list(model), low, high)


def test_many_small_epochs_leave_few_runs_and_the_right_rows() -> None:
    store, model = Store("t", SCHEMA), Counter()
    chance = random.Random(7)
    for epoch in range(600):
        live = list(model)
        some: list[tuple[Row, int]] = [((chance.randrange(80), chance.choice("abc"), float(epoch % 5)), 1)]
        if live and chance.random() < 0.5:
            some.append((chance.choice(live), -1))
        store.apply(delta(some))
        add(model, some)
        if epoch % 37 == 0:
            asked = [(number, "a", None) for number in range(0, 80, 9)]
            check(store.snapshot(), model, (0,), asked, 1.0, 3.0)
        runs = [len(run.delta) for run in store.snapshot().runs]
        assert all(before >= 2 * after for before, after in pairwise(runs))
    assert len(store.snapshot().runs) <= 10
    check(store.snapshot(), model, (1,), [(None, "b", None)], -1.0, 1.0)


def test_a_large_run_is_left_alone_by_small_changes() -> None:
    store = Store("t", SCHEMA)
    store.apply(delta([((number, "a", 0.0), 1) for number in range(1000)]))
    large = store.snapshot().runs[0]
    for number in range(400):
        store.apply(delta([((number, "b", 0.0), 1)]))
    assert store.snapshot().runs[0] is large


def test_merged_runs_keep_the_indexes_that_were_asked_for() -> None:
    store = Store("t", SCHEMA)
    store.apply(delta([((1, "a", 0.0), 1)]))
    wanted = wanted_hashes((1,), [(0, "a", None)])
    store.snapshot().lookup((1,), wanted)
    store.apply(delta([((2, "a", 0.0), 1)]))
    (run,) = store.snapshot().runs
    assert (1,) in run.indexes
    assert content(store.snapshot().lookup((1,), wanted)) == {(1, "a", 0.0): 1, (2, "a", 0.0): 1}


@pytest.mark.parametrize("gone", [0, 3])
def test_indexes_of_merged_runs_are_those_that_would_be_made(gone: int) -> None:
    store = Store("t", SCHEMA)
    for number in range(3):
        store.add(delta([((index % 7, "ab"[index % 2], float(number)), 1) for index in range(14)]))
    cancelling = [((index, "ab"[index % 2], 1.0), -1) for index in range(gone)]
    store.add(delta([*cancelling, *(((index, "c", 3.0), 1) for index in range(40))]))
    for run in store.snapshot().runs:
        for key in ((0,), (1, 0), IDENTITY):
            run.index(key)
    store.merge()
    (run,) = store.snapshot().runs
    assert set(run.indexes) == {(0,), (1, 0), IDENTITY}
    anew = Run(run.delta)
    for key in run.indexes:
        for made, wanted in zip(run.index(key), anew.index(key), strict=True):
            assert made.tolist() == wanted.tolist()


def test_what_cancels_out_leaves_no_run() -> None:
    store = Store("t", SCHEMA)
    store.apply(delta([((1, "a", 0.0), 1)]))
    store.apply(empty(SCHEMA))
    assert len(store.snapshot().runs) == 1
    store.apply(delta([((1, "a", 0.0), -1)]))
    assert store.snapshot().runs == ()
    assert store.snapshot().count == 0
    assert store.snapshot().all().rows.schema == SCHEMA


def test_replacing_forgets_what_was_held() -> None:
    store = Store("t", SCHEMA)
    store.apply(delta([((1, "a", 0.0), 1)]))
    before = store.snapshot()
    store.replace([delta([((2, "b", None), 3)])])
    assert content(store.snapshot().all()) == {(2, "b", None): 3}
    assert content(before.all()) == {(1, "a", 0.0): 1}
    store.replace([empty(SCHEMA)])
    assert store.snapshot().runs == ()


def test_chosen_columns_keep_the_identity_of_the_whole_row() -> None:
    store = Store("t", SCHEMA)
    store.apply(delta([((1, "a", 0.0), 1), ((1, "b", 0.0), 2)]))
    store.apply(delta([((1, "a", 0.0), -1), ((1, "c", 0.0), 1), ((9, "c", 0.0), 1), ((8, "c", 0.0), 1)]))
    found = store.snapshot().lookup((0,), wanted_hashes((0,), [(1, None, None)]), columns=[2, 0])
    assert found.rows.column_names == ["c0", "c1"]
    assert found.rows.to_pylist() == [{"c0": 0.0, "c1": 1}] * 2
    assert sorted(found.weights.tolist()) == [1, 2]
    assert found.low.tolist() != project_and_sum(delta([((1, "a", 0.0), 1)]), [2, 0]).low.tolist()
    assert content(store.snapshot().all([0])) == {(1,): 3, (9,): 1, (8,): 1}


def test_narrowed_rows_are_summed_again() -> None:
    one = delta([((1, "a", 0.0), 1), ((1, "b", 0.0), -1), ((2, "a", 0.0), 2)])
    assert content(project_and_sum(one, [0])) == {(2,): 2}
    assert project_and_sum(one, [0, 1, 2]) is one
    assert project(one, [0, 1, 2]) is one
    assert project(one, [0]).weights.tolist() == [1, -1, 2]
    assert project_and_sum(one, []).weights.tolist() == [2]
    assert len(project_and_sum(delta([((1, "a", 0.0), 1), ((2, "a", 0.0), -1)]), [])) == 0


def test_rows_without_columns_are_counted() -> None:
    bare = pa.schema([])
    store = Store("t", bare)
    store.apply(consolidate(pa.table({"gone": [1, 2]}).select([]), weights_of([1, 1])))
    store.apply(consolidate(pa.table({"gone": [1]}).select([]), weights_of([3])))
    assert store.snapshot().count == 5
    assert store.snapshot().all().weights.tolist() == [5]


@pytest.mark.parametrize("key", [(0,), (1,), IDENTITY])
def test_nothing_is_found_in_nothing(key: tuple[int, ...]) -> None:
    snapshot = Store("t", SCHEMA).snapshot()
    none = np.zeros(0, dtype=np.uint64)
    assert len(snapshot.lookup(key, np.array([1, 2], dtype=np.uint64))) == 0
    assert len(snapshot.lookup(key, none)) == 0
    assert len(snapshot.between(0, -math.inf, math.inf)) == 0
    assert snapshot.multiplicity(none, none).tolist() == []
    assert snapshot.multiplicity(np.array([1], dtype=np.uint64), np.array([1], dtype=np.uint64)).tolist() == [0]


def test_a_hash_that_only_looks_alike_is_not_contained() -> None:
    store = Store("t", SCHEMA)
    one = delta([((1, "a", 0.0), 2)])
    store.apply(one)
    assert store.snapshot().multiplicity(one.low, one.high + np.uint64(1)).tolist() == [0]
    assert store.snapshot().multiplicity(np.repeat(one.low, 2), np.repeat(one.high, 2)).tolist() == [2, 2]


def test_numbers_never_contradict_the_order_of_values() -> None:
    integers = [-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1]
    numbers = order_numbers(pa.chunked_array([pa.array(integers)]))
    assert sorted(numbers) == numbers.tolist()
    assert np.isnan(order_numbers(pa.chunked_array([pa.array([None, math.nan], pa.float64())]))).all()
    days = order_numbers(pa.chunked_array([pa.array([0, 1], pa.int32()).cast(pa.date32())]))
    moments = order_numbers(pa.chunked_array([pa.array([0, 86_400_000_000], pa.timestamp("us", "UTC"))]))
    assert days.tolist() == moments.tolist() == [0.0, 86_400_000_000.0]


def test_spans_are_laid_end_to_end() -> None:
    assert spans(np.array([3, 7, 0]), np.array([5, 7, 1])).tolist() == [3, 4, 0]
    assert spans(np.array([2]), np.array([2])).tolist() == []


def test_what_comes_while_runs_are_merged_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("t", SCHEMA)
    late: Row = (9, "late", None)
    surviving = run_module.surviving

    def surviving_slowly(*given: Any) -> Any:
        if store.snapshot().multiplicity(*identity(table([late]).columns, 1))[0] == 0:
            store.add(delta([(late, 1)]))
        return surviving(*given)

    monkeypatch.setattr(run_module, "surviving", surviving_slowly)
    for number in range(2):
        store.add(delta([((number, "a", None), 1)]))
    store.merge()
    assert [len(run.delta) for run in store.snapshot().runs] == [2, 1]
    assert store.snapshot().count == 3


def test_to_count_the_rows_once_more_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store("t", SCHEMA)
    store.apply(delta([((number, "a", 0.0), 2) for number in range(1000)]))
    assert store.snapshot().count == 2000
    asked: list[int] = []
    count = Run.count.func

    def noting(run: Run) -> int:
        asked.append(len(run.delta))
        return count(run)

    monkeypatch.setattr(Run.count, "func", noting)
    for number in range(20):
        store.apply(delta([((number, "a", 0.0), -1)]))
        assert store.snapshot().count == 2000 - number - 1
    assert max(asked) < 100, "the large run was counted before"
