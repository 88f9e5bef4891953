"""Spark itself reads every base as a plain Delta table: its rows, its change feed, its epoch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.ledger import base as bases


def rows_of(table: Any) -> Counter[str]:
    return Counter(str(row) for row in table.to_pylist())


def test_spark_reads_bases_and_their_change_feed(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "_CHECKPOINT_EVERY", 2)
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        hr.execute("CREATE TABLE t (id INT PRIMARY KEY, city STRING, amount DECIMAL(10,2), at TIMESTAMP_NTZ)")
        hr.execute("CREATE TABLE bag (city STRING)")
        hr.execute(
            "CREATE VIEW totals AS SELECT city, SUM(amount) AS total, COUNT(*) AS `how many` FROM t GROUP BY city"
        )
        for turn in range(5):
            hr.apply(
                {
                    "t": [
                        {"insert": {"id": i, "city": f"c{i % 3}", "amount": f"{turn}.5", "at": "2025-01-01T00:00:00"}}
                        for i in range(turn, turn + 6)
                    ],
                    "bag": [{"insert": {"city": "a"}}, {"insert": {"city": "a"}}],
                }
            )
            if turn:
                hr.apply({"t": [{"delete": {"id": turn}}], "bag": [{"delete": {"city": "a"}}]})
            hr.fold()
        for name in ("t", "bag", "totals"):
            path = str(tmp_path / "home" / "tables" / name)
            frame = spark.read.format("delta").load(path)
            assert rows_of(frame.toArrow()) == rows_of(hr.query(f"SELECT * FROM {name}"))
            newest = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]
            assert json.loads(newest["userMetadata"])["epoch"] == hr.epoch
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        summed: Counter[tuple[int, str]] = Counter()
        for row in feed.load(str(tmp_path / "home" / "tables" / "t")).collect():
            summed[row["id"], str(row["amount"])] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
        held = Counter((row["id"], str(row["amount"])) for row in hr.query("SELECT id, amount FROM t").to_pylist())
        assert Counter({key: n for key, n in summed.items() if n}) == held
