"""Errors of a query on their way from its process to the asker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import errors
from headrace.errors import HeadraceError

# Only these may be told by a query process: none of them says anything about the home.
_KINDS: Mapping[str, type[HeadraceError]] = {
    kind.code: kind
    for kind in (
        errors.QueryError,
        errors.QueryStopped,
        errors.RelationNameError,
        errors.ResultTooLarge,
        errors.StatementError,
        errors.UnsupportedStatement,
        errors.ViewError,
        errors.WorkFailed,
    )
}


def error_to_json(error: HeadraceError) -> dict[str, Any]:
    """All that an asker hears of an error."""
    return {
        "code": error.code,
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
    }


def error_from_json(told: Mapping[str, Any]) -> HeadraceError:
    """The same error again; one of an unknown kind is a `QueryError`."""
    kind = _KINDS.get(str(told.get("code")), errors.QueryError)
    # Not by its constructor, which would write the line into the message once more.
    error = kind.__new__(kind)
    message, detail, hint = (str(told.get(name) or "") for name in ("message", "detail", "hint"))
    HeadraceError.__init__(error, message, detail=detail, hint=hint)
    error.line, error.column = _number(told.get("line")), _number(told.get("column"))
    return error


def _number(value: object) -> int | None:
    return value if type(value) is int else None
