"""A view or a query fails by the data, which is told and rejected, or by the machine, which is nobody's fault."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from headrace.errors import HeadraceError, QueryError, ViewEvaluationError, WorkFailed
from headrace.face import Headrace, home_of

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, s STRING, n BIGINT)"
# Expressions that fail on n = 0 or s = 'x' only, each by another condition of Spark.
FAULTS = {
    "division": "1 / n",
    "cast": "CAST(s AS INT)",
    "element": "element_at(array(1), CAST(2 - n AS INT))",
    "date": "make_date(2020, CAST(1 - 20 * (1 - n) AS INT) + 1, 1)",
    "overflow": "9223372036854775807 + (1 - n)",
    "raised": "IF(n = 0, raise_error('no zero'), n)",
    "parse": "to_timestamp(IF(n = 0, s, '2020-01-01'))",
}


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Any:
    with headrace.open(tmp_path / "home", spark=spark) as hr:
        yield hr


def insert(number: int, n: int = 1, s: str = "7") -> dict[str, list[dict[str, Any]]]:
    return {"t": [{"insert": {"id": number, "s": s, "n": n}}]}


def outcome(error: BaseException) -> str:
    return error.code if isinstance(error, HeadraceError) else repr(error)


def test_each_fault_of_the_data_rejects_its_call_and_names_its_row(home: Headrace) -> None:
    home.execute(TABLE)
    for name, expression in FAULTS.items():
        home.execute(f"CREATE VIEW v AS SELECT id, {expression} AS x FROM t")
        home.apply(insert(1))
        with pytest.raises(ViewEvaluationError) as caught:
            home.apply(insert(2, n=0, s="x"))
        assert caught.value.view == "v", name
        assert caught.value.row == {"id": 2, "s": "x", "n": 0}, name
        home.execute("DROP VIEW v")


def test_a_fault_leaves_nothing_behind_in_the_plan_that_is_kept(home: Headrace) -> None:
    # The builder of a map lives in the plan, and keeps what it had collected when a key came twice.
    home.execute(TABLE)
    home.execute("CREATE VIEW v AS SELECT id, map(s, n, '7', n) AS m FROM t")
    home.apply(insert(1, s="a"))
    with pytest.raises(ViewEvaluationError):
        home.apply(insert(2, s="7"))
    home.apply(insert(3, s="b"))
    assert home.query("SELECT count(*) AS n FROM v").to_pylist() == [{"n": 2}]
    assert home.verify().ok


def test_a_new_view_that_fails_on_what_is_there_is_not_told_of_a_change(home: Headrace) -> None:
    home.execute(TABLE)
    home.apply(insert(1, n=0))
    with pytest.raises(ViewEvaluationError, match="from what its tables hold") as caught:
        home.execute("CREATE VIEW v AS SELECT id, 1 / n AS x FROM t")
    assert "change" not in f"{caught.value.message} {caught.value.detail} {caught.value.hint}"


def test_a_large_fill_that_spark_writes_to_files_names_the_fault_too(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.open(tmp_path / "home", spark=spark, small_bound=1000) as home:
        home.execute(TABLE)
        home.execute("INSERT INTO t SELECT id, 's', id FROM range(2000)")
        with pytest.raises(ViewEvaluationError, match="from what its tables hold"):
            home.execute("CREATE VIEW v AS SELECT id, 1 / n AS x FROM t")


def test_a_lost_file_rejects_nobody(home: Headrace) -> None:
    """The machine fails once, in an epoch of three calls: none is called bad, and all can be sent again."""
    home.execute(TABLE)
    home.execute("CREATE VIEW v AS SELECT id, n + 1 AS x FROM t")
    home.apply(insert(1))
    (query,) = home_of(home).core.catalog.view("v").context.queries
    (leaf,) = query._paths
    write, runs = query._write, list[int]()

    def lose(i: int, table: Any) -> bool:
        grown = write(i, table)
        runs.append(i)
        if len(runs) == 1:
            leaf.unlink()
        return grown

    query._write = lose  # pyright: ignore[reportAttributeAccessIssue]
    calls = [home_of(home).loop.enter(home_of(home).loop.call(insert(number))) for number in (2, 3, 4)]
    outcomes: list[str] = []

    def settle(call: Any) -> None:
        try:
            home_of(home).loop.receipt_of(call)
            outcomes.append("applied")
        except HeadraceError as error:
            outcomes.append(outcome(error))

    threads = [threading.Thread(target=settle, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["work_failed"] * 3
    # Nobody was looked for: the work was done once.
    assert len(runs) == 1
    assert home.epoch == 3
    for number in (2, 3, 4):
        home.apply(insert(number))
    assert home.verify().ok
    assert home.query("SELECT count(*) AS n FROM v").to_pylist() == [{"n": 4}]


def test_a_query_fails_by_itself_or_by_the_machine(home: Headrace) -> None:
    home.execute(TABLE)
    home.execute("INSERT INTO t SELECT id, 's', 0 FROM range(60000)")
    for sql in ("SELECT 1 / n FROM t", "SELECT nothing_like_it FROM t WHERE id", "SELECT raise_error('x') FROM t"):
        with pytest.raises(QueryError):
            home.query(sql)
    assert home.query("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 60000}]

    def scratch() -> list[Path]:
        return [path for path in home_of(home)._disk.path.rglob("*.parquet") if path.is_file()]

    removed = scratch()
    assert removed
    for path in removed:
        path.unlink()
    # What somebody removed is made again.
    assert home.query("SELECT count(*) AS n FROM t WHERE s = 's'").to_pylist() == [{"n": 60000}]
    for path in scratch():
        path.write_bytes(b"no longer what was written")
    with pytest.raises(WorkFailed) as lost:
        home.query("SELECT count(*) AS n FROM t WHERE s = 'q'")
    assert lost.value.transient
