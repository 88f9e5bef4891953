"""Positions of captured changes outlive what a home outlives: restarts, folds, and other columns of their table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headrace
from headrace.epoch.calls import Call
from headrace.face import home_of
from headrace.intake.positions import Captured, SourcePosition, sortable


def bring(hr: Any, table: str, offset: int, change: Any) -> tuple[int, int]:
    """Take a change as one of a source; how many were applied and stale."""
    at = datetime(2026, 1, 1, 0, 0, offset, tzinfo=UTC)
    position = SourcePosition(1, sortable((100 + offset,)), 1, offset, 0, at)
    loop = home_of(hr).loop
    receipt = loop.receipt_of(loop.enter(Call({table: Captured([change], [position])}, after=lambda _: {})))
    return receipt.applied[table], receipt.stale[table]


def put(number: int, n: int) -> Any:
    return {"insert": {"id": number, "n": n}}


def test_positions_outlive_restarts_folds_and_wider_keys(tmp_path: Path, spark: SparkSession) -> None:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); CREATE VIEW total AS SELECT sum(n) AS n FROM t")
        assert bring(hr, "t", 2, put(1, 20)) == (1, 0)
        assert bring(hr, "t", 4, {"delete": {"id": 2}}) == (1, 0)
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert bring(hr, "t", 1, put(1, 10)) == (0, 1)
        home_of(hr).fold()
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert bring(hr, "t", 3, put(2, 10)) == (0, 1)
        hr.execute("ALTER TABLE t ADD COLUMN m INT; ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
        assert bring(hr, "t", 3, put(2, 10)) == (0, 1)
        assert bring(hr, "t", 5, put(2, 50)) == (1, 0)
        assert hr.query("SELECT id, n FROM t ORDER BY id").to_pylist() == [{"id": 1, "n": 20}, {"id": 2, "n": 50}]
        assert hr.query("SELECT * FROM total").to_pylist() == [{"n": 70}]
        assert {one["name"] for one in hr.execute("SHOW TABLES").to_pylist()} == {"t"}
        hr.execute("DROP VIEW total; DROP TABLE t; CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)")
        assert bring(hr, "t", 1, put(1, 10)) == (1, 0)
        home_of(hr).fold()
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        assert bring(hr, "t", 0, put(1, 0)) == (0, 1)
        assert bring(hr, "t", 2, put(1, 2)) == (1, 0)
        assert hr.verify().ok
