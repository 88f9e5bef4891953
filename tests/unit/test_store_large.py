"""A store that outgrows the heap holds the same rows as one that does not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headrace.state import mapped
from headrace.state.delta import consolidate
from headrace.state.hashing import key_hashes
from headrace.state.snapshot import Snapshot, difference
from headrace.state.store import Store

SCHEMA = pa.schema([("c0", pa.int64()), ("c1", pa.string())])


def delta_of(rows: Counter[tuple[int, str]]):
    pairs = [pair for pair, n in rows.items() if n]
    table = pa.table(
        [pa.array([a for a, _ in pairs], pa.int64()), pa.array([b for _, b in pairs], pa.string())], schema=SCHEMA
    )
    return consolidate(table, np.array([rows[pair] for pair in pairs], dtype=np.int64))


def content(snapshot: Snapshot) -> Counter[tuple[int, str]]:
    held: Counter[tuple[int, str]] = Counter()
    for run in snapshot.runs:
        for row, weight in zip(run.delta.rows.to_pylist(), run.delta.weights.tolist(), strict=True):
            held[row["c0"], row["c1"]] += weight
    return Counter({pair: n for pair, n in held.items() if n})


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "LARGE", 7)
    monkeypatch.setattr(mapped, "STRETCH", 40)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(5))
def test_random_changes_are_held_exactly(seed: int) -> None:
    random = np.random.default_rng(seed)
    store, model = Store("t", SCHEMA), Counter[tuple[int, str]]()
    for _ in range(60):
        change: Counter[tuple[int, str]] = Counter()
        for _ in range(int(random.integers(1, 30))):
            change[int(random.integers(0, 50)), f"v{random.integers(0, 3)}"] += 1
        for pair in list(model)[: int(random.integers(0, 40))]:
            change[pair] -= model[pair]
        store.apply(delta_of(change))
        model.update(change)
        model = Counter({pair: n for pair, n in model.items() if n})
        assert content(store.snapshot()) == model
        assert all(len(run.delta) <= mapped.STRETCH for run in store.snapshot().runs)
        wanted = np.unique(key_hashes(pa.table([pa.array([3, 17])], names=["k"]), (0,)))
        found = store.snapshot().lookup((0,), wanted)
        counted = Counter[tuple[int, str]]()
        for row, weight in zip(found.rows.to_pylist(), found.weights.tolist(), strict=True):
            counted[row["c0"], row["c1"]] += weight
        assert counted == Counter({pair: n for pair, n in model.items() if pair[0] in (3, 17)})


@pytest.mark.thorough
def test_rows_that_cancel_do_not_pile_up() -> None:
    store = Store("t", SCHEMA)
    store.apply(delta_of(Counter({(i, "a"): 1 for i in range(100)})))
    for turn in range(50):
        old, new = ("a", "b") if turn % 2 == 0 else ("b", "a")
        store.apply(delta_of(Counter({(i, v): n for i in range(100) for v, n in ((old, -1), (new, 1))})))
    assert store.snapshot().size <= 500
    assert content(store.snapshot()) == Counter({(i, "a"): 1 for i in range(100)})


@pytest.mark.parametrize("seed", range(3))
def test_the_difference_leads_from_one_content_to_the_other(seed: int) -> None:
    random = np.random.default_rng(seed)
    store = Store("t", SCHEMA)
    for _ in range(4):
        store.apply(
            delta_of(Counter({(int(random.integers(0, 60)), "x"): int(random.integers(1, 3)) for _ in range(50)}))
        )
    wanted = Counter({(int(random.integers(0, 60)), "x"): int(random.integers(1, 3)) for _ in range(50)})
    store.apply(difference(store.snapshot(), delta_of(wanted)))
    assert content(store.snapshot()) == wanted


def test_a_difference_to_nothing_empties_the_store() -> None:
    store = Store("t", SCHEMA)
    store.apply(delta_of(Counter({(i, "a"): 2 for i in range(100)})))
    store.apply(difference(store.snapshot(), delta_of(Counter())))
    assert content(store.snapshot()) == Counter()
