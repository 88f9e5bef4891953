"""A home works on a Spark whose executors are other processes, which read nothing of its own but the shared folder."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import headrace
from headrace.errors import SetupError
from headrace.face import home_of

TABLES = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, amount DECIMAL(10,2), placed_at TIMESTAMP);
CREATE TABLE cities (name STRING PRIMARY KEY, country STRING)
"""
# One for each way in which a rule asks Spark: kept in the driver, planned anew, filled.
VIEWS = {
    "doubled": "SELECT id, upper(city) AS city, amount * 2 AS twice FROM orders WHERE amount > 1",
    "placed": "SELECT o.id, c.country, o.placed_at FROM orders o JOIN cities c ON o.city = c.name",
    "found": "SELECT o.id, c.country FROM orders o LEFT JOIN cities c ON o.city = c.name",
    "ranked": "SELECT id, city, row_number() OVER (PARTITION BY city ORDER BY amount, id) AS n FROM orders",
    "revenue": "SELECT city, count(*) AS n, sum(amount * 2) AS total, max(amount) AS most FROM orders GROUP BY city",
    "cities_seen": "SELECT count(DISTINCT city) AS n FROM orders",
    "unknown": "SELECT id FROM orders WHERE city NOT IN (SELECT name FROM cities)",
    "pairs": "SELECT o.id, c.name FROM orders o, cities c WHERE o.amount > length(c.name) * 100",
    "days": "SELECT date_trunc('DAY', placed_at) AS day, avg(amount) AS mean FROM orders GROUP BY 1",
}
MANY = 60_000


def order(number: int, city: str = "Oslo", amount: str = "7.50") -> dict[str, Any]:
    moment = f"2024-01-{number % 28 + 1:02d}T{number % 24:02d}:30:00Z"
    return {"insert": {"id": number, "city": city, "amount": amount, "placed_at": moment}}


def many(count: int = MANY) -> list[dict[str, Any]]:
    return [order(number, f"city {number % 100}", f"{number % 1000}.25") for number in range(count)]


def filled(folder: Path, spark: Any, **settings: Any) -> headrace.Headrace:
    hr = headrace.open(folder, spark=spark, **settings)
    hr.execute(TABLES)
    for name, sql in VIEWS.items():
        hr.execute(f"CREATE VIEW {name} AS {sql}")
    return hr


def test_small_and_large_changes_are_followed(home_folder: Path, spark: Any) -> None:
    with filled(home_folder, spark, small_bound=5000) as hr:
        hr.apply({"cities": [{"insert": {"name": f"city {n}", "country": f"land {n % 7}"}} for n in range(90)]})
        for number in range(3):
            hr.apply({"orders": [order(number), order(number + 1, "city 3", "950.00")]})
        assert hr.verify().ok
        hr.apply({"orders": many()})
        assert hr.verify().ok
        hr.apply({"orders": [{"delete": {"id": number}} for number in range(0, MANY, 7)]})
        hr.apply({"orders": [order(number, "city 5", "1.75") for number in range(0, 900, 3)]})
        assert hr.verify().ok
        assert (home_folder / "scratch").is_dir()
        epoch, rows = hr.epoch, hr.query("SELECT * FROM revenue ORDER BY city").to_pylist()
    assert not (home_folder / "scratch").exists()
    with headrace.open(home_folder, spark=spark) as hr:
        assert hr.epoch == epoch
        assert hr.query("SELECT * FROM revenue ORDER BY city").to_pylist() == rows
        assert hr.query("SELECT max(placed_at) AS m FROM orders").to_pylist()[0]["m"].isoformat().endswith("+00:00")
        hr.apply({"orders": [order(MANY + 1)]})
        assert hr.verify().ok


def test_executors_read_nothing_of_the_driver_but_the_shared_folder(home_folder: Path, spark: Any) -> None:
    with headrace.open(home_folder, spark=spark) as hr:
        own, shared = home_of(hr).core.leaves, home_of(hr)._disk.path
        for folder, readable in ((own, False), (shared, True)):
            asked = subprocess.run(["test", "-r", str(folder)], user="nobody", extra_groups=[], check=False)
            assert (asked.returncode == 0) == readable


def test_what_executors_fill_is_logged_as_they_wrote_it(home_folder: Path, spark: Any) -> None:
    with headrace.open(home_folder, spark=spark, small_bound=5000, inline_bytes=1000) as hr:
        hr.execute(TABLES)
        hr.apply({"orders": many()})
        hr.execute(f"CREATE VIEW doubled AS {VIEWS['doubled']}; CREATE VIEW revenue AS {VIEWS['revenue']}")
        files = list((home_folder / "deltas").glob("*-doubled-*"))
        assert files
        assert {"parquet-mr" in pq.read_metadata(file).created_by for file in files} == {True}
        assert (
            sum(pq.read_metadata(file).num_rows for file in files)
            == hr.query("SELECT count(*) AS n FROM doubled").to_pylist()[0]["n"]
        )
        made = hr.changes("doubled")
        assert set(made.column("_change_type").to_pylist()) == {"insert"}
        hr.apply({"orders": [order(1, "Rome", "3.00")]})
    with headrace.open(home_folder, spark=spark) as hr:
        assert hr.verify().ok
        assert hr.query("SELECT * FROM doubled WHERE id = 1", epoch=hr.epoch - 1).num_rows == 1
        hr.apply({"orders": [{"delete": {"id": 1}}]})
        assert hr.verify().ok


def test_a_folder_that_executors_cannot_use_is_refused_at_once(home_folder: Path, spark: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(SetupError, match=r"do not share the folder .*private"):
        headrace.open(home_folder, spark=spark, shared_scratch=str(tmp_path / "private"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SetupError, match="cannot be told to Spark"):
        headrace.open(home_folder, spark=spark, shared_scratch=str(tmp_path / "a*b"))
    with pytest.raises(SetupError, match="needs a folder that its executors share"):
        headrace.open(home_folder, spark=spark, shared_scratch="s3://bucket/scratch")


def test_what_another_owner_left_behind_is_swept(home_folder: Path, spark: Any) -> None:
    left = home_folder / "scratch" / "headrace-left"
    left.mkdir(parents=True)
    (left / "in-use").touch()
    with headrace.open(home_folder, spark=spark):
        assert not left.exists()


def test_a_delta_source_that_only_spark_reads_needs_its_jars(home_folder: Path, spark: Any, cluster: Any) -> None:
    import deltalake
    import pyarrow as pa

    table = pa.table({"name": ["Oslo", "Rome"], "country": ["NO", "IT"]})
    deltalake.write_deltalake(str(cluster.shared / "parted"), table, partition_by=["country"])
    with headrace.open(home_folder, spark=spark) as hr:
        hr.execute(TABLES)
        with pytest.raises(SetupError, match="Delta") as told:
            hr.execute(f"CREATE SOURCE s INTO cities FROM DELTA '{cluster.shared / 'parted'}' WITH (mode = 'snapshot')")
        assert "delta-spark" in str(told.value)
