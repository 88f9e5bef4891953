"""Make the archive of Spark's classes, once: `python -m headrace.spark.make_class_archive`.

It needs a JVM of its own, which starts Spark, does what every home and every query needs, and ends: half a minute.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, SetupError
from headrace.settings import Settings, read_settings
from headrace.spark.class_archive import archive_of, drafted, options_to_make
from headrace.spark.session import end_spark, start_spark
from headrace.storage.scratch import Scratch

_log = logging.getLogger("headrace.spark")
_PROGRAM = (sys.executable, "-m", "headrace.spark.make_class_archive")
_GENTLY = "--gently"
# A server that was just started has other things to do.
_LATER_SECONDS = 30.0
_NICENESS = 19
# Writing 200 MB on a machine that is busy with other things.
_ENDING_SECONDS = 300.0
_QUERIES = (
    "SELECT id, count(*) AS n FROM range(3) GROUP BY id ORDER BY id",
    "SELECT s, sum(id) AS n, max(d) AS d FROM kept GROUP BY s ORDER BY n LIMIT 3",
    "SELECT a.s, count(DISTINCT b.d) AS n FROM kept a LEFT JOIN kept b ON a.id = b.id WHERE a.id > 3 GROUP BY a.s",
    "SELECT id, row_number() OVER (PARTITION BY s ORDER BY id DESC) AS r FROM kept UNION ALL SELECT 1, 2",
    "SELECT * FROM kept WHERE s IN (SELECT s FROM kept WHERE id < 2) AND EXISTS (SELECT 1 FROM kept WHERE id = 0)",
)


def make_class_archive(settings: Settings) -> Path | None:
    """The archive of this Java and these jars, made if there is none; None while another process makes one.

    For a process that has no Spark: its JVM is ended.
    """
    archive = archive_of(settings)
    with drafted(archive) as draft:
        if draft is not None:
            # While it writes the archive, a JVM gives no sign of life.
            patient = settings.model_copy(update={"spark_memory": "1g", "spark_silence": timedelta(minutes=10)})
            spark = start_spark(patient, options_to_make(draft))
            _use(spark)
            if not end_spark(spark, _ENDING_SECONDS):
                raise SetupError("Java ended before its classes were archived", detail="The disk may be full.")
    return archive if archive.exists() else None


def _use(spark: SparkSession) -> None:
    """Have Spark load what homes and queries need."""
    scratch = Scratch()
    try:
        rows = spark.range(100).selectExpr("id", "cast(id % 7 AS STRING) AS s", "cast(id AS DECIMAL(10, 2)) AS d")
        rows.write.format("delta").save(str(scratch.path / "delta"))
        spark.read.format("delta").load(str(scratch.path / "delta")).toArrow()
        rows.write.parquet(str(scratch.path / "parquet"))
        spark.read.parquet(str(scratch.path / "parquet")).createOrReplaceTempView("kept")
        for query in _QUERIES:
            spark.sql(query).toArrow()
    finally:
        scratch.close()


class Making:
    """Inside, the archive is made if there is none, by a process that takes only what others leave of the processor."""

    def __init__(self, settings: Settings, later: float = _LATER_SECONDS, program: Sequence[str] = _PROGRAM) -> None:
        self._settings = settings
        self._later = later
        self._program = program
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Making:
        if self._settings.class_archive and not archive_of(self._settings).exists():
            self._thread = threading.Thread(target=self._make, name="headrace-class-archive", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join()

    def _make(self) -> None:
        if self._closed.wait(self._later):
            return
        try:
            with self._lock:
                if self._closed.is_set():
                    return
                process = self._process = subprocess.Popen(
                    [*self._program, _GENTLY],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "HEADRACE_JARS": str(self._settings.jars), "PYTHONPATH": _modules()},
                    # A group of its own, so that its JVM is killed with it.
                    process_group=0,
                )
        except OSError as error:
            _log.info("no archive of Spark's classes can be made: %s", error)
            return
        # Nobody else waits for it, so that its number stays its own until then.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            code = process.wait()
        if not self._closed.is_set():
            told = "is there" if code == 0 else "could not be made; Spark starts without it"
            _log.info("the archive of Spark's classes %s", told)


def _modules() -> str:
    """Where this process finds its modules, for another to find them too."""
    return os.pathsep.join(path for path in sys.path if path)


def main() -> None:
    """Make the archive, and say where it is."""
    if _GENTLY in sys.argv[1:]:
        os.nice(_NICENESS)
    # That its JVM ends is what is wanted.
    logging.disable(logging.WARNING)
    try:
        print(make_class_archive(read_settings()) or "another process is making the archive")
    except (HeadraceError, OSError) as error:
        print(f"the archive of Spark's classes could not be made: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
