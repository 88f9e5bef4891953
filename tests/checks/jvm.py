"""One Spark for many short-lived processes: a keeper starts the JVM, and every process attaches to it.

Starting Spark takes seconds, attaching takes none. It is a fair test because nothing durable happens in the JVM: the
ledger, the bases and all state are written by the Python process, and the JVM only works out rows.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess


@dataclass(frozen=True)
class Address:
    """Where the JVM listens."""

    port: int
    secret: str
    pid: int


def keep(parent: Connection) -> None:
    """Start Spark, say where it is, and hold it until the parent has gone."""
    from headrace.settings import Settings
    from headrace.spark.session import start_spark

    # The JVM prints whatever it was doing for a process that was killed, and that is no news.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        spark = start_spark(Settings(spark_memory="1g"))
    except Exception as error:
        parent.send(error)
        return
    gateway = spark.sparkContext._gateway  # pyright: ignore[reportPrivateUsage]
    assert gateway is not None
    java = gateway.java_parameters
    parent.send(Address(java.port, java.auth_token, gateway.proc.pid))
    with suppress(EOFError):
        parent.recv()


def attach(address: Address) -> object:
    """A session of the running Spark."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(address.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = address.secret
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    SparkContext._ensure_initialized(gateway=gateway)  # pyright: ignore[reportPrivateUsage]
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.JavaSparkContext.fromSparkContext(running)
    context = SparkContext(conf=SparkConf(_jconf=java.getConf()), gateway=gateway, jsc=java)
    return SparkSession(context)


class Keeper:
    """The shared Spark, started when it is first asked for, and again after it was killed."""

    def __init__(self, processes: ForkServerContext) -> None:
        self._processes = processes
        self._process: BaseProcess | None = None
        self._line: Connection | None = None
        self._address: Address | None = None

    def address(self) -> Address:
        if self._address is None:
            self._line, other = self._processes.Pipe()
            self._process = self._processes.Process(target=keep, args=(other,))
            self._process.start()
            other.close()
            answer: Address | Exception = self._line.recv()
            if isinstance(answer, Exception):
                raise answer
            self._address = answer
        return self._address

    def kill(self) -> None:
        """End Spark at once, as the machine would."""
        if self._address is not None:
            with suppress(ProcessLookupError):
                os.kill(self._address.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self._line is not None and self._process is not None:
            self._line.close()
            self._process.join(10)
            self._process.kill()
            self._process.join()
        self._address = self._line = self._process = None
