"""Start Spark with Delta, and tune one session for small deltas and one for large ones."""

from __future__ import annotations

import atexit
import gc
import logging
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Protocol
from weakref import WeakSet

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.session import _monkey_patch_RDD  # pyright: ignore[reportPrivateUsage]

from headrace.errors import SetupError, SparkLost
from headrace.settings import Settings
from headrace.spark.causes import last_cause
from headrace.spark.class_archive import archive_of, options_to_use
from headrace.spark.java import find_java, launcher_home
from headrace.spark.jvm import Gateway, Jvm, has_ended
from headrace.spark.launch import Launched, environment_of, forget_ended, is_given, launched
from headrace.spark.options import DELTA_EXTENSION, MEANING, options_of
from headrace.storage.scratch import Scratch

# What of a given Spark's own settings holds in our sessions: where data is, and how much of it at a time. Others could
# give a view another meaning than it had under another Spark.
_TAKEN_OVER = (
    "spark.sql.adaptive.",
    "spark.sql.catalog.",
    # Not those by which files that are gone or damaged are passed over in silence.
    "spark.sql.files.maxPartition",
    "spark.sql.files.minPartition",
    "spark.sql.files.openCostInBytes",
    "spark.sql.shuffle.",
)

# A class of the given Spark's own, by which a plan is changed while it runs: results need none, and it may be missing.
_LEFT_BEHIND = ("spark.sql.adaptive.customCostEvaluatorClass",)

# Files that Spark writes for us are read by Arrow as it would have written them itself.
_FILES = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # They are named one by one, and are seldom so many that a job of executors finds them sooner than the driver.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}

# What a query may reach in our own sessions: relations of the home, but no files and no variables of the environment.
_REACH = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}

_PULSE = files("headrace.spark").joinpath("pulse.java").read_text()

