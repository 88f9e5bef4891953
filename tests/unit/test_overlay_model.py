"""Over many epochs the overlay's net changes lead where a naive model goes, change by change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DoubleType, IntegerType, LongType, StructField, StructType

from headrace.intake.overlay import Found, Overlay
from headrace.intake.table import TableContract

NOW = datetime(2024, 1, 1, tzinfo=UTC)
FIXED = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SCHEMA = StructType(
    [
        StructField("part", DoubleType()),
        StructField("id", IntegerType()),
        StructField("seq", LongType()),
        StructField("name", IntegerType()),
    ]
)
BAD = {"insert": {"part": 0.0, "id": "no integer", "seq": 1, "name": 1}}

parts = st.sampled_from([0.0, -0.0, math.nan])
rows = st.fixed_dictionaries(
    {"part": parts, "id": st.integers(0, 1), "seq": st.integers(0, 5), "name": st.sampled_from([None, 1, 2])}
)
changes = st.builds(lambda kind, row: {kind: row}, st.sampled_from(["insert", "delete"]), rows)
parts_of_rows = st.builds(
    lambda row, lacking: {n: row[n] for n in row if n not in lacking}, rows, st.sets(st.just("name"))
)
keyed_changes = changes | st.builds(lambda row: {"update": row}, parts_of_rows)
# A call is its changes, whether a bad one is among them, and whether a sibling table rejects it.


def epochs_of(one: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    calls = st.tuples(st.lists(one, max_size=6), st.sampled_from([False, False, False, True]), st.booleans())
    return st.lists(st.lists(calls, max_size=4), max_size=4)


Change = dict[str, dict[str, Any]]
Call = tuple[list[Change], bool, bool]


def part_mark(value: float) -> Any:
    return "NaN" if math.isnan(value) else abs(value)


def key_mark(row: dict[str, Any]) -> tuple[Any, ...]:
    return part_mark(row["part"]), row["id"]


def row_mark(row: Sequence[Any]) -> tuple[Any, ...]:
    return part_mark(row[0]), *row[1:]


@dataclass
class KeyedModel:
    """Rows and tombstones by key, one change at a time."""

    sequenced: bool
    rows: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    buried: dict[Any, int] = field(default_factory=dict)

    def apply(self, change: Change) -> bool | None:
        """Whether the change was applied; else it was stale, or, if None, there was no row to keep anything of."""
        ((kind, row),) = change.items()
        key = key_mark(row)
        if self.sequenced:
            latest = self.rows[key][2] if key in self.rows else self.buried.get(key)
            if latest is not None and row["seq"] < latest:
                return False
        if len(row) < len(SCHEMA.names):
            if key not in self.rows:
                return None
            row = {**row, "name": self.rows[key][3]}
        self.rows.pop(key, None)
        self.buried.pop(key, None)
        if kind != "delete":
            self.rows[key] = row_mark([row[name] for name in SCHEMA.names])
        elif self.sequenced:
            self.buried[key] = row["seq"]
        return True


def run_keyed(contract: TableContract, history: list[list[Call]]) -> None:
    model = KeyedModel(contract.sequence is not None)
    handles: dict[Any, int] = {}
    stored: dict[int, tuple[Any, ...]] = {}
    tombstones: dict[Any, int] = {}
    next_handle = 0
    for epoch in history:
        asked: list[Any] = []

        def lookup(keys: list[tuple[Any, ...]], asked: list[Any] = asked) -> dict[Any, Found]:
            marks = [contract.key_identity(key) for key in keys]
            asked.extend(marks)
            return {mark: Found(handles[mark], stored[handles[mark]][2]) for mark in marks if mark in handles}

        def find_tombstones(keys: list[tuple[Any, ...]]) -> dict[Any, int]:
            marks = [contract.key_identity(key) for key in keys]
            return {mark: tombstones[mark] for mark in marks if mark in tombstones}

        overlay = Overlay(contract, lookup=lookup, tombstones=find_tombstones)
        for call, bad, undone in epoch:
            mark = overlay.checkpoint()
            taken = overlay.take([*call, BAD] if bad else call, NOW)
            if bad:
                assert (taken.applied, taken.stale, len(taken.rejections)) == (0, 0, 1)
                continue
            trial = deepcopy(model)
            outcomes = [trial.apply(change) for change in call]
            refused = [index for index, outcome in enumerate(outcomes) if outcome is None]
            assert [one.index for one in taken.rejections] == refused
            if refused:
                continue
            assert (taken.applied, taken.stale) == (outcomes.count(True), outcomes.count(False))
            if undone:
                overlay.rollback(mark)
            else:
                model = trial
        assert len(asked) == len(set(asked))
        net = overlay.net()
        kept = {(cell.row, cell.column): stored[cell.handle][cell.column] for cell in net.kept_cells}
        assert len(set(net.removed_handles)) == len(net.removed_handles)
        for handle in net.removed_handles:
            assert isinstance(handle, int)
            del handles[contract.key_identity(stored.pop(handle)[:2])]
        for number, (row, count) in enumerate(net.added_rows):
            assert count == 1
            assert all(row[column] is None for at, column in kept if at == number)
            row = tuple(kept.get((number, column), value) for column, value in enumerate(row))
            key = contract.key_identity(row[:2])
            assert key not in handles
            handles[key] = next_handle
            stored[next_handle] = row
            next_handle += 1
        for key in net.tombstones_removed:
            del tombstones[contract.key_identity(key)]
        for key, sequence, deleted_at in net.tombstones_set:
            assert tombstones.get(contract.key_identity(key)) != sequence
            assert deleted_at == NOW
            tombstones[contract.key_identity(key)] = sequence
        assert {key: row_mark(stored[handle]) for key, handle in handles.items()} == model.rows
        assert tombstones == model.buried


@pytest.mark.thorough
@settings(FIXED, max_examples=200)
@given(epochs_of(keyed_changes))
def test_keys_follow_the_model(history: list[list[Call]]) -> None:
    run_keyed(TableContract("t", SCHEMA, ("part", "id")), history)


@pytest.mark.thorough
@settings(FIXED, max_examples=300)
@given(epochs_of(keyed_changes))
def test_keys_with_a_sequence_follow_the_model(history: list[list[Call]]) -> None:
    run_keyed(TableContract("t", SCHEMA, ("part", "id"), "seq"), history)


@settings(FIXED, max_examples=200)
@given(epochs_of(changes))
def test_bags_follow_the_model(history: list[list[Call]]) -> None:
    contract = TableContract("t", SCHEMA)
    model: Counter[Any] = Counter()
    stored: Counter[Any] = Counter()
    for epoch in history:
        committed = Counter(stored)

        def count(rows: list[tuple[Any, ...]], committed: Counter[Any] = committed) -> dict[Any, int]:
            marks = [contract.row_identity(row) for row in rows]
            return {mark: committed[mark] for mark in marks if mark in committed}

        overlay = Overlay(contract, count=count)
        for call, bad, undone in epoch:
            mark = overlay.checkpoint()
            taken = overlay.take([*call, BAD] if bad else call, NOW)
            trial = Counter(model)
            rejected: list[int] = []
            for index, change in enumerate(call):
                ((kind, row),) = change.items()
                row_seen = row_mark([row[name] for name in SCHEMA.names])
                if kind == "insert":
                    trial[row_seen] += 1
                elif trial[row_seen] > 0:
                    trial[row_seen] -= 1
                else:
                    rejected.append(index)
            if bad:
                rejected.append(len(call))
            assert [rejection.index for rejection in taken.rejections] == rejected
            if rejected:
                continue
            assert taken.applied == len(call)
            if undone:
                overlay.rollback(mark)
            else:
                model = trial
        net = overlay.net()
        assert not {row_mark(row) for row, _ in net.added_rows} & {row_mark(row) for row, _ in net.removed_rows}
        for row, number in net.added_rows:
            assert number > 0
            stored[row_mark(row)] += number
        for row, number in net.removed_rows:
            assert number > 0
            stored[row_mark(row)] -= number
        assert +stored == +model
