"""Statements in the audit trail: those that administer a home, by their kind and the names in them."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from headrace.access.audit import Audit
from headrace.errors import HeadraceError
from headrace.sql.syntax import (
    Delete,
    Describe,
    Explain,
    ExplainQuery,
    Insert,
    Query,
    Show,
    Statement,
    Update,
)

# What only reads, and what changes rows, which the ledger keeps.
_OTHERS = (Query, Show, Describe, Explain, ExplainQuery, Insert, Update, Delete)
_NAMES = ("verb", "kind", "name", "event_type", "version", "store", "table", "connector")


@contextmanager
def noted(audit: Audit | None, *statements: Statement) -> Generator[None, None, None]:
    """Inside, statements are run; what administers the home is noted, with what became of it."""
    outcome = "done"
    try:
        yield
    except BaseException as error:
        outcome = error.code if isinstance(error, HeadraceError) else type(error).__name__
        raise
    finally:
        for one in statements:
            if audit is not None and not isinstance(one, _OTHERS):
                audit.note(_told(one), outcome)


def _told(statement: Statement) -> str:
    """A statement's kind and names; its text may hold what nobody should read twice."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(statement).__name__).upper()
    parts = {name: getattr(statement, name, None) for name in _NAMES}
    return " ".join([words, *(f"{name}={value}" for name, value in parts.items() if value)])
