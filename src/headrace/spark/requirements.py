"""What a Spark must bring to work for a home: asked when the home is opened, so that it does not fail later."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import SetupError
from headrace.spark.causes import last_cause
from headrace.spark.options import DELTA_EXTENSION
from headrace.spark.time_limit import stopped_after
from headrace.storage.scratch import spark_path

_LINE = "4.2"
_ROWS = 64
# Languages for which Java, or the ICU in Spark, has rules of its own for upper and lower case.
_OTHER_LETTERS = ("az", "el", "hy", "lt", "tr")
# What each of these rules would change, with what it is without them; each executor adds the number of a row, so that
# nothing of it can be worked out by the driver.
_LETTERS = {
    "upper(concat('ßiάև', id))": "SSIΆԵՒ",
    "lower(concat('İIÌ', id))": "i\u0307iì",
}
_CATALOG = "spark.sql.catalog.spark_catalog"
_HOW_TO = "docs/how-to/use-a-spark-cluster.md tells what a Spark must bring"


def is_local(spark: SparkSession) -> bool:
    """Whether the executors live in the driver, and so on this machine."""
    return bool(spark.sparkContext._jsc.sc().isLocal())  # pyright: ignore


def has_executors(spark: SparkSession) -> bool:
    """Whether a Spark whose executors are elsewhere has any."""
    # The driver is one of those that hold blocks.
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) > 1  # pyright: ignore


def check_session(spark: SparkSession) -> None:
    """Refuse a session with which no home can work."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise SetupError(
            "a Spark Connect session cannot be used",
            detail="Headrace works with Spark's own plans, which only a driver beside this process has.",
            hint="give a session of a driver that is started here; its executors may be anywhere",
        )
    if not isinstance(spark, SparkSession):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise SetupError(
            f"a {type(spark).__name__} is no Spark session",
            hint="give spark= a SparkSession; a master is named by the setting spark_master",
        )
    try:
        _check_driver(spark)
    except (Py4JError, OSError) as error:
        raise SetupError("the Spark that was given has ended", hint="start another, and give that one") from error


def _check_driver(spark: SparkSession) -> None:
    context: Any = spark.sparkContext
    if context._jsc is None or context._jsc.sc().isStopped():
        raise SetupError("the Spark that was given is stopped", hint="start another, and give that one")
    found = (spark.version, pyspark.__version__)
    if not all(re.match(rf"{re.escape(_LINE)}\.", one) for one in found):
        raise SetupError(
            f"Spark {found[0]} cannot be used",
            detail=f"Headrace leans on the plans of Spark {_LINE}; the driver is {found[0]}, PySpark is {found[1]}.",
            hint=f"use a driver and executors of Spark {_LINE}",
        )
    language = context._jvm.java.util.Locale.getDefault().getLanguage()
    if language in _OTHER_LETTERS:
        raise _other_letters("driver", f"The language of its JVM is {language}.")


def check_catalog(spark: SparkSession) -> None:
    """Refuse a Spark whose catalog cannot be loaded: without it no name of a query can be looked up."""
    session: Any = spark._jsparkSession  # pyright: ignore
    try:
        session.sessionState().catalogManager().v2SessionCatalog()
    except (Py4JError, PySparkException) as error:
        raise SetupError(
            f"the Spark that was given cannot load the catalog that its setting {_CATALOG} names",
            detail=f"{last_cause(error).rstrip('.')}.",
            hint=f"start it with the jars of that catalog, or without the setting; {_HOW_TO}",
        ) from error


def check_delta(spark: SparkSession) -> None:
    """Refuse a Spark that reads no Delta tables; only sources need it, and of them those that Arrow cannot read."""
    lacks = f"Its spark.sql.extensions do not name {DELTA_EXTENSION}"
    if DELTA_EXTENSION in (spark.conf.get("spark.sql.extensions", "") or ""):
        # Spark goes on without an extension whose class it does not find.
        jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
        if jvm.org.apache.spark.util.Utils.classIsLoadable(DELTA_EXTENSION):
            return
        lacks = f"Its spark.sql.extensions name {DELTA_EXTENSION}, which is in none of its jars"
    raise SetupError(
        "the Spark that was given reads no Delta tables",
        detail=f"{lacks}, and only Spark can read this source: it "
        "has partitions, deletion vectors or mapped columns, or lies on another storage.",
        hint=f"start it with delta-spark, its extension and its catalog; {_HOW_TO}",
    )


def check_executors(spark: SparkSession, folder: Path, seconds: float) -> None:
    """Refuse a Spark of which no executor comes in time, shares this folder with us, or knows our letters."""
    written, read = folder / "probe-written", folder / "probe-read.parquet"
    tasks = max(2, min(_ROWS, spark.sparkContext.defaultParallelism))
    letters = [f"{expression} AS c{number}" for number, expression in enumerate(_LETTERS)]
    try:
        probe = spark.range(0, _ROWS, 1, tasks).selectExpr("id", *letters)
        _in_time(spark, lambda: probe.write.parquet(spark_path(written)), folder, seconds)
        files = sorted(written.glob("*.parquet"))
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        if rows != _ROWS:
            raise _not_shared(folder, f"Of {_ROWS} rows that executors wrote there, {rows} are seen from here.")
        for file in files:
            _check_letters(pq.read_table(file))
        pq.write_table(pq.read_table(files[0]), read)
        _in_time(spark, lambda: spark.read.parquet(spark_path(read)).count(), folder, seconds)
    finally:
        shutil.rmtree(written, ignore_errors=True)
        read.unlink(missing_ok=True)


def _check_letters(probe: pa.Table) -> None:
    """Refuse executors that have other rules for letters than the driver."""
    for row in probe.to_pylist():
        for number, (expression, meant) in enumerate(_LETTERS.items()):
            if row[f"c{number}"] != f"{meant}{row['id']}":
                raise _other_letters("executors", f"There, {expression} begins with {row[f'c{number}']}, not {meant}.")


def _other_letters(whose: str, detail: str) -> SetupError:
    return SetupError(
        f"the {whose} of Spark would give upper() and lower() another meaning",
        detail=detail,
        hint=f"start Spark with -Duser.language=en -Duser.country=US in spark.{whose.removesuffix('s')}."
        "extraJavaOptions",
    )


def _in_time(spark: SparkSession, work: Any, folder: Path, seconds: float) -> None:
    """Do Spark work that must be done within so many seconds: without executors it would wait for ever."""
    given_up = threading.Event()

    def give_up() -> None:
        # One that is there may be slow, and is waited for.
        if not has_executors(spark):
            given_up.set()
            spark.interruptAll()

    with stopped_after(seconds, give_up):
        try:
            work()
        except (PySparkException, Py4JError) as error:
            if given_up.is_set():
                raise SetupError(
                    f"no executor of Spark took up work within {seconds:.0f} seconds",
                    detail=f"The master is {spark.sparkContext.master}.",
                    hint="see whether its workers have the cores and the memory that spark.executor.cores and "
                    f"spark.executor.memory ask for; {_HOW_TO}",
                ) from error
            raise _not_shared(folder, last_cause(error)) from error


def _not_shared(folder: Path, detail: str) -> SetupError:
    return SetupError(
        f"the executors of Spark do not share the folder {folder.parent} with this process",
        detail=detail,
        hint="let shared_scratch name a folder that is the same on all machines, and that the users of driver and "
        f"executors may read and write; {_HOW_TO}",
    )
