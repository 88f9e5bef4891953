"""Whatever file is harmed, the inspection names it and says which epoch is still whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import LedgerError
from headrace.ledger import inspection
from headrace.ledger.base import Base
from headrace.ledger.inspection import Inspection, inspect_storage
from headrace.ledger.ledger import Ledger
from headrace.ledger.names import is_hidden
from tests.small_homes import (
    BASE_SCHEMAS,
    STATE,
    TABLE,
    add_epoch,
    base_folder,
    cut,
    flip,
    fold,
    make_home,
    opened,
    row,
)

HARMS: list[Callable[[Path], object]] = [flip, cut, Path.unlink]
IDS = ["flipped", "cut", "gone"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Six epochs, every delta in a file of its own; nothing is folded."""
    make_home(tmp_path / "home", 6, inline_bytes=0)
    return tmp_path / "home"


@pytest.fixture
def folded(home: Path) -> Path:
    """The same, with bases at epoch 4."""
    fold(home, opened(home), 2)
    fold(home, opened(home), 4)
    return home


def compact(ledger: Ledger, until: int, expired: int = 0) -> None:
    ledger.compact(until, expired, lambda name: not is_hidden(name), 1)
    for file in list(ledger.unreferenced(None)):
        file.unlink()


def named(found: Inspection) -> set[str]:
    return {Path(one.path).name for one in found.damaged}


def test_a_whole_home_is_whole(folded: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = inspect_storage(folded, lambda done, total: seen.append((done, total)))
    assert found.ok
    assert found.damaged == ()
    assert (found.oldest_epoch, found.whole_epoch, found.newest_epoch) == (0, 6, 6)
    assert found.bases == {TABLE: 4, STATE: 4}
    assert seen[-1][0] == seen[-1][1]
    assert found.verdict() == "every epoch from 0 to 6 is whole"
    compact(opened(folded), 4)
    assert inspect_storage(folded).ok


@pytest.mark.parametrize("harm", HARMS, ids=IDS)
def test_a_file_of_the_ledger_takes_its_epoch_with_it(folded: Path, harm: Callable[[Path], object]) -> None:
    (file,) = folded.glob("ledger/epoch-000000000005-*")
    harm(file)
    found = inspect_storage(folded)
    assert not found.ok
    assert named(found) == {file.name}
    assert found.damaged[0].epochs == (5, 5)
    assert (found.whole_epoch, found.newest_epoch) == (4, 6)


@pytest.mark.parametrize("harm", HARMS, ids=IDS)
@pytest.mark.parametrize("epoch", [1, 5])
def test_a_large_delta_before_the_base_is_not_needed(folded: Path, epoch: int, harm: Callable[[Path], object]) -> None:
    (file,) = folded.glob(f"deltas/{epoch:012d}-t-*")
    harm(file)
    found = inspect_storage(folded)
    assert not found.ok
    assert named(found) == {file.name}
    assert (found.damaged[0].relation, found.damaged[0].epochs) == (TABLE, (epoch, epoch))
    assert found.whole_epoch == (6 if epoch == 1 else 4)


@pytest.mark.parametrize("harm", HARMS, ids=IDS)
def test_a_base_is_replaced_by_the_log(folded: Path, harm: Callable[[Path], object]) -> None:
    file = sorted(folded.glob("tables/t/*.parquet"))[0]
    harm(file)
    found = inspect_storage(folded)
    assert not found.ok
    assert named(found) == {file.name}
    assert found.damaged[0].relation == TABLE
    assert found.whole_epoch == 6
    assert found.bases == {STATE: 4}


def test_hidden_state_is_only_in_its_base_once_the_log_is_compacted(folded: Path) -> None:
    compact(opened(folded), 4)
    file = sorted(base_folder(folded, STATE).glob("*.parquet"))[0]
    flip(file)
    found = inspect_storage(folded)
    assert found.damaged[0].relation == STATE
    assert found.whole_epoch is None
    assert found.bases == {TABLE: 4}
    assert "t at epoch 4" in found.verdict()


def test_expired_epochs_are_not_whole(folded: Path) -> None:
    compact(opened(folded), 4, expired=3)
    assert inspect_storage(folded).oldest_epoch == 3
    flip(sorted(folded.glob("tables/t/*.parquet"))[0])
    assert inspect_storage(folded).whole_epoch is None


def test_a_lost_definition_takes_everything_with_it(folded: Path) -> None:
    compact(opened(folded), 4)
    (segment,) = folded.glob("ledger/epoch-000000000001-000000000004-*")
    cut(segment)
    found = inspect_storage(folded)
    assert found.damaged[0].epochs == (1, 4)
    assert found.whole_epoch is None
    assert set(found.bases) == {TABLE, STATE}


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink, lambda path: path.write_text("")], ids=[*IDS, "empty"])
@pytest.mark.parametrize("version", [3, 6])
def test_a_damaged_commit_of_the_ledger(folded: Path, version: int, harm: Callable[[Path], object]) -> None:
    file = folded / "ledger" / "_delta_log" / f"{version:020d}.json"
    harm(file)
    found = inspect_storage(folded)
    if version == 6 and not file.exists():
        # The last commit alone leaves no trace.
        assert (found.ok, found.newest_epoch) == (True, 5)
        return
    assert not found.ok
    assert named(found) == {file.name}
    assert found.damaged[0].epochs == (version, 6)
    assert (found.whole_epoch, found.newest_epoch) == (version - 1, 6)