_SMALL = {
    **MEANING,
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


class SparkUser(Protocol):
    """One who works with a Spark that may end, and goes on with the next."""

    def lose_spark(self) -> None:
        """The Spark has ended; another is being started."""
        ...

    def take_spark(self, spark: SparkSession) -> None:
        """Work with this Spark from now on; who cannot raises, and is asked again as long as it lives."""
        ...

    def note_failure(self, error: Exception) -> None:
        """Another Spark could not be started, or not be taken; it is tried again."""
        ...


_log = logging.getLogger("headrace.spark")
# Not other errors of Py4J: those tell that the JVM is gone, and who launched it knows why.
_TOLD_BY_JAVA = (Py4JJavaError, PySparkException)
_starting = threading.RLock()
# Held while a new Spark is brought to its users: one that ends meanwhile is replaced after that.
_bringing = threading.Lock()
# The JVMs that were started here and not yet given up, with their users; there is seldom more than one.
_users: dict[Jvm, WeakSet[SparkUser]] = {}
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


def start_spark(settings: Settings, java_options: str = "", **changed: str | None) -> SparkSession:
    """A local Spark with Delta, quiet and in UTC; the running one if this process has one already.

    Options may be changed, or left out with None. One that ends is replaced as long as somebody uses it.
    """
    with _starting:
        forget_ended()
        if SparkContext._active_spark_context is not None:  # pyright: ignore[reportPrivateUsage]
            return _running_session()
        spark = _started(settings, java_options, changed)
        # What is loaded by now stays for good: Python need not look through it for garbage, epoch after epoch. Not so
        # what a Spark that has ended leaves behind, which is loaded when the next is started.
        if settings.pause_garbage_collection and gc.get_freeze_count() == 0:
            gc.freeze()
        return spark


def use_spark(spark: SparkSession, user: SparkUser) -> bool:
    """Be told when this Spark ends, and be given the next; False if it is not ours to start again."""
    with _starting:
        jvm = jvm_of(spark)
        if jvm is not None:
            _users[jvm].add(user)
        return jvm is not None


def end_spark(spark: SparkSession, seconds: float) -> bool:
    """Have a Spark that was started here end; whether it did in good order, within so many seconds.

    No other is started for those who used it.
    """
    with _starting:
        jvm = jvm_of(spark)
        if jvm is None:
            return False
        _users[jvm].clear()
    if jvm.process.stdin is not None:
        jvm.process.stdin.close()
    return has_ended(jvm.process, seconds) and jvm.process.returncode == 0


def process_of(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """The process of a Spark that was started from this one, by whomever."""
    gateway: Any = spark.sparkContext._gateway  # pyright: ignore
    return getattr(gateway, "proc", None)


def jvm_of(spark: SparkSession) -> Jvm | None:
    """The JVM of a Spark that was started here and has not ended."""
    process = process_of(spark)
    return next((jvm for jvm in list(_users) if jvm.process is process), None)


def _watch(spark: SparkSession, begun: Launched, settings: Settings, ended: Callable[[Jvm], None]) -> None:
    """Have somebody told when a Spark has ended."""
    gateway: Any = spark.sparkContext._gateway  # pyright: ignore
    listens = gateway.gateway_parameters
    pulse = _pulse(spark)
    where = Gateway(listens.address, listens.port, listens.auth_token, pulse._target_id)
    jvm = Jvm(begun.process, begun.guard, where, settings.spark_silence.total_seconds(), settings.spark_memory)
    _users[jvm] = WeakSet()
    # The object must live as long as the JVM is asked by its number, so the thread that asks holds it.
    jvm.watch(lambda _=pulse: ended(jvm))


def _pulse(spark: SparkSession) -> Any:
    """An object in the JVM that tells how it fares; Spark's own compiler makes its class."""
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    codegen = jvm.org.apache.spark.sql.catalyst.expressions.codegen
    nothing = getattr(jvm.scala.collection.immutable, "Map$").__getattr__("MODULE$").empty()
    generator = getattr(codegen, "CodeGenerator$").__getattr__("MODULE$")
    return generator.compile(codegen.CodeAndComment(_PULSE, nothing))._1()


def _replace(ended: Jvm, start: Callable[[], SparkSession]) -> None:
    """Forget a Spark that has ended, and bring another to those who used it."""
    with _starting:
        users = _users.pop(ended)
        forget_ended()
    for user in list(users):
        user.lose_spark()
    with _bringing:
        spark = _start_again(users, start)
        if spark is not None:
            _bring(spark, users)


def _start_again(users: WeakSet[SparkUser], start: Callable[[], SparkSession]) -> SparkSession | None:
    """A new Spark, tried for as long as there are users; they hear of its end from now on."""
    for pause in _pauses():
        # Each attempt counts who is still there: without users there is nothing to start it for.
        if not list(users):
            return None
        try:
            with _starting:
                spark = start()
                for user in list(users):
                    use_spark(spark, user)
                return spark
        except Exception as error:
            _log.warning("Spark cannot be started again, and is tried later: %s", error)
            for user in list(users):
                user.note_failure(error)
        time.sleep(pause)
    return None


def _bring(spark: SparkSession, users: WeakSet[SparkUser]) -> None:
    """Have each user work with a new Spark; who cannot is asked again, unless it has ended and the next is coming."""
    process = process_of(spark)
    left = WeakSet(users)
    for pause in _pauses():
        for user in list(left):
            try:
                user.take_spark(spark)
                left.discard(user)
            except Exception as error:
                if process is not None and process.poll() is not None:
                    return
                _log.warning("the new Spark cannot be used yet, and is tried later: %s", error, exc_info=error)
                user.note_failure(error)
        if not list(left):
            return
        time.sleep(pause)


def _pauses() -> Iterator[float]:
    """Seconds between attempts, more and more."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _started(settings: Settings, java_options: str, changed: Mapping[str, str | None]) -> SparkSession:
    """A new Spark, which finds its classes in an archive if there is one that it can start with."""
    archive = archive_of(settings)
    if is_given() or not archive.exists():
        return _begun(settings, java_options, changed)
    try:
        return _begun(settings, java_options, changed, options_to_use(archive))
    except (SetupError, SparkLost) as error:
        # Where Java could tell why, it had its classes.
        if isinstance(error.__cause__, _TOLD_BY_JAVA):
            raise
        spark = _begun(settings, java_options, changed)
        _log.warning("Spark started only without the archive of its classes, which was removed: %s", archive)
        archive.unlink(missing_ok=True)
        return spark


def _begun(
    settings: Settings, java_options: str, changed: Mapping[str, str | None], archive_options: str = ""
) -> SparkSession:
    """A new Spark that is watched; whatever is raised on the way leaves no JVM, and PySpark as it was before."""
    scratch = Scratch()
    atexit.register(scratch.close)

    def end() -> None:
        atexit.unregister(scratch.close)
        scratch.close()

    def ended(jvm: Jvm) -> None:
        end()
        _replace(jvm, lambda: start_spark(settings, java_options, **changed))

    try:
        with options_of(settings, f"{java_options} {archive_options}", changed, scratch.path) as options:
            java_home = launcher_home(find_java(), settings.jars.parent / "java")
            if is_given():
                with environment_of({"JAVA_HOME": str(java_home)}):
                    return _context(options)
            with launched(options, java_home) as begun:
                spark = _context(options)
                _watch(spark, begun, settings, ended)
                return spark
    except BaseException:
        end()
        raise


def _context(options: Mapping[str, str]) -> SparkSession:
    """The first session of a Spark with these options, in the JVM that PySpark has."""
    try:
        spark = SparkSession.builder.config(map=dict(options)).getOrCreate()
    except _TOLD_BY_JAVA as error:
        raise SetupError(
            f"no Spark could be started at {options.get('spark.master')}",
            # Read while the JVM is there: it is asked for the text.
            detail=f"{last_cause(error).rstrip('.')}.",
            hint="see whether the master is right and can be reached from here, and look at the setting spark_options",
        ) from error
    _keep_generated_classes(spark)
    # PySpark prints every failed query with its whole stack; the caller gets the same as an exception.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    # So does Py4J with every call that a Spark which ended leaves unanswered.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
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
        {**MEANING, **_FILES, "spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": str(partitions)},
    )


def _tuned(spark: SparkSession, options: Mapping[str, str]) -> SparkSession:
    # A new session, because the given one may be the user's and keeps its settings.
    session = spark.newSession()
    # PySpark has RDDs become DataFrames of the session that was made last.
    _monkey_patch_RDD(spark)
    for name in _names_of_settings(session):
        taken_over = name.startswith(_TAKEN_OVER) and name not in _LEFT_BEHIND
        if name.startswith("spark.sql.") and not taken_over and session.conf.isModifiable(name):
            session.conf.unset(name)
    for name, value in {**options, **_REACH}.items():
        session.conf.set(name, value)
    return session


def _names_of_settings(session: SparkSession) -> list[str]:
    """What is set in a session; PySpark itself asks the JVM several times for each of them."""
    java: Any = session._jvm  # pyright: ignore[reportPrivateUsage]
    settings: Any = session.conf._jconf  # pyright: ignore[reportPrivateUsage]
    return java.java.lang.String.join("\n", settings.getAllAsJava().keySet()).split("\n")


def _running_session() -> SparkSession:
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    if DELTA_EXTENSION not in (session.conf.get("spark.sql.extensions", "") or ""):
        raise SetupError(
            "this process already runs a Spark without Delta",
            detail=f"spark.sql.extensions does not name {DELTA_EXTENSION}.",
            hint="stop that Spark first, or start it with Delta and give it to headrace.open as spark=",
        )
    return session
