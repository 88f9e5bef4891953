"""The medallion at a tiny scale: every view incremental, and right after ordinary and after hostile hours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from tests.judge.medallion import backfill, generate, hostile_hours, hours_of, judged


def compilations(spark: Any) -> int:
    """How many classes Spark has compiled so far."""
    metrics = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics
    return int(metrics.METRIC_COMPILATION_TIME().getCount())


@pytest.fixture(scope="module")
def shop(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A home with the snapshot read into it, and the folder of the data; both tests go on with the same one."""
    folder = tmp_path_factory.mktemp("shop")
    generate(folder / "data", 0.002, 3)
    with headrace.open(str(folder / "home"), spark=spark) as hr:
        backfill(hr, folder / "data")
        yield hr, folder / "data"


def test_one_absurd_lead_time_raises_alerts_at_once(shop: tuple[Any, Path]) -> None:
    hr, _ = shop
    count = "SELECT COUNT(*) AS n FROM gold_realtime_inventory_alerts"
    before = hr.query(count).to_pylist()[0]["n"]
    hr.execute("INSERT INTO bronze_suppliers VALUES (7, 'Blake and Sons', 'DE', 10000, now())")
    assert hr.query(count).to_pylist()[0]["n"] > before


def test_every_view_follows_ordinary_hours(shop: tuple[Any, Path], spark: Any) -> None:
    hr, data = shop
    views = hr.execute("SHOW VIEWS").to_pylist()
    assert [view["name"] for view in views if not view["incremental"]] == []
    assert len(views) == 15
    hours = list(hours_of(data, 3))
    hr.apply(hours[0][1])
    hr.apply(hours[1][1])
    before = compilations(spark)
    hr.apply(hours[2][1])
    assert compilations(spark) == before, "an ordinary epoch compiles nothing anew"
    assert hr.verify().ok


@pytest.mark.slow
def test_every_hostile_hour_is_right(shop: tuple[Any, Path]) -> None:
    hr, _ = shop
    wrong = [name for name, verdict, _ in judged(hr, hostile_hours(hr)) if not verdict.ok]
    assert wrong == []
