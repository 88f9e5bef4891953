"""What a source leaves behind that is dropped: what it brought, and no empty table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.errors import RelationNameError
from tests.bare_home import BareHome
from tests.waiting import until


@pytest.fixture
def home(tmp_path: Path) -> Iterator[BareHome]:
    opened = BareHome(tmp_path / "home")
    opened.create_table("t", StructType([StructField("id", LongType(), False)]), ("id",))
    (tmp_path / "in").mkdir()
    yield opened
    opened.close()


def create(home: BareHome, folder: Path) -> None:
    home.execute(f"CREATE SOURCE s INTO t FROM FILES '{folder}'")


def test_an_empty_raw_table_goes_with_its_source(home: BareHome, tmp_path: Path) -> None:
    create(home, tmp_path / "in")
    assert "s_raw" in home.core.catalog
    home.execute("DROP SOURCE s")
    assert "s_raw" not in home.core.catalog
    create(home, tmp_path / "in")
    assert "s_raw" in home.core.catalog
    home.execute("DROP SOURCE s")
    home.close()
    again = BareHome(tmp_path / "home")
    assert "s_raw" not in again.core.catalog
    again.close()


def test_what_came_stays(home: BareHome, tmp_path: Path) -> None:
    (tmp_path / "in" / "a.csv").write_text("id\n1\n")
    create(home, tmp_path / "in")
    until(lambda: home.query("SELECT * FROM t").num_rows > 0)
    home.execute("DROP SOURCE s")
    assert home.query("SELECT * FROM s_raw").num_rows == 1
    home.execute("DROP TABLE s_raw")


def test_a_raw_table_that_somebody_follows_stays(home: BareHome, tmp_path: Path) -> None:
    create(home, tmp_path / "in")
    home.execute(f"CREATE CHANGEFEED f FOR TABLE s_raw INTO FILES '{tmp_path / 'out'}'")
    home.execute("DROP SOURCE s")
    assert "s_raw" in home.core.catalog


def test_a_source_that_is_not_there_takes_no_table(home: BareHome) -> None:
    home.execute("DROP SOURCE IF EXISTS s")
    with pytest.raises(RelationNameError):
        home.execute("DROP SOURCE s")
