"""A ledger that another process writes is followed commit by commit, and is the same as one that is opened anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.errors import LedgerError, LedgerNotWritten, LedgerOutOfSight, OwnerLost
from headrace.ledger.ledger import Ledger
from headrace.ledger.names import is_hidden
from headrace.storage.objects import Location
from tests.small_homes import add_epoch, cut, fold, make_home, opened


def alike(reader: Ledger, home: Path) -> bool:
    """Whether a ledger that followed is what one is that is opened now."""
    whole = opened(home)
    files = [sorted(one.files, key=lambda file: file.path) for one in (reader, whole)]
    told = [(one.epoch, one.oldest, one.compacted, one.heads()) for one in (reader, whole)]
    entries = [[(one.epoch, one.rows) for one in ledger.entries_after({"t": 0})] for ledger in (reader, whole)]
    return told[0] == told[1] and files[0] == files[1] and entries[0] == entries[1]


def loads(monkeypatch: pytest.MonkeyPatch, reader: Ledger) -> list[str]:
    """Notes each time that the ledger is read from its beginning."""
    noted: list[str] = []
    whole = reader.open

    def noting() -> None:
        noted.append("open")
        whole()

    monkeypatch.setattr(reader, "open", noting)
    return noted


def test_new_commits_are_followed_without_reading_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    writer = make_home(home, 3)
    reader = opened(home)
    noted = loads(monkeypatch, reader)
    read = reader._parquet  # pyright: ignore[reportPrivateUsage]
    files: list[str] = []

    def noting(path: Path, *more: object) -> object:
        files.append(path.name)
        return read(path, *more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(reader, "_parquet", noting)
    reader.follow()
    assert files == []
    for epoch in range(4, 8):
        add_epoch(writer, epoch)
    reader.follow()
    assert len(files) == 4
    assert noted == []
    assert alike(reader, home)


@pytest.mark.slow
@pytest.mark.thorough
def test_what_was_joined_or_summed_up_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    writer = make_home(home, 40)
    reader = opened(home)
    noted = loads(monkeypatch, reader)
    fold(home, writer, 40)
    writer.compact(40, 20, lambda name: not is_hidden(name), 1)
    add_epoch(writer, 41)
    reader.follow()
    assert noted == ["open"]
    assert alike(reader, home)
    # So many commits later the ones in between are gone, and a checkpoint stands in for them.
    for epoch in range(42, 190):
        add_epoch(writer, epoch)
    writer.tidy()
    add_epoch(writer, 190)
    reader.follow()
    assert noted == ["open", "open"]
    assert alike(reader, home)
    add_epoch(writer, 191)
    reader.follow()
    assert noted == ["open", "open"]
    assert alike(reader, home)


def test_a_damaged_commit_is_told_and_not_passed_over(tmp_path: Path) -> None:
    home = tmp_path / "home"
    writer = make_home(home, 2)
    reader = opened(home)
    add_epoch(writer, 3)
    add_epoch(writer, 4)
    newest = sorted((home / "ledger" / "_delta_log").glob("*.json"))[-2]
    whole = cut(newest)
    with pytest.raises(LedgerError, match="cannot be read"):
        reader.follow()
    newest.write_bytes(whole)
    reader.follow()
    assert alike(reader, home)


def test_a_file_that_cannot_be_read_leaves_no_gap_behind(tmp_path: Path) -> None:
    home = tmp_path / "home"
    writer = make_home(home, 2)
    reader = opened(home)
    add_epoch(writer, 3)
    (data,) = [one for one in (home / "ledger").glob("epoch-*") if "-000000000003-" in one.name]
    content = data.read_bytes()
    data.unlink()
    with pytest.raises(LedgerError):
        reader.follow()
    data.write_bytes(content)
    add_epoch(writer, 4)
    reader.follow()
    assert alike(reader, home)


def test_the_next_owner_is_followed_and_may_claim_from_where_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    writer = make_home(home, 2)
    reader = opened(home)
    add_epoch(writer, 3)
    reader.follow()
    reader.claim(7)
    with pytest.raises(OwnerLost):
        add_epoch(writer, 4)
    add_epoch(reader, 4)
    assert opened(home).epoch == 4


@pytest.mark.parametrize("epochs", [0, 3])
@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_a_ledger_that_is_gone_is_told_until_it_is_back(tmp_path: Path, epochs: int, left: str) -> None:
    home = tmp_path / "home"
    writer = make_home(home, epochs)
    reader = opened(home)
    home.rename(tmp_path / "mounted elsewhere")
    if left == "an empty folder":
        home.mkdir()
    for _ in range(2):
        with pytest.raises(LedgerOutOfSight) as caught:
            reader.follow()
        assert caught.value.transient
        assert caught.value.hint
    assert [one.name for one in tmp_path.rglob("*") if home in (one, *one.parents)] == ["home"] * home.exists()
    shutil.rmtree(home, ignore_errors=True)
    (tmp_path / "mounted elsewhere").rename(home)
    add_epoch(writer, epochs + 1)
    reader.follow()
    assert alike(reader, home)


def test_a_ledger_whose_files_are_gone_is_told_wherever_it_lay(location: Location) -> None:
    home = location / "home"
    make_home(home, 2)
    reader = opened(home)
    for file in [one for one in home.rglob("*") if one.is_file()]:
        file.unlink()
    with pytest.raises(LedgerOutOfSight):
        reader.follow()
    assert [one for one in home.rglob("*") if one.is_file()] == []


@pytest.mark.parametrize("epochs", [2, 3, 4])
def test_another_ledger_is_not_followed(tmp_path: Path, epochs: int) -> None:
    make_home(tmp_path / "home", 3)
    make_home(tmp_path / "other", epochs)
    reader = opened(tmp_path / "home")
    (tmp_path / "home").rename(tmp_path / "mounted elsewhere")
    (tmp_path / "other").rename(tmp_path / "home")
    with pytest.raises(LedgerOutOfSight):
        reader.follow()
    assert reader.epoch == 3


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_a_copy_that_went_another_way_is_not_followed(tmp_path: Path, epochs: int) -> None:
    """It has the same id: what it says of the newest commit that is known tells it from the one that was read."""
    home, copy = tmp_path / "home", tmp_path / "copy"
    writer = make_home(home, 2)
    shutil.copytree(home, copy)
    add_epoch(writer, 3)
    reader = opened(home)
    other = opened(copy)
    for epoch in range(3, 3 + epochs):
        add_epoch(other, epoch)
    home.rename(tmp_path / "mounted elsewhere")
    copy.rename(home)
    with pytest.raises(LedgerOutOfSight):
        reader.follow()


def test_a_commit_that_was_known_and_went_into_a_checkpoint_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    writer = make_home(home, 3)
    reader = opened(home)
    known = sorted((home / "ledger" / "_delta_log").glob("*.json"))[-1]
    for epoch in range(4, 30):
        add_epoch(writer, epoch)
    writer._folder.checkpoint(1)  # pyright: ignore[reportPrivateUsage]
    assert not known.exists()
    reader.follow()
    assert alike(reader, home)
    noted = loads(monkeypatch, reader)
    add_epoch(writer, 30)
    reader.follow()
    assert noted == []
    assert alike(reader, home)


def test_who_claims_a_ledger_that_is_gone_makes_none(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home, 2)
    reader = opened(home)
    shutil.rmtree(home)
    home.mkdir()
    with pytest.raises(LedgerNotWritten):
        reader.claim(7)
    assert list(home.iterdir()) == []
