"""A query process: `python -m headrace.query_processes.worker N`, where N is the number of an inherited socket.

It starts a Spark of its own, says that it is ready, and answers questions, one after the other, until the other side of
the socket is gone; then it ends at once, and its JVM with it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from headrace.errors import HeadraceError, ResultTooLarge, SparkLost, WorkFailed
from headrace.plans.catalyst import Catalyst
from headrace.plans.failures import FAILURES, causes
from headrace.query_processes.child import NICENESS, OUT_OF_MEMORY
from headrace.query_processes.error_forms import error_to_json
from headrace.query_processes.question import Question, QuestionReader
from headrace.query_processes.refusals import too_large_a_change, too_many_bytes, too_much_memory
from headrace.query_processes.wire import Message, WireBroken, receive, send, to_bytes
from headrace.reading.files import Files
from headrace.reading.frames import Content, Frames
from headrace.reading.queries import Queries
from headrace.reading.stoppable import Stoppable
from headrace.settings import Settings
from headrace.spark.jvm import Jvm
from headrace.spark.proc import give_way_when_woken
from headrace.spark.session import jvm_of, large_session, start_spark
from headrace.sql.query_errors import query_error
from headrace.statements.changes import ChangeQuery, read_rows
from headrace.storage.scratch import Scratch

# How long it is looked whether somebody waited for it.
_LOOK_SECONDS = 0.3
_REHEARSAL = "SELECT word, sum(id) AS n FROM rehearsed WHERE id > 0 GROUP BY word ORDER BY n DESC"
_ENDING_SECONDS = 1.0
CANNOT_START = 1
_STOP_AGAIN_SECONDS = 0.2
_SETTLE_SECONDS = 0.02
# What Spark names when it refuses to collect more than it may.
_RESULT_BOUND = "spark.driver.maxResultSize"
# All tasks make rows ready for the answer at once, in memory beside the heap, in vectors of up to twice their size.
_VECTOR_BOUND = "org.apache.arrow.memory.OutOfMemoryException"
_BESIDE_VECTORS = 256 * 1024 * 1024
# The owner, or the JVM, has ended or was killed.
_LOST = (WireBroken, SparkLost, Py4JError, EOFError, ConnectionError)
_MOST_ASKED_BYTES = 4 * 1024 * 1024 * 1024


class Worker:
    """Answers what it is asked over one socket: one thread listens, and another one works."""

    def __init__(self, wire: socket.socket, spark: SparkSession, scratch: Scratch, most_bytes: int) -> None:
        self._wire = wire
        self._spark = spark
        jvm = jvm_of(spark)
        if jvm is None:
            raise WireBroken("Spark has ended before it was asked")
        self._jvm = jvm.process
        threading.Thread(target=_end_with_jvm, args=(jvm,), daemon=True).start()
        self._queries = Queries(Frames(Catalyst(large_session(spark)), Files(scratch.path)))
        self._most_bytes = most_bytes
        self._asked: SimpleQueue[tuple[Question, Stoppable]] = SimpleQueue()
        # Of the question that is worked on.
        self._stoppable: Stoppable | None = None

    def begin(self) -> None:
        """Say that it is there, without a rehearsal that whoever waits for it would wait for too."""
        send(self._wire, Message({"ready": True, "jvm": self._jvm.pid}))
        threading.Thread(target=self._work, daemon=True).start()

    def listen(self) -> None:
        """Take questions until the other side is gone."""
        questions = QuestionReader()
        while True:
            message = receive(self._wire, _MOST_ASKED_BYTES)
            stoppable = self._stoppable
            if "stop" not in message.head:
                self._stoppable = Stoppable(self._spark.sparkContext)
                self._asked.put((questions.read(message), self._stoppable))
            elif stoppable is not None:
                threading.Thread(target=self._stop, args=(stoppable,), daemon=True).start()

    def _stop(self, stoppable: Stoppable) -> None:
        """Stop a question, and what it begins while it is being stopped."""
        while self._stoppable is stoppable:
            stoppable.stop()
            time.sleep(_STOP_AGAIN_SECONDS)

    def _work(self) -> None:
        """Answer one question after the other; rehearse first, if nobody waited for this process."""
        try:
            first = self._asked.get(timeout=_LOOK_SECONDS)
        except Empty:
            self._rehearse()
        else:
            self._answer(*first)
        while True:
            self._answer(*self._asked.get())

    def _rehearse(self) -> None:
        """Have Spark load what every query needs."""
        held = Content((), None, pa.table({"c0": pa.array([1, 2, 3]), "c1": pa.array(["a", "b", "a"])}))
        schema = StructType([StructField("id", LongType()), StructField("word", StringType())])
        with suppress(HeadraceError, *FAILURES):
            self._queries.run(_REHEARSAL, {"rehearsed": (held, schema)}, rows=2)

    def _answer(self, question: Question, stoppable: Stoppable) -> None:
        """Answer a question once nothing of it runs any more: until then its owner knows that this process is busy."""
        try:
            with stoppable.working():
                answer = self._answered(question)
        except HeadraceError as error:
            answer = Message({"error": error_to_json(self._blamed(error))})
        except FAILURES as error:
            answer = Message({"error": error_to_json(self._blamed(query_error(error)))})
        except Exception as error:
            # Unforeseen; but whoever asked need not wait until the time is over to hear of it.
            failed = WorkFailed("the query failed", detail=f"{type(error).__name__}: {error}.", hint="ask again")
            answer = Message({"error": error_to_json(failed)})
        # Spark calls a job cancelled, or failed, whose tasks may still be at their last row.
        while self._running_tasks():
            time.sleep(_SETTLE_SECONDS)
        self._stoppable = None
        send(self._wire, answer)

    def _running_tasks(self) -> int:
        """Return how many tasks run in this Spark, whose only question has them all."""
        with suppress(*FAILURES):
            context: Any = self._spark.sparkContext
            return int(context._jsc.sc().taskScheduler().rootPool().runningTasks())
        return 0

    def _blamed(self, error: HeadraceError) -> HeadraceError:
        """The error as the asker should hear it: who lacks memory here has asked for too much."""
        if not isinstance(error, WorkFailed):
            return error
        with suppress(subprocess.TimeoutExpired):
            # A JVM that is ending takes this process with it, and the owner sees to the rest.
            self._jvm.wait(_ENDING_SECONDS)
            time.sleep(_ENDING_SECONDS)
        return too_much_memory() if "memory" in error.detail.lower() else error

    def _answered(self, question: Question) -> Message:
        if question.kind == "plan":
            frame = self._queries.frame(question.sql, question.relations, question.line, question.column)
            return Message({"plan": frame._jdf.queryExecution().toString()})
        try:
            content = to_bytes(_rows(question, self._queries))
        except (HeadraceError, *FAILURES) as error:
            if _is_over_bound(error):
                raise self._too_much(question) from None
            raise
        if len(content) > self._most_bytes:
            raise self._too_much(question)
        return Message({}, [content])

    def _too_much(self, question: Question) -> ResultTooLarge:
        return (too_large_a_change if question.kind == "changes" else too_many_bytes)(self._most_bytes)


def _rows(question: Question, queries: Queries) -> pa.Table:
    if question.kind == "changes":
        made_of = question.pieces, question.values
        asked = ChangeQuery(question.sql, question.types, question.line, question.column, *made_of)
        return read_rows(queries, asked, question.relations, large=False)
    return queries.run(question.sql, question.relations, question.line, question.column, question.rows)


def _is_over_bound(error: BaseException | None) -> bool:
    """Whether Spark refused to collect so much, as it may tell in the cause of a cause only."""
    while error is not None:
        told = [str(one) for one in (error, *causes(error))]
        if any(bound in one for one in told for bound in (_RESULT_BOUND, _VECTOR_BOUND)):
            return True
        error = error.__context__
    return False


def _spark(begin: Mapping[str, Any]) -> SparkSession:
    # Local, wherever the owner's Spark works: the files lie on this machine.
    settings = Settings(
        spark_master=None,
        spark_options={},
        spark_memory=begin["memory"],
        spark_cores=begin["cores"],
        jars=begin["jars"],
        pause_garbage_collection=True,
    )
    return start_spark(
        settings,
        java_options=f"-XX:MaxDirectMemorySize={_BESIDE_VECTORS + 2 * begin['bytes']} -XX:TieredStopAtLevel=1",
        **{
            "spark.app.name": "headrace-query",
            # It reads files that its owner names, and none of Delta's.
            "spark.jars": None,
            "spark.sql.extensions": None,
            "spark.sql.catalog.spark_catalog": None,
            _RESULT_BOUND: str(begin["bytes"]),
        },
    )


def _end() -> NoReturn:
    """End this process and its JVM, whatever they are doing."""
    while True:
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _end_with_owner(wire: socket.socket) -> None:
    """End as soon as nobody is at the other side, also while nothing is read from it."""
    hung_up = select.poll()
    hung_up.register(wire, getattr(select, "POLLRDHUP", select.POLLHUP))
    hung_up.poll()
    _end()


def _end_with_jvm(jvm: Jvm) -> None:
    """End when the JVM has, and let the owner see whether that was for want of memory."""
    jvm.process.wait()
    if jvm.out_of_memory:
        os._exit(OUT_OF_MEMORY)
    _end()


def _started(wire: socket.socket, scratch: Scratch) -> Worker:
    """Start Spark and report that the process is ready."""
    try:
        begin = receive(wire, 0).head
        worker = Worker(wire, _spark(begin), scratch, begin["bytes"])
        worker.begin()
        return worker
    except BaseException:
        scratch.close()
        raise


def main(descriptor: int) -> None:
    """Be a query process."""
    # Ctrl-C at a terminal is for the owner, who ends this process by hanging up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getpgrp() != os.getpid():
        os.setpgrp()
    os.nice(NICENESS)
    give_way_when_woken()
    wire = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_owner, args=(wire,), daemon=True).start()
    try:
        scratch = Scratch()
        worker = _started(wire, scratch)
    except _LOST:
        _end()
    except BaseException:
        # Here no Spark can be started: the code says that nobody has killed this process. Its owner ends its JVM.
        traceback.print_exc()
        os._exit(CANNOT_START)
    try:
        worker.listen()
    except WireBroken:
        pass
    except Exception:
        traceback.print_exc()
    finally:
        scratch.close()
        _end()


if __name__ == "__main__":
    main(int(sys.argv[1]))