def test_commits_that_are_gone_show_in_the_bases(folded: Path) -> None:
    for version in range(3, 7):
        (folded / "ledger" / "_delta_log" / f"{version:020d}.json").unlink()
    found = inspect_storage(folded)
    assert "commits are missing" in found.damaged[0].problem
    assert (found.whole_epoch, found.newest_epoch) == (2, 4)


@pytest.fixture
def summed_up(tmp_path: Path) -> Path:
    """A ledger with a checkpoint at epoch 101, and two epochs after it."""
    ledger = make_home(tmp_path / "home", 101)
    ledger = opened(tmp_path / "home")
    ledger._folder._checkpointed = 0  # pyright: ignore[reportPrivateUsage]
    ledger.tidy()
    add_epoch(ledger, 102)
    add_epoch(ledger, 103)
    return tmp_path / "home"


def test_a_checkpoint_stands_in_for_commits(summed_up: Path) -> None:
    log = summed_up / "ledger" / "_delta_log"
    assert len(list(log.glob("*.checkpoint.parquet"))) == 1
    assert inspect_storage(summed_up).ok
    flip(sorted(log.glob("*.json"))[0])
    found = inspect_storage(summed_up)
    assert found.ok
    assert "a checkpoint stands in for it" in found.damaged[0].problem
    assert opened(summed_up).epoch == 103


@pytest.mark.parametrize("harm", [flip, cut], ids=IDS[:2])
def test_a_damaged_checkpoint_is_named(summed_up: Path, harm: Callable[[Path], object]) -> None:
    (file,) = summed_up.glob("ledger/_delta_log/*.checkpoint.parquet")
    harm(file)
    found = inspect_storage(summed_up)
    assert not found.ok
    assert file.name in named(found)
    assert (found.whole_epoch, found.newest_epoch) == (None, 103)


def test_a_torn_checkpoint_can_go_while_its_commits_are_there(home: Path) -> None:
    log = home / "ledger" / "_delta_log"
    (log / "00000000000000000003.checkpoint.parquet").write_text("torn")
    found = inspect_storage(home)
    assert "remove it" in found.damaged[0].problem
    assert found.whole_epoch == 6


def test_a_damaged_base_log_is_named(folded: Path) -> None:
    file = sorted(folded.glob("tables/t/_delta_log/*.json"))[-1]
    cut(file)
    found = inspect_storage(folded)
    assert named(found) == {file.name}
    assert found.damaged[0].relation == TABLE
    assert found.whole_epoch == 6
    assert TABLE not in found.bases


def test_identities_are_only_a_cache(folded: Path) -> None:
    base = Base(base_folder(folded, TABLE))
    (cached,) = list(base.identity_files(base.files[0].name))
    flip(cached, -1)
    found = inspect_storage(folded)
    assert found.ok
    assert named(found) == {cached.name}
    assert "worked out anew" in found.damaged[0].problem
    # A row is found by its identity: fold must not trust the altered one.
    gone = row(1)
    gone.weights[:] = -1
    Base(base_folder(folded, TABLE)).fold(BASE_SCHEMAS[TABLE], gone, 5)
    assert inspect_storage(folded).damaged == ()


def test_a_damaged_change_feed_is_named(folded: Path) -> None:
    gone = row(1)
    gone.weights[:] = -1
    Base(base_folder(folded, TABLE)).fold(BASE_SCHEMAS[TABLE], gone, 5)
    (file,) = folded.glob("tables/t/_change_data/*")
    flip(file)
    found = inspect_storage(folded)
    assert not found.ok
    assert named(found) == {file.name}
    assert found.whole_epoch == 6


def test_broken_readers_are_named(home: Path) -> None:
    (home / "readers.json").write_text("[{")
    assert named(inspect_storage(home)) == {"readers.json"}


def test_what_a_crash_left_is_no_damage(home: Path) -> None:
    (home / "ledger" / ".tmp-1").write_text("half")
    (home / "deltas" / f"{7:012d}-t-{'0' * 64}.parquet").write_text("half")
    assert inspect_storage(home).damaged == ()


def test_a_file_that_a_running_owner_takes_away_is_no_damage(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleeting = home / "ledger" / ".tmp-1"
    fleeting.touch()
    real = inspection.size_of

    def gone_by_now(path: Path) -> int:
        if path == fleeting:
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(inspection, "size_of", gone_by_now)
    assert inspect_storage(home).damaged == ()


def test_a_folder_that_is_no_home(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        inspect_storage(tmp_path)


def test_a_lost_ledger_is_said(folded: Path) -> None:
    (folded / "ledger").rename(folded.parent / "ledger")
    found = inspect_storage(folded)
    assert not found.ok
    assert (found.whole_epoch, found.newest_epoch) == (None, 4)
    with pytest.raises(LedgerError, match="is missing"):
        opened(folded)
