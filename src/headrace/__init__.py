"""Headrace: a change-data lakehouse on Spark and Delta Lake, with every view kept current incrementally."""

from __future__ import annotations

from headrace import local
from headrace.capture.python_source import source
from headrace.epoch.receipt import Receipt
from headrace.errors import (
    BadArguments,
    ChangesRejected,
    CommandRefused,
    EpochExpired,
    EventsRejected,
    EventTypeRefused,
    EventTypeTaken,
    FeedError,
    FeedUnavailable,
    HeadraceError,
    HomeBroken,
    HomeBusy,
    HomeClosed,
    KeyReused,
    LedgerError,
    LedgerNotWritten,
    LedgerOutOfSight,
    LogTruncated,
    MemoryExceeded,
    OwnerLost,
    ProjectError,
    QueryError,
    QueryStopped,
    ReadOnly,
    Rejection,
    RelationNameError,
    ResultTooLarge,
    SetupError,
    SourceError,
    SourceUnavailable,
    SparkLost,
    StatementError,
    SystemTable,
    UnsupportedStatement,
    VersionConflict,
    ViewError,
    ViewEvaluationError,
    WorkFailed,
)
from headrace.events.commands import Command, CommandResult, command
from headrace.events.store import EventStore
from headrace.face import Headrace
from headrace.face import open_home as open
from headrace.progress import Step
from headrace.reading.explain import Explanation
from headrace.reading.judge import Difference, Verdict
from headrace.settings import Settings
from headrace.version import release as _release

__version__ = _release()

__all__ = [
    "ChangesRejected",
    "Command",
    "CommandRefused",
    "CommandResult",
    "Difference",
    "EpochExpired",
    "EventStore",
    "BadArguments",
    "EventTypeRefused",
    "EventTypeTaken",
    "EventsRejected",
    "Explanation",
    "Headrace",
    "HeadraceError",
    "HomeBroken",
    "HomeBusy",
    "HomeClosed",
    "KeyReused",
    "LedgerError",
    "LedgerNotWritten",
    "LedgerOutOfSight",
    "LogTruncated",
    "MemoryExceeded",
    "OwnerLost",
    "ProjectError",
    "QueryError",
    "QueryStopped",
    "ReadOnly",
    "Receipt",
    "Rejection",
    "RelationNameError",
    "ResultTooLarge",
    "SetupError",
    "Settings",
    "FeedError",
    "FeedUnavailable",
    "SourceError",
    "SourceUnavailable",
    "SparkLost",
    "StatementError",
    "SystemTable",
    "Step",
    "UnsupportedStatement",
    "Verdict",
    "VersionConflict",
    "ViewError",
    "ViewEvaluationError",
    "WorkFailed",
    "command",
    "local",
    "open",
    "source",
]
