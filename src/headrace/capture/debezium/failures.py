"""Why a connector of Debezium ended: what may pass by itself, what may not, and a log that lost what comes next."""

from __future__ import annotations

from headrace.capture.debezium.process import EngineFailed
from headrace.errors import LogTruncated, SourceError, SourceUnavailable

# The state by which our own statement tells that the log does not go on where we are.
TRUNCATED_STATE = "HR001"
_TRUNCATED_WORDS = (
    "no longer available on the server",
    "could not find first log file name in binary log",
    "can no longer get changes from replication slot",
    "can no longer access replication slot",
    "requested wal segment",
)
_PASSING_CLASSES = frozenset(
    {
        "java.io.IOException",
        "java.sql.SQLRecoverableException",
        "java.sql.SQLTransientException",
        "org.apache.kafka.connect.errors.RetriableException",
    }
)
# Of SQL: the connection, too few resources, an operator's intervention, a conflict; and a slot that is still in use.
_PASSING_STATES = ("08", "53", "57", "40")
_PASSING_STATE = "55006"


def failed(name: str, error: EngineFailed) -> SourceError:
    """What a source says of the end of its connector."""
    messages = list(dict.fromkeys(one.message.strip() for one in error.causes if one.message not in ("", "null")))
    detail = " ".join(text if text.endswith((".", "!")) else f"{text}." for text in messages)[:2000]
    states = [one.state for one in error.causes if one.state]
    if TRUNCATED_STATE in states or any(word in detail.lower() for word in _TRUNCATED_WORDS):
        return LogTruncated(
            f"the log of source {name} no longer has what comes next",
            detail=detail,
            hint=f"RESUME SOURCE {name} WITH SNAPSHOT reads its tables anew, and goes on from there",
        )
    passing = any(_PASSING_CLASSES.intersection(one.classes) for one in error.causes)
    if passing or any(state == _PASSING_STATE or state.startswith(_PASSING_STATES) for state in states):
        return SourceUnavailable(
            f"the database of source {name} cannot be read", detail=detail, hint="it is tried again"
        )
    return SourceError(
        f"the database of source {name} cannot be read",
        detail=detail,
        hint=f"mend what is said, then RESUME SOURCE {name}",
    )
