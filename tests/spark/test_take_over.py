"""A home that was open for reading is owned by its process when the owner is gone, and goes on as that one would."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace import Headrace
from headrace.cli.standby import stand_by
from headrace.face import home_of
from tests.thinned import thinned
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.java
SQL = "CREATE TABLE t (id INT, g STRING); CREATE VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g"


def rows(hr: Headrace, query: str = "SELECT * FROM v ORDER BY g") -> list[dict[str, object]]:
    return hr.query(query).to_pylist()


def insert(hr: Headrace, number: int, key: str | None = None) -> headrace.Receipt:
    return hr.apply({"t": [{"insert": {"id": number, "g": "a" if number % 2 else "b"}}]}, key)


def test_whoever_takes_over_has_all_that_was_acknowledged_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as owner:
        owner.execute(SQL)
        with headrace.open(tmp_path / "home", spark=spark, read_only=True) as reader:
            with pytest.raises(headrace.HomeBusy):
                home_of(reader).take_over()
            with pytest.raises(headrace.ReadOnly):
                insert(reader, 1)
            first = insert(owner, 1, "one")
            reader.refresh()
            rules = [view.rule for view in home_of(reader).core.catalog.views()]
            # Folded away before the reader saw it: its state comes from the bases, and its rules stay.
            second = insert(owner, 2, "two")
            owner.fold()
            insert(owner, 3)
            owner.close()
            home_of(reader).take_over()
            assert [view.rule for view in home_of(reader).core.catalog.views()] == rules
            assert rows(reader) == [{"g": "a", "n": 2}, {"g": "b", "n": 1}]
            # A writer that had no answer sends again what was done.
            assert insert(reader, 1, "one").epoch == first.epoch
            assert insert(reader, 2, "two").epoch == second.epoch
            assert insert(reader, 4, "four").epoch == reader.epoch
            assert rows(reader) == [{"g": "a", "n": 2}, {"g": "b", "n": 2}]
            reader.execute("CREATE VIEW w AS SELECT COUNT(*) AS n FROM v")
            reader.fold()
            assert rows(reader, "SELECT * FROM w") == [{"n": 2}]
            assert reader.verify().ok
            with pytest.raises(headrace.HomeBusy):
                headrace.open(tmp_path / "home", spark=spark)
    with headrace.open(tmp_path / "home", spark=spark) as again:
        assert rows(again) == [{"g": "a", "n": 2}, {"g": "b", "n": 2}]


def test_who_stands_by_for_nobody_owns_the_home_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as owner:
        owner.execute(SQL)
        insert(owner, 1)
    with headrace.open(tmp_path / "home", spark=spark, read_only=True) as reader:
        stand_by(home_of(reader))
        insert(reader, 2)
        assert rows(reader) == [{"g": "a", "n": 1}, {"g": "b", "n": 1}]


def test_of_those_who_stand_by_for_a_home_that_is_not_there_one_makes_it(spark: SparkSession, tmp_path: Path) -> None:
    with (
        headrace.open(tmp_path / "home", spark=spark, read_only=True) as first,
        headrace.open(tmp_path / "home", spark=spark, read_only=True) as second,
    ):
        assert not (tmp_path / "home").exists()
        stand_by(home_of(first))
        with pytest.raises(headrace.HomeBusy):
            home_of(second).take_over()
        first.execute(SQL)
        insert(first, 1)
        second.refresh()
        assert rows(second) == [{"g": "a", "n": 1}]
        first.close()
        stand_by(home_of(second))
        insert(second, 2)
        assert rows(second) == [{"g": "a", "n": 1}, {"g": "b", "n": 1}]


@pytest.mark.parametrize("left", thinned(["another home", "nothing", "an empty folder"], 3))
def test_who_loses_sight_of_the_home_takes_nothing_over_until_it_is_back(
    spark: SparkSession, tmp_path: Path, left: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a mount is gone: the owner goes on with the home, and what is in its place says nothing of that."""
    disk, bare, mount = tmp_path / "disk", tmp_path / "bare", tmp_path / "mount"
    disk.mkdir()
    bare.mkdir()
    mount.symlink_to(disk)
    if left == "an empty folder":
        (bare / "home").mkdir()
    if left == "another home":
        headrace.open(bare / "home", spark=spark).close()
    before = sorted(bare.rglob("*"))
    with headrace.open(disk / "home", spark=spark) as owner:
        owner.execute(SQL)
        with headrace.open(mount / "home", spark=spark, read_only=True) as reader:
            mount.unlink()
            mount.symlink_to(bare)
            with pytest.raises(headrace.LedgerOutOfSight):
                home_of(reader).take_over()
            tries = list[int]()
            take_over = home_of(reader).take_over
            monkeypatch.setattr(home_of(reader), "take_over", lambda: (tries.append(1), take_over())[1])
            waiting = threading.Thread(target=stand_by, args=(home_of(reader),), daemon=True)
            waiting.start()
            until(lambda: len(tries) >= 3)
            assert waiting.is_alive()
            assert sorted(bare.rglob("*")) == before
            insert(owner, 1)
            told = [one.getMessage() for one in caplog.records if "taken over" in one.getMessage()]
            assert len(told) == 1
            assert "out of sight" in told[0]
            mount.unlink()
            mount.symlink_to(disk)
            until(lambda: any("has an owner again" in one.getMessage() for one in caplog.records))
            assert waiting.is_alive()
            owner.close()
            waiting.join(PATIENCE)
            assert not waiting.is_alive()
            insert(reader, 2)
            assert rows(reader) == [{"g": "a", "n": 1}, {"g": "b", "n": 1}]
