"""Workers that are killed, one or all, lose nothing: work goes on elsewhere, or is told to come again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.errors import WorkFailed
from tests.cluster.test_any_session import TABLES, VIEWS, filled, many, order
from tests.spark_cluster import Cluster

SLOW = "SELECT id, city, sum(amount) OVER (PARTITION BY city ORDER BY placed_at, id) AS running FROM orders"


def tasks_run(spark: Any) -> bool:
    """Whether some stage has tasks under way."""
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return any(info is not None and info.numActiveTasks > 0 for info in infos)


def kill_while_tasks_run(spark: Any, cluster: Cluster, number: int, wanted: threading.Event) -> None:
    until = time.monotonic() + 180
    while not (wanted.is_set() and tasks_run(spark)):
        assert time.monotonic() < until, "no task ran"
        time.sleep(0.01)
    cluster.kill_worker(number)


def test_a_worker_that_is_killed_in_the_middle_is_survived(home_folder: Path, spark: Any, cluster: Cluster) -> None:
    wanted = threading.Event()
    with filled(home_folder, spark, small_bound=5000) as hr, ThreadPoolExecutor(1) as other:
        killed = other.submit(kill_while_tasks_run, spark, cluster, 0, wanted)
        try:
            wanted.set()
            accepted = again(lambda: hr.apply({"orders": many()}, key="many"))
            killed.result()
            hr.apply({"orders": [order(1, "Rome", "3.00")]})
            assert hr.verify().ok
            assert hr.query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 60_000}]
            assert accepted.epoch == hr.epoch - 1
        finally:
            cluster.add_worker()


def again(work: Any, attempts: int = 3) -> Any:
    """Work that may be told to come again."""
    for _ in range(attempts - 1):
        try:
            return work()
        except WorkFailed as error:
            if not error.transient:
                raise
    return work()


def test_without_any_worker_work_is_given_up_and_done_later(home_folder: Path, spark: Any, cluster: Cluster) -> None:
    with headrace.open(home_folder, spark=spark, small_bound=100, spark_patience="PT3S") as hr:
        hr.execute(TABLES)
        hr.execute(f"CREATE VIEW doubled AS {VIEWS['doubled']}; CREATE VIEW slow AS {SLOW}")
        hr.apply({"orders": [order(1)]})
        for number, process in enumerate(cluster.workers):
            if process.poll() is None:
                cluster.kill_worker(number)
        try:
            # A small change needs no executor.
            hr.apply({"orders": [order(2)]})
            with pytest.raises(WorkFailed) as told:
                hr.apply({"orders": many(1000)})
            assert told.value.transient
            # Nor does a query of rows as they lie; one that Spark must work out is not to blame for that.
            assert hr.query("SELECT * FROM orders").num_rows == 2
            with pytest.raises(WorkFailed) as asked:
                hr.query("SELECT count(*) AS n FROM orders")
            assert asked.value.transient
            assert "executors" in asked.value.hint
        finally:
            cluster.add_worker()
            cluster.add_worker()
        again(lambda: hr.apply({"orders": many(1000)}), attempts=20)
        assert hr.verify().ok
        assert hr.query("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 1000}]
