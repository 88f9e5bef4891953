"""Whose fault a failure of Spark is, by the conditions that Spark itself lists; no JVM is asked."""

from __future__ import annotations

import errno
import gc
import json
import logging
import threading
import weakref
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast

import pyspark
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkTypeError
from pyspark.errors.exceptions.captured import (
    AnalysisException,
    ArithmeticException,
    CapturedException,
    SparkRuntimeException,
    UnknownException,
)

from headrace.cli.remote import Remote, Server
from headrace.epoch.work import evaluation_error
from headrace.errors import (
    HeadraceError,
    HomeBroken,
    HomeBusy,
    LedgerError,
    LedgerNotWritten,
    MemoryExceeded,
    OwnerLost,
    QueryError,
    SetupError,
    SparkLost,
    ViewEvaluationError,
    WorkFailed,
)
from headrace.plans.failures import data_fault, is_of_query, work_failed
from headrace.query_processes.worker import _is_over_bound
from headrace.serving.problems import problem_of, respond, status_of
from headrace.sql.query_errors import query_error
from headrace.upkeep.failures import Failures


def _states() -> dict[str, str]:
    (jar,) = Path(cast("str", pyspark.__file__)).parent.glob("jars/spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as file:
        conditions: dict[str, dict[str, Any]] = json.loads(file.read("error/error-conditions.json"))
    return {name: str(one.get("sqlState", "")) for name, one in conditions.items()}


STATES = _states()


def raised(kind: type[CapturedException], words: str, condition: str = "", cause: Any = None) -> CapturedException:
    """An error as PySpark makes it of one in the JVM, with what it would ask of the JVM answered from Spark's list."""

    class Told(kind):
        def __init__(self) -> None:
            Exception.__init__(self, words)
            self._cause = cause

        def __str__(self) -> str:
            return words

        def getCondition(self) -> str | None:
            return condition or None

        def getSqlState(self) -> str | None:
            return STATES[condition] if condition else None

        def getQueryContext(self) -> list[Any]:
            return []

    return Told()


@pytest.mark.parametrize(
    "condition",
    [
        "ARITHMETIC_OVERFLOW",
        "BINARY_ARITHMETIC_OVERFLOW",
        "CANNOT_PARSE_TIMESTAMP",
        "CAST_INVALID_INPUT",
        "CAST_OVERFLOW",
        "COLLECTION_SIZE_LIMIT_EXCEEDED",
        "DATETIME_FIELD_OUT_OF_BOUNDS",
        "DATETIME_OVERFLOW",
        "DIVIDE_BY_ZERO",
        "DUPLICATED_MAP_KEY",
        "INVALID_ARRAY_INDEX",
        "INVALID_ARRAY_INDEX_IN_ELEMENT_AT",
        "INVALID_PARAMETER_VALUE",
        "INVALID_UTF8_STRING",
        "MALFORMED_RECORD_IN_PARSING",
        "NULL_MAP_KEY",
        "NUMERIC_VALUE_OUT_OF_RANGE",
        "REMAINDER_BY_ZERO",
        "SCALAR_SUBQUERY_TOO_MANY_ROWS",
        "USER_RAISED_EXCEPTION",
    ],
)
def test_what_spark_blames_on_a_value_is_a_fault_of_the_data(condition: str) -> None:
    inner = raised(SparkRuntimeException, f"[{condition}] why.", condition)
    wrapped = raised(UnknownException, "org.apache.spark.SparkException: Job aborted", cause=inner)
    for error in (inner, wrapped):
        found = evaluation_error("v", error)
        assert isinstance(found, ViewEvaluationError)
        assert (found.view, found.detail, found.transient) == ("v", "why", False)
        assert is_of_query(error)


MACHINE = [
    raised(SparkRuntimeException, "no memory", "UNABLE_TO_ACQUIRE_MEMORY"),
    raised(SparkRuntimeException, "no file", "FAILED_READ_FILE"),
    raised(SparkRuntimeException, "no path", "PATH_NOT_FOUND"),
    raised(SparkRuntimeException, "no room", "TASK_WRITE_FAILED"),
    raised(UnknownException, "java.lang.OutOfMemoryError: Java heap space"),
    raised(
        UnknownException,
        "org.apache.spark.SparkException: Job aborted",
        cause=raised(UnknownException, "java.io.FileNotFoundException: gone"),
    ),
    # PySpark asks no SQLSTATE of an error of a class that it does not know, which SparkException itself is.
    raised(
        UnknownException,
        "org.apache.spark.SparkException: Exception thrown in awaitResult: ",
        cause=raised(
            UnknownException,
            "org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job tags x "
            "SQLSTATE: XXKDA",
        ),
    ),
    raised(SparkRuntimeException, "cancelled", "OPERATION_CANCELED"),
    raised(UnknownException, "org.apache.spark.SparkException: Job 7 cancelled because SparkContext was shut down"),
    raised(UnknownException, "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."),
    raised(
        UnknownException,
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most "
        "recent failure: Lost task 0.3 in stage 3.0 (TID 9) (127.0.0.1 executor 4): ExecutorLostFailure (executor 4 "
        "exited caused by one of the running tasks) Reason: Remote RPC client disassociated.",
    ),
    Py4JNetworkError("Answer from Java side is empty"),
    ConnectionRefusedError("refused"),
    EOFError(),
    MemoryError(),
    OSError(errno.ENOSPC, "No space left on device"),
]


@pytest.mark.parametrize("error", MACHINE, ids=str)
def test_what_the_machine_fails_at_is_nobodys_fault(error: Exception) -> None:
    for found in (evaluation_error("v", error), evaluation_error("v", error, defining=True), query_error(error)):
        assert type(found) is WorkFailed
        assert found.transient
        assert "change" not in f"{found.message} {found.hint}"


def test_who_was_cancelled_is_sent_to_look_at_the_executors() -> None:
    found = {str(error): "executors" in query_error(error).hint for error in MACHINE}
    assert [words for words, told in found.items() if told] == [
        "org.apache.spark.SparkException: Exception thrown in awaitResult: ",
        "cancelled",
    ]


def test_what_was_cancelled_is_told_without_its_class_and_codes() -> None:
    cancelled = next(error for error in MACHINE if "awaitResult" in str(error))
    assert query_error(cancelled).detail.startswith("Job 7 cancelled part of cancelled job tags x. ")


def test_a_lack_of_memory_is_known_as_such() -> None:
    """Whoever is taken into an epoch with one that needs too much is tried without it the next time."""
    found = {str(error): work_failed("view v", error).of_memory for error in MACHINE}
    assert [words for words, of_memory in found.items() if of_memory] == [
        "no memory",
        "java.lang.OutOfMemoryError: Java heap space",
        str(MemoryError()),
    ]
    inner = raised(UnknownException, "java.lang.OutOfMemoryError: Java heap space")
    wrapped = raised(UnknownException, "org.apache.spark.SparkException: Job aborted", cause=inner)
    assert work_failed("view v", wrapped).of_memory


def test_a_view_fails_as_work_where_spark_names_no_fault_of_the_data() -> None:
    for condition in ("INTERNAL_ERROR", "AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE", "SPARK_JOB_CANCELLED"):
        assert type(evaluation_error("v", raised(SparkRuntimeException, "x", condition))) is WorkFailed
    assert type(evaluation_error("v", raised(UnknownException, "java.lang.NullPointerException"))) is WorkFailed


def test_a_query_is_refused_by_what_it_says() -> None:
    for error in (
        raised(AnalysisException, "[UNRESOLVED_COLUMN] ExecutorLostFailure SQLSTATE: XXKDA", "UNRESOLVED_COLUMN"),
        raised(
            UnknownException,
            "org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure",
            cause=raised(SparkRuntimeException, "[USER_RAISED_EXCEPTION] SQLSTATE: XXKDA", "USER_RAISED_EXCEPTION"),
        ),
        raised(UnknownException, "org.apache.spark.SparkException: a column named SQLSTATE: XXKDA"),
        raised(UnknownException, "java.lang.StackOverflowError"),
        raised(SparkRuntimeException, "[INTERNAL_ERROR] x", "INTERNAL_ERROR"),
        PySparkTypeError("no such type"),
    ):
        assert isinstance(query_error(error), QueryError)


def test_java_names_a_fault_of_the_data_where_spark_does_not() -> None:
    assert data_fault(raised(ArithmeticException, "long overflow")) is not None


def test_every_condition_of_the_data_has_a_class_of_the_data() -> None:
    """The rule goes by classes; nothing that Spark calls internal, or lays on its files, may be among them."""
    ours = {name for name in STATES if data_fault(raised(SparkRuntimeException, name, name)) is not None}
    assert len(ours) > 90
    assert not [
        name for name in ours if name.startswith(("INTERNAL", "FAILED_READ", "UNABLE_TO_ACQUIRE", "STATE_STORE"))
    ]


def test_a_new_view_is_not_told_of_a_change() -> None:
    found = evaluation_error("v", raised(ArithmeticException, "[DIVIDE_BY_ZERO] x.", "DIVIDE_BY_ZERO"), defining=True)
    assert isinstance(found, ViewEvaluationError)
    assert "change" not in f"{found.message} {found.detail} {found.hint}"


@pytest.mark.parametrize("kind", [WorkFailed, SparkLost, LedgerNotWritten, HomeBusy])
def test_what_is_transient_is_503_and_says_when_to_come_back(kind: type[HeadraceError]) -> None:
    answer = respond(kind("x"))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


@pytest.mark.parametrize("included", [True, False])
def test_the_answer_of_a_broken_home_tells_what_is_committed(included: bool) -> None:
    document = problem_of(HomeBroken(7, RuntimeError("why"), included=included))
    assert (document["code"], document["epoch"], document["included"]) == ("home_broken", 7, included)


def test_what_is_terminal_names_no_time_to_come_back() -> None:
    broken = HomeBroken(7, RuntimeError("why"))
    # A Spark that the user gave is not started again: the server is not well until somebody does that.
    given = SparkLost("x")
    given.transient = False
    errors = (
        (OwnerLost("x"), 503),
        (SetupError("x"), 503),
        (LedgerError("x"), 500),
        (broken, 503),
        (given, 503),
        # Sent again, it would end Spark again.
        (MemoryExceeded("x"), 422),
    )
    for error, status in errors:
        assert status_of(error) == status
        assert "Retry-After" not in respond(error).headers


class Answering(BaseHTTPRequestHandler):
    """Answers with what it was given, one after the other."""

    answers: ClassVar[list[tuple[int, dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, body = self.answers.pop(0)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_command_line_sends_again_what_may_pass(answering: str) -> None:
    later, ok = {"Retry-After": "0"}, (200, {}, b'{"epoch": 7}')
    Answering.answers = [(503, later, b'{"code": "work_failed"}'), (429, later, b"{}"), ok]
    with Server(answering) as server:
        assert server.post("/v1/epochs", b"{}", content_type="application/json", key="k") == {"epoch": 7}
        Answering.answers = [(503, {}, b'{"code": "owner_lost", "message": "gone"}'), ok]
        with pytest.raises(Remote) as lost:
            server.post("/v1/epochs", b"{}", content_type="application/json", key="k")
    assert (lost.value.code, len(Answering.answers)) == ("owner_lost", 1)


def test_what_failed_last_keeps_nothing_of_what_it_had_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is logged is kept, frames and all, until the test is over.
    monkeypatch.setattr(logging.getLogger("headrace.background"), "disabled", True)

    class Rows:
        pass

    def fold(held: list[weakref.ref[Rows]]) -> None:
        rows = Rows()
        held.append(weakref.ref(rows))
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise LedgerError("cannot be written") from error

    held: list[weakref.ref[Rows]] = []
    failures = Failures("the fold")
    try:
        fold(held)
    except LedgerError as error:
        failures.note(error)
    gc.collect()
    assert failures.text == "cannot be written"
    assert held[0]() is None


def test_a_fold_that_trying_does_not_mend_is_tried_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    pauses: list[bool] = []
    for error in (LedgerNotWritten("full"), OSError("full"), LedgerError("cannot be read")):
        failures = Failures("the fold")
        failures.note(error)
        now += 2.5
        pauses.append(failures.pausing)
    assert pauses == [False, False, True]


@pytest.mark.parametrize(
    ("words", "over"),
    [
        ("Total size of serialized results of 51 tasks is bigger than spark.driver.maxResultSize (64.0 MiB)", True),
        ("Lost task 31.0: org.apache.arrow.memory.OutOfMemoryException: Failure allocating buffer.", True),
        ("Lost task 31.0: java.lang.IllegalStateException", False),
    ],
)
def test_an_answer_that_is_too_large_is_told_from_other_failures(words: str, over: bool) -> None:
    cause = raised(UnknownException, words)
    outer = raised(UnknownException, "Exception thrown in awaitResult:", cause=cause)
    refused = query_error(outer)
    refused.__context__ = outer
    assert _is_over_bound(refused) is over
