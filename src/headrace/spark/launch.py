"""The JVM of a Spark: launched under a guard, made known to PySpark, and forgotten by it once it has ended.

PySpark keeps one JVM for the life of a process, in its classes. Here it may end, at any moment from its first on, and
the next be launched.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home  # pyright: ignore[reportPrivateUsage]
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, SetupError, SparkLost
from headrace.spark.jvm import Guard, end
from headrace.storage.scratch import Scratch

# One that takes longer is stuck or stopped; a busy machine needs a minute.
_START_SECONDS = 300.0
_LOOK_SECONDS = 0.05
_ENDING_SECONDS = 1.0
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


@dataclass(frozen=True)
class Launched:
    """A JVM that was launched here, with what ends it when this process ends."""

    process: subprocess.Popen[bytes]
    guard: Guard


def is_given() -> bool:
    """Whether PySpark has a JVM, or is to be brought to one that others have launched."""
    return SparkContext._gateway is not None or _PORT in os.environ  # pyright: ignore


@contextmanager
def launched(options: Mapping[str, str], java_home: Path) -> Generator[Launched, None, None]:
    """Inside, PySpark has a new JVM, and a Spark is started in it; where that fails, the JVM is gone afterwards."""
    guard = Guard()
    process: subprocess.Popen[bytes] | None = None
    try:
        with closing(Scratch()) as scratch:
            told = scratch.path / "listens"
            environment = {**os.environ, "JAVA_HOME": str(java_home)}
            environment.update(SPARK_CONNECT_MODE="0", _PYSPARK_DRIVER_CONN_INFO_PATH=str(told))
            process = guard.start(_command(options), environment)
            with _ended_in_time(process):
                port, secret = _listens(process, told)
                _connect(process, port, secret)
                yield Launched(process, guard)
    except BaseException as error:
        ended: int | None = None
        if process is not None:
            if isinstance(error, Exception):
                # A process closes its connections a moment before it can be seen to have ended.
                with suppress(subprocess.TimeoutExpired):
                    ended = process.wait(_ENDING_SECONDS)
            end(process)
            forget_ended()
        guard.close()
        if ended is not None and isinstance(error, Exception) and not isinstance(error, HeadraceError):
            raise _ended_early(ended) from error
        raise


def forget_ended() -> None:
    """Let PySpark begin anew, if the JVM that it keeps has ended, whoever launched it."""
    gateway: Any = SparkContext._gateway  # pyright: ignore
    process = None if gateway is None else gateway.proc
    if process is None or process.poll() is None:
        return
    context: Any = SparkContext._active_spark_context  # pyright: ignore
    with SparkContext._lock:  # pyright: ignore
        SparkContext._active_spark_context = None  # pyright: ignore
        SparkContext._gateway = None  # pyright: ignore
        SparkContext._jvm = None  # pyright: ignore
    SparkSession._instantiatedSession = None  # pyright: ignore
    SparkSession._activeSession = None  # pyright: ignore
    if context is not None:
        # What was to hear from tasks listens in a thread of its own; a context half made may have none yet.
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            server.shutdown()
        context._jsc = None
    _disconnect(gateway)


def _disconnect(gateway: Any) -> None:
    """Send nothing more to a port that may be another's by now, and end the thread that would."""
    client = gateway._gateway_client
    client.is_connected = False
    if hasattr(client, "finalizer_deque"):
        client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
    with suppress(Exception):
        gateway.close()


def _command(options: Mapping[str, str]) -> list[str]:
    given = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
    more = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(Path(_find_spark_home()) / "bin" / "spark-submit"), *given, *more]


@contextmanager
def _ended_in_time(process: subprocess.Popen[bytes]) -> Generator[None, None, None]:
    """Inside, nobody waits for ever: a JVM that is not there in time is killed, which closes its connections."""
    alarm = threading.Timer(_START_SECONDS, process.kill)
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


def _listens(process: subprocess.Popen[bytes], told: Path) -> tuple[int, str]:
    """The port on which a JVM listens, and its secret, as soon as it tells them."""
    while not told.exists():
        if process.poll() is not None:
            raise _ended_early(process.returncode)
        time.sleep(_LOOK_SECONDS)
    with open(told, "rb") as file:
        return read_int(file), str(UTF8Deserializer().loads(file))


def _connect(process: subprocess.Popen[bytes], port: int, secret: str) -> None:
    """Make a JVM the one that PySpark keeps."""
    with environment_of({_PORT: str(port), _SECRET: secret}):
        gateway: Any = launch_gateway()
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)  # pyright: ignore


@contextmanager
def environment_of(names: Mapping[str, str]) -> Generator[None, None, None]:
    """Inside, these variables are set."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _ended_early(code: int) -> HeadraceError:
    # Who is killed is not to blame; what ends itself at once was given something that it cannot work with.
    if code < 0:
        return SparkLost(
            "Spark ended while it was started",
            detail=f"Its process was killed by signal {-code}.",
            hint="try again; a machine that is short of memory kills what takes most of it",
        )
    return SetupError(
        "Spark cannot be started",
        detail=f"Its process ended with {code}; what it has to say is printed by it.",
        hint="look at the settings spark_memory and jars, and at the free memory of the machine",
    )
