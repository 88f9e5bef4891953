"""What a Spark is started with: a local one, or the driver of a cluster."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from headrace.errors import SetupError
from headrace.settings import Settings
from headrace.spark import jars

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

# What results depend on: the same in every session, so that small, large and judge agree.
MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The default runs 50 tasks to read the state of a table's log.
    "spark.databricks.delta.snapshotPartitions": "2",
}

# By the locale of its machine, a JVM could give upper() and lower() another meaning than others do.
_LOCALE = "-Duser.language=en -Duser.country=US"

# Where the heap is full, whichever thread asks next dies, and whoever waits for it waits for ever: the JVM must end
# whole. So must one that spends four fifths of its time, over several collections, to win back less than a tenth.
_ENDS_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError -XX:GCTimeLimit=80 -XX:GCHeapFreeLimit=10"

_OF_DRIVER = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


@contextmanager
def options_of(
    settings: Settings, java_options: str, changed: Mapping[str, str | None], scratch: Path
) -> Generator[dict[str, str], None, None]:
    """The options of a Spark by these settings; some may be changed, or left out with None."""
    _refuse_comma(scratch)
    given = settings.spark_options
    master = given.get("spark.master", settings.spark_master)
    local = master is None or re.fullmatch(r"local(\[.*\])?", master) is not None
    with as_file(files("headrace.spark").joinpath("log4j2.properties")) as quiet:
        ours: dict[str, str | None] = {
            **MEANING,
            "spark.app.name": "headrace",
            "spark.jars": ",".join(str(path) for path in jars.paths(settings.jars)),
            "spark.sql.extensions": DELTA_EXTENSION,
            "spark.sql.catalog.spark_catalog": _DELTA_CATALOG,
            "spark.driver.memory": settings.spark_memory,
            "spark.driver.defaultJavaOptions": _LOCALE,
            "spark.executor.defaultJavaOptions": _LOCALE,
            # This collector leaves the processor to the epochs; the default one works beside them all the time.
            "spark.driver.extraJavaOptions": " ".join(
                (
                    "" if _names_collector(given) else "-XX:+UseParallelGC",
                    _ENDS_WITHOUT_MEMORY,
                    f"-Dlog4j2.configurationFile={quiet.as_uri()}",
                    # A JVM that is killed removes none of its files. Executors are told spark.local.dir alone.
                    f"-Djava.io.tmpdir={quoted(scratch)}",
                    java_options,
                )
            ).strip(),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
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
            **(_of_local(settings, scratch) if local else {"spark.master": master}),
        }
        options = {**ours, **_beside(ours, given), **changed}
        yield {name: value for name, value in options.items() if value is not None}


def quoted(path: Path) -> str:
    """A path as Spark reads it among Java's options."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _refuse_comma(scratch: Path) -> None:
    """Refuse a folder that Spark would take for two, of which the second lies wherever the process stands."""
    if "," in str(scratch):
        raise SetupError(
            f"the folder {scratch.parent} cannot be told to Spark",
            detail="Spark takes what stands before a comma for one folder, and what comes after it for the next.",
            hint="let the environment variable TMPDIR name a folder without commas",
        )


def _names_collector(given: Mapping[str, str]) -> bool:
    """Whether a user chose how garbage is collected: a JVM that is told of two collectors does not start."""
    return any(_COLLECTOR.search(given.get(name, "")) for name in _OF_DRIVER)


def _beside(ours: Mapping[str, str | None], given: Mapping[str, str]) -> dict[str, str]:
    """A user's options, those of Java after ours: of two that say different things, Java takes the last."""
    return {
        name: f"{before} {value}" if name.endswith("JavaOptions") and (before := ours.get(name)) else value
        for name, value in given.items()
    }


def _of_local(settings: Settings, scratch: Path) -> dict[str, str]:
    """What only a Spark is told whose one executor lives in its driver."""
    cores = "*" if settings.spark_cores is None else str(settings.spark_cores)
    return {
        "spark.master": settings.spark_master or f"local[{cores}]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch / "local"),
        # A task that asks for more than its share of the memory fails its own query, not the process.
        "spark.executor.killOnFatalError.depth": "0",
        # This executor lives as long as its driver, so nobody need hear that it does. In Spark 4.2 a heartbeat that
        # meets a task of a cached relation half-read is the last one, and the executor is then given up as lost.
        "spark.executor.heartbeatInterval": "1h",
        "spark.network.timeout": "2h",
        "spark.rpc.askTimeout": "2min",
    }
