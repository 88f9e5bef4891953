"""Start Spark with Delta, and tune one session for small deltas and one for large ones."""

from __future__ import annotations

import atexit
import gc
import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace import jars
from headrace.errors import SetupError
from headrace.java import find_java, launcher_home
from headrace.scratch import Scratch
from headrace.settings import Settings

_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

# What results depend on: the same in every session, so that small, large and judge agree.
_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The default runs 50 tasks to read the state of a table's log.
    "spark.databricks.delta.snapshotPartitions": "2",
}

# What a query may reach in our own sessions: relations of the home, but no files and no variables of the environment.
_REACH = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}

_SMALL = {
    **_MEANING,
    # Planning, not data, is the cost here: one partition, and no Exchange that a kept plan would remember.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.join.forceApplyShuffledHashJoin": "true",
    # Two settings that stop the planner from shuffling by estimated size.
    "spark.sql.maxSinglePartitionBytes": "1t",
    "spark.sql.sources.fileCompressionFactor": "0.0001",
    # A runtime filter is remembered by a kept plan and would hide later rows.
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
}


def start_spark(settings: Settings, java_options: str = "", **changed: str | None) -> SparkSession:
    """A local Spark with Delta, quiet and in UTC; the running one if this process has one already.

    Options may be changed, or left out with None.
    """
    if SparkContext._active_spark_context is not None:  # pyright: ignore[reportPrivateUsage]
        return _running_session()
    scratch = Scratch()
    atexit.register(scratch.close)
    cores = "*" if settings.spark_cores is None else str(settings.spark_cores)
    with as_file(files("headrace").joinpath("log4j2.properties")) as quiet:
        options: dict[str, str | int | float | bool | None] = {
            **_MEANING,
            "spark.app.name": "headrace",
            "spark.jars": ",".join(str(path) for path in jars.paths(settings.jars)),
            "spark.sql.extensions": _DELTA_EXTENSION,
            "spark.sql.catalog.spark_catalog": _DELTA_CATALOG,
            "spark.driver.memory": settings.spark_memory,
            # This collector leaves the processor to the epochs; the default one works beside them all the time.
            "spark.driver.extraJavaOptions": " ".join(
                ("-XX:+UseParallelGC", f"-Dlog4j2.configurationFile={quiet.as_uri()}", java_options)
            ).strip(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch.path / "local"),
            "spark.sql.warehouse.dir": str(scratch.path / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Each view brings a dozen generated classes, used in every epoch. Where there are more than fit, all are
            # compiled anew each time; the default of 100 is less than ten views need.
            "spark.sql.codegen.cache.maxEntries": "20000",
            # Spark remembers finished work for a screen that is off; a home lives long, so it keeps little.
            "spark.ui.retainedJobs": "50",
            "spark.ui.retainedStages": "50",
            "spark.ui.retainedTasks": "1000",
            "spark.sql.ui.retainedExecutions": "10",
            # A task that asks for more memory than there is fails its own query, not the process.
            "spark.executor.killOnFatalError.depth": "0",
            # This executor lives as long as its driver, so nobody need hear that it does. In Spark 4.2 a heartbeat that
            # meets a task of a cached relation half-read is the last one, and the executor is then given up as lost.
            "spark.executor.heartbeatInterval": "1h",
            "spark.network.timeout": "2h",
            "spark.rpc.askTimeout": "2min",
            **changed,
        }
        options = {name: value for name, value in options.items() if value is not None}
        with _java_home(launcher_home(find_java(), settings.jars.parent / "java")):
            spark = SparkSession.builder.master(f"local[{cores}]").config(map=options).getOrCreate()
    _keep_generated_classes(spark)
    # PySpark prints every failed query with its whole stack; the caller gets the same as an exception.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # What is loaded by now stays for good: Python need not look through it for garbage, epoch after epoch.
    gc.freeze()
    return spark


def _keep_generated_classes(spark: SparkSession) -> None:
    """Have the cache of generated classes made now, by the settings of this session.

    It is made once, by whichever thread compiles first, and a thread without a session would give it the default size.
    """
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # pyright: ignore
    getattr(jvm.org.apache.spark.sql.catalyst.expressions.codegen, "CodeGenerator$").__getattr__("MODULE$")


def small_session(spark: SparkSession) -> SparkSession:
    """A session of the same Spark, tuned for deltas of up to some thousand rows."""
    return _tuned(spark, _SMALL)


def large_session(spark: SparkSession) -> SparkSession:
    """A session of the same Spark, tuned for backfills and full recomputes."""
    partitions = 2 * spark.sparkContext.defaultParallelism
    return _tuned(
        spark,
        {**_MEANING, "spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": str(partitions)},
    )


def _tuned(spark: SparkSession, options: Mapping[str, str]) -> SparkSession:
    # A new session, because the given one may be the user's and keeps its settings.
    session = spark.newSession()
    for name, value in {**options, **_REACH}.items():
        session.conf.set(name, value)
    return session


def _running_session() -> SparkSession:
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    if _DELTA_EXTENSION not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise SetupError(
            "this process already runs a Spark without Delta",
            detail=f"spark.sql.extensions does not name {_DELTA_EXTENSION}.",
            hint="stop that Spark first, or start it with Delta and give it to headrace.open as spark=",
        )
    return session


@contextmanager
def _java_home(home: Path) -> Generator[None, None, None]:
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before
