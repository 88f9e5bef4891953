"""Statements in the audit trail: those that administer a home, by their kind and the names in them."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext

from headrace.access.audit import Audit
from headrace.sql.syntax import (
    DeadLetterAction,
    DeadLetterVerb,
    Delete,
    Describe,
    Explain,
    ExplainQuery,
    Insert,
    ParkedAction,
    Query,
    Show,
    Statement,
    Update,
)

# What only reads, and what changes rows, which the ledger keeps.
_OTHERS = (Query, Show, Describe, Explain, ExplainQuery, Insert, Update, Delete)
_NAMES = ("verb", "kind", "name", "event_type", "version", "store", "table", "connector")


def noted(audit: Audit | None, *statements: Statement) -> AbstractContextManager[None]:
    """Inside, statements are run; what administers the home is noted, with what became of it."""
    if audit is None:
        return nullcontext()
    return audit.noting(*(_told(one) for one in statements if not isinstance(one, _OTHERS)))


def noted_letters(audit: Audit | None, verb: DeadLetterVerb) -> AbstractContextManager[None]:
    """Inside, dead letters are replayed or discarded by other means than the statement; noted as that is."""
    return noted(audit, DeadLetterAction(sql="", line=1, column=1, verb=verb, where=""))


def noted_parked(audit: Audit | None, verb: DeadLetterVerb) -> AbstractContextManager[None]:
    """The same of parked events."""
    return noted(audit, ParkedAction(sql="", line=1, column=1, verb=verb, where=""))


def _told(statement: Statement) -> str:
    """A statement's kind and names; its text may hold what nobody should read twice."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(statement).__name__).upper()
    parts = {name: getattr(statement, name, None) for name in _NAMES}
    return " ".join([words, *(f"{name}={value}" for name, value in parts.items() if value)])
