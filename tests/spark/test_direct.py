"""A plan that runs in the driver leaves Spark as it was, whichever thread it ran in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.plans.catalyst import Catalyst
from headrace.plans.direct import directly

# The numbers of Java threads around that by which a plan would be numbered -1024: this is what Spark calls every thread
# without a task, and by it all of the driver holds what it broadcasts.
_THREADS = (1022, 1023, 1024)
_JOINED = "SELECT /*+ BROADCAST(b) */ a.id FROM range(10) a JOIN range(5) b ON a.id = b.id"


@pytest.mark.parametrize("number", _THREADS)
def test_a_plan_takes_no_broadcast_from_the_driver(spark: SparkSession, tmp_path: Path, number: int) -> None:
    catalyst = Catalyst(spark)
    jvm: Any = spark.sparkContext._jvm
    field = jvm.java.lang.Class.forName("java.lang.Thread").getDeclaredField("tid")
    field.setAccessible(True)

    def run() -> int:
        # One Python thread is served by one Java thread.
        thread = jvm.java.lang.Thread.currentThread()
        before = thread.getId()
        field.setLong(thread, number)
        try:
            executed = spark.range(0, 3, 1, 1)._jdf.queryExecution().executedPlan()
            direct = directly(catalyst, executed, tmp_path / "rows.arrow")
            assert direct is not None
            return direct.rows().num_rows
        finally:
            field.setLong(thread, before)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(run).result() == 3
    assert spark.sql(_JOINED).count() == 5
