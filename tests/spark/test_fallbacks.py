"""What has no rule, or is too large for one, is still maintained and still right."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace

TABLES = """
    CREATE TABLE l (id BIGINT PRIMARY KEY, x INT, y INT);
    CREATE TABLE r (id BIGINT PRIMARY KEY, x INT, z INT);
    CREATE TABLE bag (a INT, s STRING)
"""

VIEWS = {
    "any_row": "SELECT id FROM l WHERE EXISTS (SELECT 1 FROM r WHERE z > 5)",
    "any_row_shown": "SELECT id, EXISTS (SELECT 1 FROM r WHERE z > 6) AS q FROM l",
    "recursive": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) "
    "SELECT c.n, l.id FROM c JOIN l ON l.x = c.n",
    "collated": "SELECT COUNT(*) AS n FROM (SELECT collate(s, 'UTF8_LCASE') AS k FROM bag) GROUP BY k",
    "today": "SELECT DISTINCT x, current_date() AS d FROM l",
    "totals": "SELECT x, COUNT(*) AS n, SUM(y) AS s, AVG(y) AS a, MAX(y) AS m FROM l GROUP BY x",
    "pairs": "SELECT l.id AS lid, r.id AS rid FROM l LEFT JOIN r ON l.x = r.x",
    "numbered": "SELECT id, ROW_NUMBER() OVER (PARTITION BY x ORDER BY y, id) AS n FROM l",
    "first_two": "SELECT id, y FROM l ORDER BY y DESC NULLS LAST, id LIMIT 2",
}


def _changes(rng: random.Random) -> dict[str, list[dict[str, Any]]]:
    def row(value: str) -> dict[str, Any]:
        return {"id": rng.randrange(15), "x": rng.choice([None, 1, 2, 3]), value: rng.choice([None, 1, 5, 6, 7])}

    def listed(value: str) -> list[dict[str, Any]]:
        return [
            {"insert": row(value)} if rng.random() < 0.7 else {"delete": {"id": rng.randrange(15)}} for _ in range(6)
        ]

    return {"l": listed("y"), "r": listed("z"), "bag": [{"insert": {"a": 1, "s": rng.choice(["a", "A", "b"])}}]}


@pytest.mark.parametrize("bound", [4, pytest.param(200_000, marks=pytest.mark.slow)])
def test_views_stay_right_by_rule_and_by_refill(spark: SparkSession, tmp_path: Path, bound: int) -> None:
    """A bound of four rows sends nearly every change the way of a backfill; both ways must agree with the judge."""
    rng = random.Random(11)
    with headrace.open(tmp_path / "home", spark=spark, small_bound=bound) as hr:
        hr.execute(TABLES)
        for name, sql in VIEWS.items():
            hr.execute(f"CREATE VIEW {name} AS {sql}")
        for _ in range(4):
            hr.apply(_changes(rng))
            verdict = hr.verify()
            assert verdict.ok, str(verdict)
        assert not hr.explain("recursive").incremental
        assert "UnionLoop" in str(hr.explain("recursive"))
        assert not hr.explain("collated").incremental
        assert hr.explain("totals").incremental


def test_a_backfill_past_the_bound_reaches_every_view(spark: SparkSession, tmp_path: Path) -> None:
    """More rows in one statement than the bound: the table, its views and later small changes are right."""
    with headrace.open(tmp_path / "home", spark=spark, small_bound=1_000) as hr:
        hr.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v INT)")
        hr.execute("CREATE VIEW totals AS SELECT g, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY g")
        receipt = hr.execute("INSERT INTO t SELECT id, CAST(id % 7 AS INT), CAST(id AS INT) FROM range(5000)")
        assert isinstance(receipt, headrace.Receipt)
        assert receipt.applied == {"t": 5000}
        assert hr.verify().ok
        hr.apply({"t": [{"delete": {"id": 3}}, {"insert": {"id": 9_999, "g": 1, "v": 1}}]})
        assert hr.verify().ok
        assert hr.query("SELECT SUM(n) AS n FROM totals").to_pylist() == [{"n": 5000}]
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert hr.verify().ok


def test_many_changes_since_a_large_run_are_read_through_files(spark: SparkSession, tmp_path: Path) -> None:
    """When recent changes outgrow memory, queries read a merged file, which must outlive the merge."""
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v INT)")
        hr.execute("INSERT INTO t SELECT id, CAST(id AS INT) FROM range(1000000)")
        hr.execute("UPDATE t SET v = v + 1 WHERE id < 150000")
        assert len(hr.snapshots()["t"].runs) == 2
        assert hr.query("SELECT COUNT(*) AS n, SUM(v - id) AS s FROM t").to_pylist() == [{"n": 1_000_000, "s": 150_000}]
