"""A home of an older release is brought forward whole, or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.errors import LedgerError
from headrace.ledger.ledger import Ledger
from headrace.ledger.migrations import migrate, pending

# Written by the release before format 2: two tables, a view that was replaced, seven epochs, large deltas in files.
OLD = Path(__file__).parents[1] / "fixtures" / "home-format-1"
Told = list[tuple[int, str, list[dict[str, Any]], list[int]]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "home"))


def told_by_the_old(home: Path) -> Told:
    found: Told = []
    for row in DeltaTable(str(home / "ledger")).to_pyarrow_table().to_pylist():
        if row["relation"]:
            bare = row["delta"] is not None
            content = (
                pa.ipc.open_stream(row["delta"]).read_all() if bare else pq.read_table(home / "deltas" / row["file"])
            )
            width = content.num_columns - 1
            rows = content.select(list(range(width))).to_pylist()
            found.append((row["epoch"], row["relation"], rows, content.column(width).to_pylist()))
    return sorted(found, key=lambda one: one[:2])


def told_by_the_new(home: Path) -> Told:
    ledger = Ledger(home, 1000)
    ledger.open()
    found = [(e.epoch, e.relation, e.rows.to_pylist(), e.weights.tolist()) for e in ledger.entries()]
    return sorted(found, key=lambda one: one[:2])


def test_an_old_home_tells_the_same(home: Path) -> None:
    before = told_by_the_old(home)
    assert pending(home)
    migrate(home)
    assert not pending(home)
    assert told_by_the_new(home) == before
    ledger = Ledger(home, 1000)
    ledger.open()
    assert [head.epoch for head in ledger.heads()] == [1, 2, 3, 4, 5, 6, 7]
    assert ledger.epoch == 7
    assert list(ledger.unreferenced(None)) == []
    assert sorted(path.name for path in home.iterdir()) == ["deltas", "ledger"]


@pytest.mark.parametrize("step", range(5))
def test_an_interrupted_step_is_finished(home: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = told_by_the_old(home)
    real, calls = os.rename, 0

    def rename(source: Any, target: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == step + 1:
            raise KeyboardInterrupt
        real(source, target, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        if step < 4:
            with pytest.raises(KeyboardInterrupt):
                migrate(home)
        else:
            migrate(home)
    if pending(home):
        migrate(home)
    assert told_by_the_new(home) == before
    assert sorted(path.name for path in home.iterdir()) == ["deltas", "ledger"]


def test_what_cannot_be_read_stays_as_it_is(home: Path) -> None:
    lost = next((home / "deltas").iterdir())
    lost.unlink()
    kept = sorted(path.name for path in (home / "ledger").iterdir())
    with pytest.raises(LedgerError, match="older release"):
        migrate(home)
    assert sorted(path.name for path in (home / "ledger").iterdir()) == kept


def test_a_newer_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("headrace.ledger.ledger.FORMAT", 99)
        ledger = Ledger(tmp_path, 1000)
        ledger.open()
        ledger.claim(1)
    with pytest.raises(LedgerError, match="newer release"):
        Ledger(tmp_path, 1000).open()
