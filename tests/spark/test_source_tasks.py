"""Tasks of Spark that are killed while a source is read: no epoch is committed by halves, each change counts once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headrace
from tests.waiting import until

ROWS, FILES, BOUND = 6_000, 3, 500
TASKS, JOBS = 8, 2


def _killing(spark: SparkSession, ended: threading.Event, killed: dict[str, int]) -> None:
    """Kill the first tasks as they come, which Spark begins anew, and some whole jobs, whose epoch fails for it."""
    java: Any = spark.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
    context, tracker = java.sc(), spark.sparkContext.statusTracker()
    while not ended.is_set() and (killed["tasks"] < TASKS or killed["jobs"] < JOBS):
        # In turn, for a job that is cancelled takes its tasks along.
        if killed["tasks"] < TASKS * (killed["jobs"] + 1) // (JOBS + 1) or killed["jobs"] == JOBS:
            killed["tasks"] += sum(
                bool(context.killTaskAttempt(task, True, "a test")) for task in _running(context, tracker)
            )
        elif active := tracker.getActiveJobsIds():
            context.cancelAllJobs()
            killed["jobs"] += len(active)
        time.sleep(0.02)


def _running(context: Any, tracker: Any) -> list[int]:
    """The tasks of the stages that are under way."""
    listed = [context.statusStore().taskList(stage, 0, 100) for stage in tracker.getActiveStageIds()]
    return [int(tasks.apply(number).taskId()) for tasks in listed for number in range(tasks.size())]


@pytest.fixture
def home(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """One whose epochs are worked out by jobs: a batch has more rows than the driver may read."""
    with headrace.open(tmp_path / "home", spark=spark, small_bound=BOUND) as hr:
        yield hr


def shown(home: Any) -> dict[str, Any]:
    (told,) = home.execute("SHOW SOURCES").to_pylist()
    assert told["state"] == "Running", told
    return told


@pytest.mark.slow
def test_a_source_goes_on_though_tasks_are_killed(
    home: Any, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    home.execute(
        """
        CREATE TABLE t (id BIGINT PRIMARY KEY, g STRING, n BIGINT);
        CREATE VIEW sums AS SELECT g, sum(n) AS total, count(*) AS n, count(DISTINCT n) AS d FROM t GROUP BY g;
        CREATE VIEW ranked AS SELECT * FROM (
          SELECT id, g, n, row_number() OVER (PARTITION BY g ORDER BY n DESC, id) AS r FROM t) WHERE r <= 3
        """
    )
    for number in range(FILES):
        mine = range(number * ROWS // FILES, (number + 1) * ROWS // FILES)
        lines = [json.dumps({"insert": {"id": one, "g": f"g{one % 50}", "n": one % 997}}) for one in mine]
        (folder / f"{number}.ndjson").write_text("\n".join(lines))
    ended, killed = threading.Event(), {"tasks": 0, "jobs": 0}
    killer = threading.Thread(target=_killing, args=(spark, ended, killed))
    killer.start()
    try:
        home.execute(f"CREATE SOURCE s INTO t FROM FILES '{folder}' WITH (max_records = {ROWS // FILES})")
        until(lambda: shown(home)["applied"] == ROWS)
    finally:
        ended.set()
        killer.join()
    assert killed["tasks"] >= TASKS, "else nothing is shown"
    assert killed["jobs"] >= JOBS
    assert "could not be worked out" in caplog.text
    told = shown(home)
    assert (told["received"], told["dead"], told["stale"]) == (ROWS, 0, 0)
    assert home.query("SELECT count(*) AS n, count(DISTINCT event_id) AS d FROM s_raw").to_pylist() == [
        {"n": ROWS, "d": ROWS}
    ]
    assert home.verify().ok
