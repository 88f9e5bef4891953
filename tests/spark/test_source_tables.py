"""The tables that sources keep: read like any other, changed by sources alone, dropped when no source needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.errors import RelationNameError, SystemTable
from tests.spark.test_sources_at_work import LOG, put, rows, shop, shown, taken
from tests.waiting import until

KEPT = ["dead_letters", "source_progress", "s_raw"]


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    LOG.clear()
    yield
    LOG.clear()


@pytest.fixture
def fed(home: Any) -> Any:
    """A home with a source that has brought one change, and one dead letter."""
    shop(home)
    LOG.extend([put(1), put("no")])
    until(lambda: taken(home) == 2)
    return home


@pytest.mark.parametrize("name", KEPT)
def test_only_sources_change_what_they_keep(fed: Any, name: str) -> None:
    held = fed.query(f"SELECT * FROM {name}").to_pylist()
    column = next(iter(held[0]))
    for statement in (
        f"INSERT INTO {name} ({column}) VALUES ('x')",
        f"UPDATE {name} SET position = 'x'",
        f"DELETE FROM {name}",
        f"DROP TABLE {name}",
        f"ALTER TABLE {name} ADD COLUMN more INT",
        f"CREATE SOURCE other INTO {name} FROM FILES '/tmp'",
    ):
        with pytest.raises(SystemTable, match=name) as refused:
            fed.execute(statement)
        assert refused.value.hint
    with pytest.raises(SystemTable, match=name):
        fed.apply({name: [{"insert": {column: "x"}}]})
    assert fed.query(f"SELECT * FROM {name}").to_pylist() == held


def test_they_are_read_followed_and_used_by_views(fed: Any) -> None:
    fed.execute("CREATE VIEW dead AS SELECT source, count(*) AS n FROM dead_letters GROUP BY source")
    LOG.append(put("bad"))
    until(lambda: taken(fed) == 3)
    assert rows(fed, "SELECT * FROM dead") == [("s", 2)]
    assert fed.changes("dead_letters").num_rows == 2
    assert fed.verify().ok


def test_what_a_dropped_source_leaves_stays_until_it_is_dropped(tmp_path: Path, spark: SparkSession) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        shop(hr)
        LOG.extend([put(1), put("no")])
        until(lambda: taken(hr) == 2)
        hr.execute("DROP SOURCE s")
        with pytest.raises(SystemTable):
            hr.execute("DELETE FROM s_raw")
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert hr.query("SELECT count(*) AS n FROM s_raw").to_pylist() == [{"n": 2}]
        with pytest.raises(SystemTable):
            hr.apply({"s_raw": [{"insert": {"event_id": "x"}}]})
        hr.execute("DISCARD DEAD LETTERS WHERE source = 's'")
        hr.execute("DROP TABLE s_raw; DROP TABLE dead_letters; DROP TABLE source_progress")
        # All is made again for the next.
        LOG[:] = [put(7)]
        shop_again = f"CREATE SOURCE s INTO t FROM PYTHON '{put.__module__}:tail'"
        hr.execute(shop_again)
        until(lambda: shown(hr)["applied"] == 1)
        assert hr.query("SELECT count(*) AS n FROM s_raw").to_pylist() == [{"n": 1}]


def test_a_source_of_the_same_name_takes_over_what_the_former_left(fed: Any) -> None:
    fed.execute("DROP SOURCE s")
    LOG[:] = [put(5)]
    fed.execute(f"CREATE SOURCE s INTO t FROM PYTHON '{put.__module__}:tail'")
    until(lambda: shown(fed)["applied"] == 1)
    told = shown(fed)
    assert (told["received"], told["dead"]) == (2, 1)
    assert fed.query("SELECT count(*) AS n FROM s_raw").to_pylist() == [{"n": 3}]
    assert fed.verify().ok
    fed.execute("DISCARD DEAD LETTERS")
    assert fed.verify().ok


@pytest.mark.parametrize(
    "made", ["CREATE TABLE s_raw (id INT)", "CREATE TABLE dead_letters (id INT)", "CREATE VIEW s_raw AS SELECT 1 AS a"]
)
def test_a_relation_of_a_users_own_is_not_taken_for_one_of_them(home: Any, made: str) -> None:
    home.execute(made)
    with pytest.raises(RelationNameError, match="of yours"):
        shop(home)
    assert home.execute("SHOW SOURCES").num_rows == 0
