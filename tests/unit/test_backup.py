"""A backup is one epoch, whole; brought up elsewhere it is that home again."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable

from headrace.errors import LedgerError
from headrace.ledger import backup as backups
from headrace.ledger.backup import MANIFEST, backup, read_manifest, restore
from headrace.ledger.base import Base
from headrace.ledger.inspection import inspect_storage
from headrace.ledger.ledger import RESTORING
from headrace.ledger.readers import Reader, Readers
from tests.small_homes import (
    STATE,
    TABLE,
    add_epoch,
    base_folder,
    cut,
    files_of,
    flip,
    fold,
    make_home,
    opened,
    rows_at,
    rows_of_base,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Six epochs, the first four of them folded, every delta in a file of its own."""
    path = tmp_path / "home"
    ledger = make_home(path, 6, inline_bytes=0)
    fold(path, ledger, 2)
    fold(path, ledger, 4)
    return path


def test_a_restored_home_is_the_home(home: Path, tmp_path: Path) -> None:
    Readers(home).register(Reader("feed", 3, 100))
    seen: list[tuple[int, int]] = []
    summary = backup(home, tmp_path / "copy", lambda done, total: seen.append((done, total)))
    assert summary["epoch"] == 6
    assert seen[-1][0] == seen[-1][1] > 0
    assert restore(tmp_path / "copy", tmp_path / "again")["epoch"] == 6
    again = tmp_path / "again"
    for epoch in range(7):
        assert rows_at(again, epoch) == rows_at(home, epoch)
    assert [head.content for head in opened(again).heads()] == [head.content for head in opened(home).heads()]
    for name in (TABLE, STATE):
        assert rows_of_base(again, name) == rows_of_base(home, name)
        assert Base(base_folder(again, name)).epoch == 4
    assert Readers(again).protected(6) == 3
    assert inspect_storage(again).ok
    assert not (again / RESTORING).exists()
    assert not (again / MANIFEST).exists()
    assert DeltaTable(str(again / "tables" / "t")).to_pyarrow_table().num_rows == 4


def test_a_restored_home_goes_on(home: Path, tmp_path: Path) -> None:
    backup(home, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    ledger = opened(tmp_path / "again")
    ledger.claim(1)
    add_epoch(ledger, 7)
    fold(tmp_path / "again", ledger, 7)
    assert len(rows_of_base(tmp_path / "again")) == 7
    assert inspect_storage(tmp_path / "again").newest_epoch == 7
    assert opened(home).epoch == 6


def test_a_copy_has_only_what_its_epoch_needs(home: Path, tmp_path: Path) -> None:
    (home / "ledger" / ".tmp-left").write_text("by a crash")
    (home / "owner").write_text("process 1")
    backup(home, tmp_path / "copy")
    copied = {Path(name) for name in files_of(tmp_path / "copy")}
    assert not any(path.name.startswith(".tmp-") or path.name == "owner" for path in copied)
    assert len([path for path in copied if path.parent.name == "_delta_log"]) == 3
    names = set(read_manifest(tmp_path / "copy").files)
    assert names == {path.as_posix() for path in copied} - {MANIFEST}


@pytest.mark.slow
@pytest.mark.thorough
def test_epochs_go_on_while_a_copy_is_made(home: Path, tmp_path: Path) -> None:
    ledger = opened(home)
    stop = threading.Event()
    committed = [6]

    def write() -> None:
        while not stop.is_set():
            add_epoch(ledger, committed[-1] + 1)
            committed.append(committed[-1] + 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        copies = [backup(home, tmp_path / f"copy{i}")["epoch"] for i in range(3)]
    finally:
        stop.set()
        writer.join()
    assert committed[-1] > 6
    for i, epoch in enumerate(copies):
        restore(tmp_path / f"copy{i}", tmp_path / f"again{i}")
        assert opened(tmp_path / f"again{i}").epoch == epoch
        assert rows_at(tmp_path / f"again{i}", epoch) == rows_at(home, epoch)


def test_a_taken_destination_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    backup(home, tmp_path / "copy")
    with pytest.raises(LedgerError, match="is not empty"):
        backup(home, tmp_path / "copy")
    with pytest.raises(LedgerError, match="inside the home"):
        backup(home, home / "copy")
    with pytest.raises(LedgerError, match="is not empty"):
        restore(tmp_path / "copy", home)
    with pytest.raises(LedgerError, match="no ledger"):
        backup(tmp_path / "nowhere", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_backup_without_its_manifest_is_none(home: Path, tmp_path: Path) -> None:
    backup(home, tmp_path / "copy")
    (tmp_path / "copy" / MANIFEST).unlink()
    with pytest.raises(LedgerError, match="not a whole backup"):
        restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", ["ledger/*.parquet", "deltas/*", "tables/t/*.parquet", "**/_delta_log/*", MANIFEST])
@pytest.mark.parametrize("harm", [flip, cut, Path.unlink], ids=["flipped", "cut", "gone"])
def test_a_damaged_backup_is_not_restored(home: Path, tmp_path: Path, pattern: str, harm: object) -> None:
    backup(home, tmp_path / "copy")
    file = sorted((tmp_path / "copy").glob(pattern))[0]
    assert callable(harm)
    harm(file)
    with pytest.raises(LedgerError) as refused:
        restore(tmp_path / "copy", tmp_path / "again")
    assert file.name in str(refused.value)
    assert not (tmp_path / "again").exists()


def test_a_manifest_cannot_lead_out(home: Path, tmp_path: Path) -> None:
    backup(home, tmp_path / "copy")
    parts = json.loads((tmp_path / "copy" / MANIFEST).read_text())["backup"]
    parts["files"]["../stolen"] = {"size": 0, "sha256": ""}
    whole = {"backup": parts, "sha256": backups._digest(parts)}  # pyright: ignore[reportPrivateUsage]
    (tmp_path / "copy" / MANIFEST).write_text(json.dumps(whole))
    with pytest.raises(LedgerError, match="cannot be read") as refused:
        restore(tmp_path / "copy", tmp_path / "again")
    assert "leads out" in refused.value.detail


def test_damage_is_not_copied(home: Path, tmp_path: Path) -> None:
    file = sorted((home / "deltas").iterdir())[0]
    flip(file)
    with pytest.raises(LedgerError, match=file.name):
        backup(home, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    file.unlink()
    with pytest.raises(LedgerError, match="it is missing"):
        backup(home, tmp_path / "copy")


def test_damaged_identities_are_left_out(home: Path, tmp_path: Path) -> None:
    for file in (home / "tables" / "t" / "_identities").iterdir():
        flip(file)
    backup(home, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    assert not list((tmp_path / "again").glob("tables/t/_identities/*"))
    assert rows_of_base(tmp_path / "again") == rows_of_base(home)


def test_an_unfinished_restore_does_not_open(home: Path, tmp_path: Path) -> None:
    backup(home, tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    (tmp_path / "again" / RESTORING).write_text("")
    with pytest.raises(LedgerError, match="not restored to the end"):
        opened(tmp_path / "again")


def test_too_little_room_is_said_at_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "_ROOM_FOR_LOGS", 1 << 60)
    with pytest.raises(LedgerError, match="too little room"):
        backup(home, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
