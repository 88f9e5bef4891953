"""Stores are merged between epochs, and beside one only when they have many runs."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from headrace.state.delta import consolidate, weights_of
from headrace.state.store import Store
from headrace.upkeep.merger import MANY_RUNS, Merger
from tests.waiting import until

SCHEMA = pa.schema([("c0", pa.int64())])


def store_of(runs: int) -> Store:
    store = Store("t", SCHEMA)
    for number in range(runs):
        store.add(consolidate(pa.table([[number]], schema=SCHEMA), weights_of([1])))
    return store


def wait_until_merged(store: Store) -> None:
    until(lambda: len(store.snapshot().runs) == 1)


def test_a_store_is_merged_once_the_epoch_is_over() -> None:
    idle, store = threading.Event(), store_of(4)
    merger = Merger(idle)
    merger.submit(store)
    time.sleep(0.2)
    assert len(store.snapshot().runs) == 4
    idle.set()
    wait_until_merged(store)
    assert store.snapshot().count == 4
    merger.close()


def test_a_store_of_many_runs_does_not_wait() -> None:
    idle, store = threading.Event(), store_of(MANY_RUNS)
    merger = Merger(idle)
    merger.submit(store)
    wait_until_merged(store)
    merger.close()


def test_a_store_that_gets_many_runs_while_it_waits_waits_no_longer() -> None:
    idle, store = threading.Event(), store_of(MANY_RUNS - 1)
    merger = Merger(idle)
    merger.submit(store)
    store.add(consolidate(pa.table([[99]], schema=SCHEMA), weights_of([1])))
    wait_until_merged(store)
    merger.close()


def test_what_fails_leaves_the_store_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    idle, store, other = threading.Event(), store_of(3), store_of(3)
    idle.set()
    monkeypatch.setattr(store, "merge", lambda: 1 / 0)
    merger = Merger(idle)
    merger.submit(store)
    merger.submit(other)
    wait_until_merged(other)
    assert store.snapshot().count == 3
    merger.close()
