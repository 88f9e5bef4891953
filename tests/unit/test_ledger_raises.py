"""Whatever is raised between two steps of a commit leaves the old epoch or the new one, on disk and in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.errors import LedgerError, OwnerLost
from headrace.ledger import delta_log, durable
from headrace.ledger.base import Base
from headrace.ledger.ledger import Head, Ledger
from headrace.ledger.names import is_kept
from headrace.storage.objects import Location, ObjectPath
from tests.checks.storage import orphans
from tests.small_homes import (
    BASE_SCHEMAS,
    TABLE,
    add_epoch,
    base_folder,
    files_of,
    fold,
    make_home,
    opened,
    row,
    rows_at,
    rows_of_base,
)

BEFORE = ("file written", "files written", "data written", "log written")
ERRORS = {"interrupt": KeyboardInterrupt, "error": RuntimeError, "full": OSError}
AnyError = (KeyboardInterrupt, RuntimeError, OSError, LedgerError)


@pytest.fixture(autouse=True)
def nothing_raised_later() -> Iterator[None]:
    yield
    raise_at("")


def raise_at(point: str) -> None:
    durable._crash_at = point  # pyright: ignore[reportPrivateUsage]


class Interrupting(list[Head]):
    """Ctrl-C between the commit and the next statement."""

    def append(self, _: Head) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_after_the_commit_leaves_the_files_of_the_epoch(location: Location) -> None:
    ledger = make_home(location, 1)
    ledger._heads = Interrupting(ledger.heads())  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(KeyboardInterrupt):
        add_epoch(ledger, 2, width=5000)
    assert ledger.epoch == 2
    assert [epoch for epoch, _ in rows_at(location, 2)] == [1, 2]
    assert orphans(location) == []


@pytest.mark.parametrize("inline_bytes", [0, 4096])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("point", BEFORE)
def test_what_is_raised_before_the_commit_leaves_the_old_epoch(
    location: Location, point: str, error: str, inline_bytes: int
) -> None:
    ledger = make_home(location, 2, inline_bytes)
    before = files_of(location)
    raise_at(f"{point}!{error}")
    with pytest.raises(AnyError):
        add_epoch(ledger, 3)
    assert opened(location).epoch == ledger.epoch == 2
    if isinstance(location, ObjectPath) and point == "log written" and error != "full":
        # A request may have been under way, for all that is known: nothing goes, and the home is to be opened again.
        with pytest.raises(LedgerError, match="has not confirmed"):
            add_epoch(ledger, 3)
        return
    assert files_of(location) == before
    add_epoch(ledger, 3)
    assert [epoch for epoch, _ in rows_at(location, 3)] == [1, 2, 3]


@pytest.mark.parametrize("error", ["interrupt", "error"])
@pytest.mark.parametrize("point", ["log named", "committed"])
def test_what_is_raised_after_the_commit_leaves_the_new_epoch(location: Location, point: str, error: str) -> None:
    ledger = make_home(location, 2, inline_bytes=0)
    raise_at(f"{point}!{error}")
    with pytest.raises(ERRORS[error]):
        add_epoch(ledger, 3)
    assert ledger.epoch == 3
    assert [epoch for epoch, _ in rows_at(location, 3)] == [1, 2, 3]
    assert orphans(location) == []
    add_epoch(ledger, 4)
    assert [epoch for epoch, _ in rows_at(location, 4)] == [1, 2, 3, 4]


def test_a_disk_that_is_full_once_the_commit_is_named_has_taken_it(location: Location) -> None:
    ledger = make_home(location, 2, inline_bytes=0)
    raise_at("log named!full")
    add_epoch(ledger, 3)
    assert ledger.epoch == 3
    assert [epoch for epoch, _ in rows_at(location, 3)] == [1, 2, 3]
    add_epoch(ledger, 4)
    assert [head.epoch for head in opened(location).heads()] == [1, 2, 3, 4]
    assert orphans(location) == []


def test_a_commit_that_cannot_be_looked_for_is_not_denied(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = make_home(location, 2)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    raise_at("log named!full")
    with monkeypatch.context() as patched:
        patched.setattr(type(location), "is_file", refuse)
        patched.setattr(type(location), "read_bytes", refuse)
        with pytest.raises(LedgerError, match="has not confirmed") as told:
            add_epoch(ledger, 3)
    assert not told.value.transient
    assert "may be there" in told.value.detail
    with pytest.raises(LedgerError, match="has not confirmed") as later:
        add_epoch(ledger, 3)
    assert "nothing of this one was done" in later.value.detail
    assert opened(location).epoch == 3


def test_a_second_interrupt_while_the_first_is_looked_into_changes_nothing(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make_home(location, 2)
    raise_at("log named!interrupt")
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_withdraw", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            add_epoch(ledger, 3)
    with pytest.raises(LedgerError, match="epoch 3 does not follow epoch 3"):
        add_epoch(ledger, 3)
    assert [head.epoch for head in opened(location).heads()] == [1, 2, 3]


@pytest.mark.parametrize("epoch", [1, 2, 4])
def test_an_epoch_that_does_not_follow_the_newest_is_refused(location: Location, epoch: int) -> None:
    ledger = make_home(location, 2)
    before = files_of(location)
    with pytest.raises(LedgerError, match=f"epoch {epoch} does not follow epoch 2"):
        add_epoch(ledger, epoch)
    assert files_of(location) == before


@pytest.mark.parametrize("error", ["interrupt", "error"])
@pytest.mark.parametrize("point", ["file written", "segment written", "log written", "log named", "segment committed"])
def test_what_is_raised_while_segments_are_joined_loses_no_row(location: Location, point: str, error: str) -> None:
    ledger = make_home(location, 4, inline_bytes=0)
    raise_at(f"{point}!{error}")
    with pytest.raises(ERRORS[error]):
        ledger.compact(4, 0, is_kept, 1)
    assert [epoch for epoch, _ in rows_at(location, 4)] == [1, 2, 3, 4]
    if not (isinstance(location, ObjectPath) and point == "log written"):
        add_epoch(ledger, 5)
        ledger.compact(5, 0, is_kept, 1)
        assert [epoch for epoch, _ in rows_at(location, 5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("error", ["interrupt", "error"])
@pytest.mark.parametrize("point", ["rows written", "base written", "log written", "log named", "base committed"])
def test_what_is_raised_while_a_base_is_written_leaves_one_of_its_epochs(
    location: Location, point: str, error: str
) -> None:
    ledger = make_home(location, 2)
    fold(location, ledger, 1)
    base = Base(base_folder(location, TABLE))
    raise_at(f"{point}!{error}")
    with pytest.raises(ERRORS[error]):
        base.fold(BASE_SCHEMAS[TABLE], row(2), 2)
    reached = Base(base_folder(location, TABLE)).epoch
    assert reached == base.epoch == (2 if point in ("log named", "base committed") else 1)
    assert [epoch for epoch, _ in rows_of_base(location)] == list(range(1, reached + 1))


def test_a_failed_commit_changes_no_schema(location: Location) -> None:
    ledger = make_home(location, 1)
    fold(location, ledger, 1)
    base = Base(base_folder(location, TABLE))
    wider = BASE_SCHEMAS["t#tombstones"]
    raise_at("log written!full")
    with pytest.raises(LedgerError):
        base.replace(wider, [row(1)], 1)
    assert base.fits(BASE_SCHEMAS[TABLE])
    assert not base.fits(wider)


def test_a_writer_that_lost_its_turn_withdraws_its_own_files(location: Location) -> None:
    ledger = make_home(location, 1, inline_bytes=0)
    other = opened(location)
    other.claim(2)
    before = files_of(location)
    with pytest.raises(OwnerLost):
        add_epoch(ledger, 2)
    assert files_of(location) == before


def test_a_commit_is_worked_out_before_it_is_put(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = make_home(location, 1)
    before = files_of(location)
    monkeypatch.setattr(delta_log, "_add", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        add_epoch(ledger, 2)
    monkeypatch.undo()
    assert files_of(location) == before
    monkeypatch.setattr("os.fsync", lambda _: None)
    add_epoch(ledger, 2)
    assert opened(location).epoch == 2
