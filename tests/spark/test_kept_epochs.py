"""Who may fold, and what readers find beside an owner that joins epochs and lets them expire."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import EpochExpired, OwnerLost, ReadOnly
from headrace.face import home_of
from headrace.ledger.readers import Reader
from tests.changes import insert


def test_who_was_replaced_leaves_the_bases_alone(home: Any, spark: Any, tmp_path: Path) -> None:
    location = tmp_path / "home"
    (location / "owner.json").unlink()
    with headrace.open(str(location), spark=spark) as next_owner:
        next_owner.execute("CREATE TABLE made_later (a INT); INSERT INTO made_later VALUES (1)")
        next_owner.fold()
        with pytest.raises(OwnerLost):
            home.fold()
        with pytest.raises(OwnerLost):
            home.backup(tmp_path / "copy")
        assert (location / "tables" / "made_later").exists()
        next_owner.fold()
        assert next_owner.verify().ok


def test_a_reader_goes_on_when_the_owner_has_joined_what_it_read(spark: Any, tmp_path: Path) -> None:
    location = str(tmp_path / "home")
    with headrace.open(location, spark=spark, vacuum_grace=timedelta(0), keep_epochs=10, inline_bytes=0) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        hr.apply({"t": [insert(id=0)]})
        with headrace.open(location, spark=spark, read_only=True) as reader:
            for i in range(1, 4):
                hr.apply({"t": [insert(id=i)]})
            home_of(hr).readers.register(Reader("feed", 0, 100))
            for i in range(4, 41):
                hr.apply({"t": [insert(id=i)]})
            hr.fold()
            assert [row["id"] for row in reader.changes("t").to_pylist()] == [0]
            assert reader.query("SELECT * FROM t VERSION AS OF 1").num_rows == 0
            home_of(hr).readers.forget("feed")
            hr.fold()
            with pytest.raises(EpochExpired):
                reader.changes("t")
            with pytest.raises(ReadOnly):
                home_of(reader).readers.register(Reader("other", 0, 1))


def test_an_epoch_is_found_by_its_time_up_to_the_oldest(spark: Any, tmp_path: Path) -> None:
    with headrace.open(str(tmp_path / "home"), spark=spark, keep_epochs=10) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        times = {hr.epoch: home_of(hr).core.committed_at}
        for i in range(45):
            hr.apply({"t": [insert(id=i)]})
            times[hr.epoch] = home_of(hr).core.committed_at
        hr.fold()
        oldest = home_of(hr).core.ledger.oldest
        assert oldest == hr.epoch - 10
        for epoch in (oldest, oldest + 1, hr.epoch):
            found = hr.query(f"SELECT COUNT(*) AS n FROM t TIMESTAMP AS OF '{times[epoch].isoformat()}'").to_pylist()
            assert found == [{"n": epoch - 1}]
        with pytest.raises(EpochExpired, match=f"{oldest}"):
            hr.query(f"SELECT * FROM t TIMESTAMP AS OF '{times[oldest - 1].isoformat()}'")


def test_an_epoch_that_expires_while_it_is_read_is_no_gap(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with headrace.open(str(tmp_path / "home"), spark=spark, keep_epochs=10) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        for i in range(45):
            hr.apply({"t": [insert(id=i)]})
        entries = home_of(hr).core.ledger.entries

        def late(*arguments: Any) -> Any:
            monkeypatch.undo()
            hr.fold()
            return entries(*arguments)

        for read in (lambda: hr.changes("t", since=2), lambda: hr.query("SELECT * FROM t", epoch=2)):
            monkeypatch.setattr(home_of(hr).core.ledger, "entries", late)
            with pytest.raises(EpochExpired):
                read()


def test_an_opening_that_fails_leaves_nothing_running(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError("no sockets here")

    with monkeypatch.context() as broken:
        broken.setattr("headrace.home.Control", refuse)
        with pytest.raises(OSError, match="no sockets here"):
            headrace.open(str(tmp_path / "home"), spark=spark)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-fold")]
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        assert home_of(hr).fold_failure is None


def test_a_closed_home_does_not_fold(home: Any, tmp_path: Path) -> None:
    home.close()
    for verb in (home.fold, lambda: home.backup(tmp_path / "copy")):
        with pytest.raises(OwnerLost):
            verb()
