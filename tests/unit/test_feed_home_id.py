"""The id of a home, which a restored copy does not have; without Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.types import IntegerType, StructField, StructType

from headrace.feeds.home_id import home_id
from headrace.offline import backup_home, restore_home
from tests.bare_home import BareHome
from tests.feed_receiver import Receiver, create, numbers
from tests.waiting import until


def test_a_restored_home_has_another_id(tmp_path: Path, receiver: Receiver) -> None:
    home = BareHome(tmp_path / "home")
    home.create_table("t", StructType([StructField("id", IntegerType(), False)]), ("id",))
    home.apply({"t": [{"insert": {"id": 1}}]})
    create(home)
    until(lambda: numbers(receiver) == [1])
    home.close()
    first = receiver.targets[-1].home
    assert len(first) == 32
    assert home_id(tmp_path / "home") == first
    backup_home(tmp_path / "home", tmp_path / "backup")
    restore_home(tmp_path / "backup", tmp_path / "again")
    assert home_id(tmp_path / "again") not in ("", first)
    restore_home(tmp_path / "backup", tmp_path / "instead", live=True)
    assert home_id(tmp_path / "instead") == first
