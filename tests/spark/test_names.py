"""Names that must be quoted in SQL serve as well as any other, from the definition to the reopened home."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.sql.names import quoted
from tests.thinned import thinned

NAMES = ("123", "1e5", "7l", "select", "anti", "_", "_hidden", "a" * 126)


@pytest.mark.parametrize("name", thinned(NAMES, 4))
def test_a_relation_of_any_allowed_name_lives_a_whole_life(name: str, spark: SparkSession, tmp_path: Path) -> None:
    table, view = quoted(name), quoted(name + "_v")
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        hr.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, `a b` INT)")
        hr.execute(f"CREATE VIEW {view} AS SELECT id, `a b` + 1 AS n FROM {table}")
        hr.apply({name: [{"insert": {"id": 1, "a b": 1}}, {"insert": {"id": 2, "a b": 2}}]})
        hr.execute(f"INSERT INTO {table} VALUES (3, 3)")
        assert hr.query(f"SELECT sum(n) AS s FROM {view}").to_pylist() == [{"s": 9}]
        assert hr.verify().ok
    with headrace.open(str(tmp_path / "home"), spark=spark) as hr:
        hr.execute(f"ALTER TABLE {table} ADD COLUMN more STRING")
        assert hr.query(f"SELECT n FROM {view} JOIN {table} USING (id) WHERE more IS NULL").num_rows == 3
        hr.execute(f"DROP VIEW {view}")
        hr.execute(f"DROP TABLE {table}")
        with pytest.raises(headrace.RelationNameError):
            hr.query(f"SELECT * FROM {table}")
