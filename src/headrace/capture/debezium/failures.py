"""Why a connector of Debezium ended: what may pass by itself, what may not, and a log that lost what comes next."""

from __future__ import annotations

import re

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

# The driver of PostgreSQL tells it in the state of a connection that fails.
_NO_PASSWORD = ("no password was provided", "the password is an empty string", "(using password: no)")

# Where a statement of ours raised what it says, which is nobody's business but ours.
_OWN_WORDS = re.compile(r"^ERROR: (?=.*inline_code_block)|\s+Where: PL/pgSQL function inline_code_block.*", re.DOTALL)
_ANOTHER = "; if another home has a source of this name on the same database, give one of them another name"
_REMEDIES = {
    "no table filters found": "the database has no table that the option tables names: see its spelling and its schema",
    "replication attribute": "let the user replicate there (ALTER ROLE ... REPLICATION)",
    "password authentication failed": "see the user of the URL and what the option password refers to",
    **dict.fromkeys(_NO_PASSWORD, "give the password of the user by the option password = 'env:NAME' or 'file:/path'"),
    "access denied for user": "see the user of the URL, its rights, and what the option password refers to",
}


def failed(name: str, error: EngineFailed) -> SourceError:
    """What a source says of the end of its connector."""
    messages = list(dict.fromkeys(one.message.strip() for one in error.causes if one.message not in ("", "null")))
    messages = [_OWN_WORDS.sub("", text) for text in messages]
    detail = " ".join(text if text.endswith((".", "!")) else f"{text}." for text in messages)[:2000]
    states = [one.state for one in error.causes if one.state]
    if TRUNCATED_STATE in states or any(word in detail.lower() for word in _TRUNCATED_WORDS):
        return LogTruncated(
            f"the log of source {name} no longer has what comes next",
            detail=detail,
            hint=f"RESUME SOURCE {name} WITH SNAPSHOT reads its tables anew, and goes on from there"
            + (_ANOTHER if TRUNCATED_STATE in states else ""),
        )
    passing = any(_PASSING_CLASSES.intersection(one.classes) for one in error.causes)
    passing = passing or any(state == _PASSING_STATE or state.startswith(_PASSING_STATES) for state in states)
    if passing and not any(words in detail.lower() for words in _NO_PASSWORD):
        return SourceUnavailable(
            f"the database of source {name} cannot be read", detail=detail, hint="it is tried again"
        )
    return SourceError(
        f"the database of source {name} cannot be read",
        detail=detail,
        hint=f"{_remedy(detail)}, then RESUME SOURCE {name}",
    )


def _remedy(detail: str) -> str:
    """What to do about what people meet most."""
    return next((remedy for words, remedy in _REMEDIES.items() if words in detail.lower()), "mend what is said")
