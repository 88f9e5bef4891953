"""A home of an older release opens, verified, and goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = Path(__file__).parents[1] / "fixtures" / "home-format-1"


def test_an_old_home_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    home = Path(shutil.copytree(OLD, tmp_path / "home"))
    with pytest.raises(headrace.HeadraceError, match="older release"):
        headrace.open(home, spark=spark, read_only=True)
    with headrace.open(home, spark=spark) as hr:
        # Its views were made by a release that told nothing of their hidden state: one epoch fills them anew.
        assert hr.epoch == 8
        views = hr.execute("SHOW VIEWS").column("name").to_pylist()
        assert [hr.changes(name, since=7).num_rows for name in views] == [0] * len(views)
        assert hr.verify().ok
        assert hr.apply({"orders": []}, key="first").epoch == 4
        assert hr.query("SELECT count(*) AS n FROM visits").to_pylist() == [{"n": 2}]
        assert hr.query("SELECT count(*) AS n FROM orders", epoch=6).to_pylist() == [{"n": 40}]
        hr.apply({"orders": [{"delete": {"id": 5}}]})
        hr.fold()
    with headrace.open(home, spark=spark) as hr:
        assert hr.query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 38}]
        assert hr.verify().ok
