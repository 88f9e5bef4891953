"""Whose fault a failure of Spark is: that of the data, which stays, or that of the machine, which may pass.

Spark names most of its errors by a condition, and each condition has an SQLSTATE, whose first two characters are its
class. Those of the data are few and known; whatever else fails, the rows are not to blame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.captured import (
    ArithmeticException,
    CapturedException,
    DateTimeException,
    NumberFormatException,
    UnknownException,
    convert_exception,
)

from headrace.errors import WorkFailed

# What ends in an error of ours wherever Spark works: its own errors, a connection that broke, a full disk or memory.
FAILURES = (PySparkException, Py4JError, OSError, EOFError, MemoryError)

_OF_CONNECTION = (Py4JError, EOFError, ConnectionError)

# Classes of SQLSTATE: more than one row where one is needed; a value that an expression cannot take; a key that comes
# twice; more elements than an array may have; what raise_error and assert_true say.
_OF_DATA = ("21", "22", "23", "54000", "P0")
# But for those that are Spark's own: a file format or a serializer that is not there.
_NOT_OF_DATA = ("22KD",)
# Insufficient resources, system error, a file that cannot be read or is gone (a query names none, so it is ours), and
# work that was cancelled: not by who asked, who hears that it was stopped, but for lack of executors. And what of
# Java's own says the same.
_CANCELLED = ("HY008", "XXKDA")
_OF_MACHINE = ("53", "58", "KD001", "42K03", *_CANCELLED)
_OF_MEMORY = "53200"
_JAVA_OF_MEMORY = ("java.lang.OutOfMemoryError", "org.apache.spark.memory.SparkOutOfMemoryError")
_JAVA_OF_MACHINE = (
    *_JAVA_OF_MEMORY,
    "java.io.",
    "java.net.",
    "java.nio.file.",
    "java.lang.InterruptedException",
    "java.util.concurrent.CancellationException",
)
# What Spark has no condition for: it ends, or executors were lost until it gave up.
_WORDS_OF_MACHINE = re.compile(
    r"[\w.$]+: (Job \d+ cancelled because SparkContext was shut down|Cannot call methods on a stopped SparkContext"
    r"|Job aborted due to stage failure: .*\b(ExecutorLostFailure|FetchFailed))"
)
# A named error of a class that PySpark does not know, as SparkException itself: it is asked for no state, but tells it.
_NAMED = re.compile(r"[\w.$]+: \[[A-Z0-9_.]+\] .*\bSQLSTATE: (\w{5})")
_WAITING = "Exception thrown in awaitResult"
# Java's own, where Spark does not name them: no machine makes them.
_UNNAMED_OF_DATA = (ArithmeticException, DateTimeException, NumberFormatException)


@dataclass(frozen=True)
class DataFault:
    """What Spark says of an expression that failed on a row."""

    expression: str
    words: str


def data_fault(error: BaseException) -> DataFault | None:
    """The fault of the data in a failure of Spark, however deep it is wrapped; None if it is another's."""
    for one in causes(error):
        state = _state(one)
        named = state.startswith(_OF_DATA) and not state.startswith(_NOT_OF_DATA)
        if named or (not state and isinstance(one, _UNNAMED_OF_DATA)):
            contexts = one.getQueryContext() or []
            return DataFault(contexts[0].fragment() if contexts else "", first_line(one))
    return None


def is_of_query(error: BaseException) -> bool:
    """Whether a query failed by what it says, or by the rows that it reads, and not by the machine."""
    if data_fault(error) is not None:
        return True
    if not isinstance(error, (PySparkException, Py4JJavaError)):
        return False
    return not any(_is_of_machine(one) for one in causes(error))


def _is_of_machine(one: CapturedException) -> bool:
    if _state(one).startswith(_OF_MACHINE):
        return True
    if not isinstance(one, UnknownException):
        return False
    text = str(one)
    return text.startswith(_JAVA_OF_MACHINE) or _WORDS_OF_MACHINE.match(text) is not None


def _state(one: CapturedException) -> str:
    """The SQLSTATE of an error; empty if it has none."""
    state = one.getSqlState()
    if state is None and isinstance(one, UnknownException):
        named = _NAMED.match(str(one))
        state = named[1] if named else None
    return state or ""


def refuses_plan(error: BaseException) -> bool:
    """Whether Spark's analysis refused a plan as such, which it will do each time."""
    return isinstance(error, AnalysisException) and not (error.getSqlState() or "").startswith(_OF_MACHINE)


def is_of_connection(error: BaseException) -> bool:
    """Whether a connection to Spark broke, or that is what an error came of."""
    if isinstance(error, WorkFailed):
        return error.disconnected
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        # Py4J tells a call without an answer as one that failed, but for what Java said of it.
        if isinstance(one, _OF_CONNECTION) and not isinstance(one, Py4JJavaError):
            return True
        seen.add(id(one))
        one = one.__cause__ or one.__context__
    return False


def _is_of_memory(error: BaseException) -> bool:
    """Whether a task, or this process, had not enough memory."""
    return isinstance(error, MemoryError) or any(
        _state(one).startswith(_OF_MEMORY)
        or (isinstance(one, UnknownException) and str(one).startswith(_JAVA_OF_MEMORY))
        for one in causes(error)
    )


def work_failed(what: str, error: BaseException) -> WorkFailed:
    """The machine's failure as an error of ours."""
    # Spark's driver waits for its own threads, and says so before it says what has happened.
    chain = [one for one in causes(error) if _WAITING not in str(one).split("\n", 1)[0]]
    cancelled = any(_state(one) in _CANCELLED for one in chain)
    failed = WorkFailed(
        f"{what} could not be worked out",
        detail=f"{first_line(chain[0] if chain else error)}. Nothing of this was committed.",
        hint="send it again; if it goes on, look at "
        + ("whether Spark has executors" if cancelled else "the memory and the disk of this machine"),
    )
    failed.disconnected = is_of_connection(error)
    failed.of_memory = _is_of_memory(error)
    return failed


def first_line(error: BaseException) -> str:
    """The first line of what an error says, without its stack, its codes and its last full stop.

    Nor with Spark's advice to bypass the error by a setting: a home's answers do not depend on one.
    """
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    line = re.sub(r"^([\w.$]+: )?\[[A-Z0-9_.]+\]\s*", "", lines[0])
    line = re.sub(r"\s*SQLSTATE: \w+.*$", "", line)
    line = re.sub(r'\s*If necessary set "?spark\.[\w.]+"? to "?\w+"? to bypass this error\.?', "", line)
    return re.sub(r"\.$", "", line)


def causes(error: BaseException) -> Iterator[CapturedException]:
    """Spark's errors in a failure, from the outermost to the cause of them all."""
    captured: object = convert_exception(error.java_exception) if isinstance(error, Py4JJavaError) else error
    while isinstance(captured, CapturedException):
        yield captured
        captured = captured._cause  # pyright: ignore[reportPrivateUsage]
