"""A home that is open for reading moves to its owner's newest epoch when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace import Headrace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def two(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Headrace, Headrace]]:
    with headrace.open(tmp_path / "home", spark=spark) as owner:
        owner.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, g STRING); CREATE VIEW v AS SELECT g, COUNT(*) AS n FROM t GROUP BY g"
        )
        owner.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        with headrace.open(tmp_path / "home", spark=spark, read_only=True) as reader:
            yield owner, reader


def rows(hr: Headrace, query: str = "SELECT * FROM v ORDER BY g") -> list[dict[str, object]]:
    return hr.query(query).to_pylist()


def test_a_reader_stays_at_its_epoch_until_it_is_refreshed(two: tuple[Headrace, Headrace]) -> None:
    owner, reader = two
    for number in range(3, 6):
        owner.apply({"t": [{"insert": {"id": number, "g": "a"}}, {"delete": {"id": 2}}]})
    assert (reader.epoch, rows(reader)) == (3, [{"g": "a", "n": 1}, {"g": "b", "n": 1}])
    assert reader.refresh() == owner.epoch == 6
    assert rows(reader) == rows(owner) == [{"g": "a", "n": 4}]
    assert reader.changes("v").num_rows == owner.changes("v").num_rows
    assert rows(reader, "SELECT COUNT(*) AS n FROM t VERSION AS OF 3") == [{"n": 2}]
    assert reader.verify().ok
    assert reader.refresh() == owner.refresh() == 6


@pytest.mark.slow
def test_a_refresh_brings_definitions_and_outlives_folding(two: tuple[Headrace, Headrace]) -> None:
    owner, reader = two
    owner.execute(
        "CREATE VIEW w AS SELECT COUNT(*) AS n FROM t; ALTER TABLE t ADD COLUMN c INT; INSERT INTO t VALUES (3, 'c', 7)"
    )
    assert reader.refresh() == owner.epoch
    assert rows(reader, "SELECT * FROM t WHERE id = 3") == [{"id": 3, "g": "c", "c": 7}]
    assert rows(reader, "SELECT * FROM w") == [{"n": 3}]
    owner.fold()
    owner.execute("DROP VIEW w; DELETE FROM t WHERE id = 1")
    owner.fold()
    assert reader.refresh() == owner.epoch
    assert rows(reader) == rows(owner) == [{"g": "b", "n": 1}, {"g": "c", "n": 1}]
    with pytest.raises(headrace.HeadraceError, match="unknown table or view"):
        reader.query("SELECT * FROM w")
    assert reader.verify().ok
