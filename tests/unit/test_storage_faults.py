"""Full disks, missing rights, torn files, a clock that goes back: a clear error, nothing lost, and on it goes."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from headrace.errors import LedgerError, OwnerLost
from headrace.ledger import delta_log, durable
from headrace.ledger.backup import backup, restore
from headrace.ledger.base import Base
from headrace.ledger.inspection import inspect_storage
from headrace.ledger.ledger import Ledger
from headrace.ledger.names import is_hidden
from headrace.storage import objects
from headrace.storage.objects import Location
from tests.small_homes import (
    BASE_SCHEMAS,
    BEGIN,
    TABLE,
    add_epoch,
    base_folder,
    cut,
    files_of,
    fold,
    make_home,
    opened,
    row,
    rows_at,
    rows_of_base,
)

DISK_BYTES = 2 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small file system takes more rights than this run has")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, leave: int = 0) -> Path:
    """Take all space but some pages."""
    ballast = disk / "ballast"
    stats = os.statvfs(disk)
    ballast.write_bytes(b"x" * max(0, stats.f_bavail * stats.f_frsize - leave))
    return ballast


def until_refused(home: Path, ledger: Ledger) -> tuple[LedgerError, dict[str, int]]:
    """Add epochs until there is no room; the error, and the files before it."""
    before: dict[str, int] = {}
    try:
        for epoch in range(3, 20):
            before = files_of(home)
            add_epoch(ledger, epoch, width=20_000)
    except LedgerError as error:
        return error, before
    raise AssertionError("the disk is not full")


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


@pytest.mark.parametrize("leave", [0, 4096, 8192, 12288, 16384])
@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_a_full_disk_refuses_an_epoch_and_takes_it_later(disk: Path, leave: int, inline_bytes: int) -> None:
    home = disk / "home"
    ledger = make_home(home, 2, inline_bytes)
    ballast = fill(disk, leave)
    refused, before = until_refused(home, ledger)
    assert refused.message == "the ledger cannot be written"
    assert "No space left" in refused.detail
    assert files_of(home) == before
    reached = ledger.heads()[-1].epoch
    ballast.unlink()
    add_epoch(ledger, reached + 1, width=20_000)
    assert opened(home).epoch == reached + 1
    assert [epoch for epoch, _ in rows_at(home, reached + 1)] == list(range(1, reached + 2))
    assert list(opened(home).unreferenced(None)) == []
    assert inspect_storage(home).ok


def test_a_full_disk_refuses_a_fold_and_takes_it_later(disk: Path) -> None:
    home = disk / "home"
    ledger = make_home(home, 3)
    fold(home, ledger, 1)
    add_epoch(ledger, 4, width=100)
    ballast = fill(disk)
    before = files_of(home)
    gone = row(1)
    gone.weights[:] = -1
    for change in (row(2), gone):
        with pytest.raises(LedgerError, match="cannot be written") as refused:
            Base(base_folder(home, TABLE)).fold(BASE_SCHEMAS[TABLE], change, 4)
        assert "Nothing is lost" in refused.value.detail
        assert files_of(home) == before
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.compact(4, 0, lambda name: not is_hidden(name), 1)
    assert files_of(home) == before
    ballast.unlink()
    fold(home, ledger, 4)
    ledger.compact(4, 0, lambda name: not is_hidden(name), 1)
    assert [epoch for epoch, _ in rows_of_base(home)] == [1, 2, 3, 4]
    assert inspect_storage(home).ok


def test_a_full_disk_refuses_a_checkpoint_and_takes_it_later(disk: Path) -> None:
    home = disk / "home"
    ledger = make_home(home, 100)
    ballast = fill(disk)
    before = files_of(home)
    with pytest.raises(LedgerError, match="checkpoint"):
        ledger.tidy()
    assert files_of(home) == before
    assert opened(home).epoch == 100
    ballast.unlink()
    ledger.tidy()
    assert opened(home).epoch == 100
    assert inspect_storage(home).ok
    assert len(list(home.glob("ledger/_delta_log/*.checkpoint.parquet"))) == 1


def test_a_full_disk_leaves_no_half_backup(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_home(tmp_path / "home", 20)
    backup(tmp_path / "home", tmp_path / "copy")
    ballast = fill(disk, 40_000)
    # The room is measured beforehand; here it goes away after that.
    monkeypatch.setattr("headrace.ledger.backup._refuse_narrow", lambda folder, needed: None)
    with pytest.raises(LedgerError, match="backup cannot be written"):
        backup(tmp_path / "home", disk / "copy")
    with pytest.raises(LedgerError, match="cannot be restored"):
        restore(tmp_path / "copy", disk / "again")
    assert set(files_of(disk)) == {"ballast"}
    ballast.unlink()
    backup(tmp_path / "home", disk / "copy")
    assert restore(disk / "copy", disk / "again")["epoch"] == 20


def test_a_folder_without_rights_refuses_and_goes_on_later(disk: Path) -> None:
    home = disk / "home"
    ledger = make_home(home, 3)
    fold(home, ledger, 2)
    before = files_of(home)
    remount(disk, "ro")
    with pytest.raises(LedgerError, match="cannot be written") as refused:
        add_epoch(ledger, 4)
    assert "Read-only file system" in refused.value.detail
    assert str(home) not in refused.value.detail, "senders are told it"
    with pytest.raises(LedgerError, match="cannot be written"):
        Base(base_folder(home, TABLE)).fold(BASE_SCHEMAS[TABLE], row(3), 3)
    assert opened(home).epoch == 3
    assert inspect_storage(home).ok
    assert files_of(home) == before
    remount(disk, "rw")
    add_epoch(ledger, 4)
    fold(home, ledger, 4)
    assert [epoch for epoch, _ in rows_of_base(home)] == [1, 2, 3, 4]


@pytest.mark.parametrize("version", [0, 2, 4])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.97, "lines"])
def test_a_cut_commit_is_named_and_loses_nothing(tmp_path: Path, version: int, share: float | str) -> None:
    make_home(tmp_path, 4)
    file = tmp_path / "ledger" / "_delta_log" / f"{version:020d}.json"
    if isinstance(share, str):
        # Cut off between two lines it is still JSON, with a file of data left out.
        content = file.read_bytes()
        file.write_bytes(content.splitlines(keepends=True)[0])
    else:
        content = cut(file, share)
    before = files_of(tmp_path)
    with pytest.raises(LedgerError, match="the log of ledger cannot be read") as refused:
        opened(tmp_path)
    assert file.name in refused.value.detail
    assert files_of(tmp_path) == before
    file.write_bytes(content)
    assert opened(tmp_path).epoch == 4
    assert len(rows_at(tmp_path, 4)) == 4


def test_a_cut_commit_of_a_base_is_named(tmp_path: Path) -> None:
    fold(tmp_path, make_home(tmp_path, 2), 2)
    file = base_folder(tmp_path, TABLE) / "_delta_log" / f"{0:020d}.json"
    content = cut(file, 0)
    with pytest.raises(LedgerError, match="the log of t cannot be read") as refused:
        Base(base_folder(tmp_path, TABLE))
    assert file.name in refused.value.detail
    file.write_bytes(content)
    assert len(rows_of_base(tmp_path)) == 2


@pytest.mark.parametrize("inline_bytes", [0, 4096])
def test_a_cut_data_file_is_named_and_can_be_put_back(tmp_path: Path, inline_bytes: int) -> None:
    make_home(tmp_path, 3, inline_bytes)
    pattern = f"ledger/epoch-{2:012d}-*" if inline_bytes else f"deltas/{2:012d}-t-*"
    (file,) = tmp_path.glob(pattern)
    content = cut(file)
    with pytest.raises(LedgerError, match=file.name):
        rows_at(tmp_path, 3)
    file.write_bytes(content)
    assert len(rows_at(tmp_path, 3)) == 3


def test_a_cut_file_of_a_base_is_named(tmp_path: Path) -> None:
    fold(tmp_path, make_home(tmp_path, 2), 2)
    (file,) = base_folder(tmp_path, TABLE).glob("*.parquet")
    content = cut(file)
    with pytest.raises(LedgerError, match=file.name):
        rows_of_base(tmp_path)
    file.write_bytes(content)
    assert len(rows_of_base(tmp_path)) == 2


@pytest.mark.parametrize("inline_bytes", [0, 4096])
def test_a_file_that_is_out_of_reach_for_a_moment_is_not_called_damaged(tmp_path: Path, inline_bytes: int) -> None:
    ledger = make_home(tmp_path, 3, inline_bytes)
    fold(tmp_path, ledger, 3)
    base = Base(base_folder(tmp_path, TABLE))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # No further file can be opened.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(LedgerError, match="cannot be read") as of_log:
            list(ledger.entries(TABLE))
        with pytest.raises(LedgerError, match="cannot be read") as of_base:
            list(base.contents(BASE_SCHEMAS[TABLE]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for told in (of_log, of_base):
        assert told.value.transient
        assert "Too many open files" in told.value.detail
        assert "restore" not in told.value.hint
    assert len(list(ledger.entries(TABLE))) == 3
    for file in (
        *tmp_path.glob("ledger/*.parquet"),
        *tmp_path.glob("deltas/*"),
        *base_folder(tmp_path, TABLE).glob("*"),
    ):
        if file.is_file():
            file.unlink()
    with pytest.raises(LedgerError, match="cannot be read") as of_log:
        list(ledger.entries(TABLE))
    with pytest.raises(LedgerError, match="cannot be read") as of_base:
        list(base.contents(BASE_SCHEMAS[TABLE]))
    for told in (of_log, of_base):
        assert not told.value.transient
        assert "restore" in told.value.hint


def test_what_an_object_store_says_instead_of_an_answer_may_pass() -> None:
    def told(error: Exception) -> bool:
        with pytest.raises(OSError, match=r".") as heard, objects._as_os_errors("key"):  # pyright: ignore[reportPrivateUsage]
            raise error
        return durable.unread("the file", heard.value, "").transient

    assert told(GenericError("error sending request: connection refused"))
    assert told(PermissionDeniedError("for now"))
    assert not told(FileNotFoundError("key"))


def test_a_file_whose_bytes_are_others_is_damaged(tmp_path: Path) -> None:
    """However Arrow says it: some of this is an error of reading to it."""
    ledger = make_home(tmp_path, 1, 1 << 20)
    (file,) = tmp_path.glob("ledger/*.parquet")
    content = file.read_bytes()
    told: list[LedgerError] = []
    for location in range(4, len(content) - 60, 60):
        file.write_bytes(content[:location] + b"\xff" * 60 + content[location + 60 :])
        try:
            list(ledger.entries(TABLE))
        except LedgerError as error:
            told.append(error)
        except (KeyError, TypeError, ValueError, UnicodeError):
            continue
    assert any(isinstance(one.__cause__, OSError) for one in told)
    assert not any(one.transient for one in told)


def test_a_disk_that_does_not_confirm_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = make_home(tmp_path, 2)
    real = durable.sync_folder

    def broken(path: Path) -> None:
        if path.name == "_delta_log":
            raise OSError(5, "Input/output error")
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(durable, "sync_folder", broken)
        with pytest.raises(LedgerError, match="not confirmed"):
            add_epoch(ledger, 3)
    # What the disk will remember is open, so this process commits nothing more; that it lost the home would be a lie.
    with pytest.raises(LedgerError, match="not confirmed"):
        add_epoch(ledger, 3)
    assert opened(tmp_path).epoch == 3
    assert inspect_storage(tmp_path).ok


def test_a_lost_owner_leaves_no_files(tmp_path: Path) -> None:
    stale = make_home(tmp_path, 2, inline_bytes=0)
    add_epoch(opened(tmp_path, inline_bytes=0), 3)
    before = files_of(tmp_path)
    with pytest.raises(OwnerLost):
        add_epoch(stale, 3, width=50)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("inline_bytes", [0, 4096])
def test_a_lost_owner_takes_nothing_from_its_successor(location: Location, inline_bytes: int) -> None:
    stale = make_home(location, 2, inline_bytes)
    successor = opened(location, inline_bytes)
    successor.claim(2)
    # The same call, sent again to the next owner: the same epoch with the same content.
    add_epoch(successor, 3)
    with pytest.raises(OwnerLost):
        add_epoch(stale, 3)
    assert len(rows_at(location, 3)) == 3
    assert inspect_storage(location).ok
    assert list(opened(location).unreferenced(None)) == []


def test_a_base_replaced_by_the_same_rows_keeps_them(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        Base(tmp_path / "t").replace(BASE_SCHEMAS[TABLE], [row(1)], epoch)
        assert sum(len(one) for one in Base(tmp_path / "t").contents(BASE_SCHEMAS[TABLE])) == 1


def test_a_clock_set_back_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = make_home(tmp_path, 2)
    fold(tmp_path, ledger, 2)
    monkeypatch.setattr(delta_log, "time", SimpleNamespace(time=lambda: time.time() - 86_400))
    for epoch in (3, 4):
        add_epoch(ledger, epoch)
        fold(tmp_path, opened(tmp_path), epoch)
    assert [head.epoch for head in opened(tmp_path).heads()] == [1, 2, 3, 4]
    assert [epoch for epoch, _ in rows_of_base(tmp_path)] == [1, 2, 3, 4]
    assert inspect_storage(tmp_path).ok


def test_epochs_never_go_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.epoch import core

    monkeypatch.setattr(core, "now_utc", lambda: BEGIN - timedelta(hours=1))
    standing: Any = SimpleNamespace(committed_at=BEGIN)
    assert core.Core.tick(standing) == BEGIN


def test_the_home_of_a_lost_ledger_is_not_begun_anew(tmp_path: Path) -> None:
    fold(tmp_path, make_home(tmp_path, 2), 2)
    (tmp_path / "ledger").rename(tmp_path.parent / "taken-away")
    with pytest.raises(LedgerError, match="is missing"):
        Ledger(tmp_path, 0).open()
    (tmp_path.parent / "taken-away").rename(tmp_path / "ledger")
    assert opened(tmp_path).epoch == 2
