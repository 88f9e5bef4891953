"""Every refusal as application/problem+json: code, message, detail and hint, as everywhere in Headrace."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import (
    BadArguments,
    ChangesRejected,
    CommandRefused,
    EpochExpired,
    EventTypeRefused,
    EventTypeTaken,
    FeedError,
    HeadraceError,
    HomeBroken,
    MemoryExceeded,
    OwnerLost,
    QueryError,
    ReadOnly,
    Rejection,
    RelationNameError,
    SetupError,
    SourceError,
    SparkLost,
    StatementError,
    SystemTable,
    UnsupportedStatement,
    VersionConflict,
    ViewError,
    ViewEvaluationError,
)

MEDIA_TYPE = "application/problem+json"
SHOWN_REJECTIONS = 1000
_LOGGED = 500
_log = logging.getLogger("headrace.serving")

# What is transient is 503, whatever it is. Otherwise the nearest class in an error's line of descent decides.
_STATUSES: Mapping[type[HeadraceError], int] = {
    UnsupportedStatement: 400,
    StatementError: 400,
    QueryError: 400,
    RelationNameError: 404,
    SystemTable: 403,
    ViewError: 400,
    ChangesRejected: 422,
    EventTypeRefused: 422,
    EventTypeTaken: 409,
    VersionConflict: 409,
    CommandRefused: 422,
    ViewEvaluationError: 422,
    MemoryExceeded: 422,
    EpochExpired: 410,
    SourceError: 400,
    FeedError: 400,
    ReadOnly: 403,
    OwnerLost: 503,
    HomeBroken: 503,
    # One that the user gave: this server starts no other.
    SparkLost: 503,
    SetupError: 503,
}
_NAME_STATUSES = {"unknown": 404, "taken": 409, "kind": 400}
# Within a few seconds a new Spark is there, an epoch is over, or somebody has made room.
_RETRY_AFTER_SECONDS = 2
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 422: "invalid_request"}


class Refusal(HeadraceError):
    """A request that is refused before it reaches the home, with the status that says so."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        detail: str = "",
        hint: str = "",
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


def status_of(error: BaseException) -> int:
    """The HTTP status of an error; 500 for one that nobody foresaw."""
    if isinstance(error, Refusal):
        return error.status
    if isinstance(error, HeadraceError) and error.transient:
        return 503
    if type(error) is RelationNameError:
        return _NAME_STATUSES[error.fault]
    return next((_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES), 500)


def problem_of(error: BaseException) -> dict[str, Any]:
    """The parts of a problem document; an unforeseen error gives nothing of itself away."""
    status = status_of(error)
    if not isinstance(error, HeadraceError):
        return _document(status, "internal_error", "the server failed to answer", "", "look into the server's log")
    extra: dict[str, Any] = {}
    if isinstance(error, Refusal):
        extra = error.extra
    elif isinstance(error, BadArguments):
        extra = {"command": error.rejections[0].table, "reasons": [one.reason for one in error.rejections]}
    elif isinstance(error, ChangesRejected):
        extra = rejections_of(error.rejections)
    elif isinstance(error, ViewEvaluationError):
        extra = {"view": error.view, "expression": error.expression, "row": error.row}
    elif isinstance(error, VersionConflict):
        extra = {"version": error.version, "expected": error.expected}
    elif isinstance(error, HomeBroken):
        extra = {"epoch": error.epoch, "included": error.included}
    elif error.line is not None:
        extra = {"line": error.line, "column": error.column}
    return {**_document(status, error.code, error.message, error.detail, error.hint), **extra}


def rejections_of(rejections: tuple[Rejection, ...]) -> dict[str, Any]:
    """Rejected changes by table and position, from 0; how many there are, also where not all are shown."""
    shown = [{"table": r.table, "index": r.index, "reason": r.reason} for r in rejections[:SHOWN_REJECTIONS]]
    return {"rejected": len(rejections), "rejections": shown}


def kept_refusal(error: BaseException) -> tuple[Refusal, int]:
    """A refusal with the same answer, which holds nothing else of what failed, and about how many bytes it takes."""
    document = problem_of(error)
    extra = {name: value for name, value in document.items() if name not in _document(0, "", "", "", "")}
    # As text and back: a row may hold values that hold more.
    text = json.dumps(extra, default=str)
    refusal = Refusal(
        document["status"],
        document["code"],
        document["message"],
        detail=document["detail"],
        hint=document["hint"],
        headers=_headers(error),
        extra=json.loads(text),
    )
    return refusal, len(text) + len(refusal.detail)


def log_failure(error: BaseException) -> None:
    """Log what went wrong here; what the server refuses by itself, as not being ready, is no news.

    What passes by itself is one line for each request: its trace, for all of them, would hide everything else.
    """
    if status_of(error) < 500 or isinstance(error, Refusal):
        return
    if isinstance(error, HeadraceError) and error.transient:
        _log.warning("a request failed: %s", " ".join(f"{error.message}: {error.detail}".split())[:_LOGGED])
    else:
        _log.error("a request failed", exc_info=error)


def respond(error: BaseException) -> Response:
    """The answer that an error becomes."""
    log_failure(error)
    # ASCII only: a name that a client made up may hold what is no text.
    content = json.dumps(problem_of(error), default=str)
    return Response(content, status_of(error), _headers(error), MEDIA_TYPE)


def _headers(error: BaseException) -> dict[str, str]:
    if isinstance(error, Refusal):
        return error.headers
    transient = isinstance(error, HeadraceError) and error.transient
    return {"Retry-After": str(_RETRY_AFTER_SECONDS)} if transient else {}


def invalid(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    """The refusal of a request whose parameters or body are not as declared, given the validator's complaints."""
    faults = [{"place": ".".join(map(str, e["loc"])), "reason": str(e["msg"])} for e in errors]
    return Refusal(
        422,
        "invalid_request",
        "the request is not as declared",
        detail="; ".join(f"{fault['place']}: {fault['reason']}" for fault in faults[:20]),
        hint="see /openapi.json",
        extra={"faults": faults[:SHOWN_REJECTIONS]},
    )


def install(app: FastAPI) -> None:
    """Answer every error of the app, those of its framework included, with a problem document."""

    async def own(_: Request, error: Exception) -> Response:
        return respond(error)

    async def of_framework(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase.lower()
        detail = "" if str(error.detail).lower() == phrase else str(error.detail)
        code = _CODES.get(error.status_code, phrase.replace(" ", "_"))
        refusal = Refusal(
            error.status_code, code, phrase, detail=detail, hint="see /openapi.json", headers=error.headers
        )
        return respond(refusal)

    async def of_parameters(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return respond(invalid(error.errors()))

    answers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        HeadraceError: own,
        HTTPException: of_framework,
        RequestValidationError: of_parameters,
    }
    for kind, answer in answers.items():
        app.add_exception_handler(kind, answer)
    app.add_middleware(Caught)


class Caught:
    """Answers an error that nobody foresaw, and logs it; the framework would also close the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and answer for it if it fails."""
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            if started or scope["type"] != "http":
                raise
            await respond(error)(scope, receive, send)


def _document(status: int, code: str, message: str, detail: str, hint: str) -> dict[str, Any]:
    return {
        "type": f"urn:headrace:problem:{code}",
        "title": message,
        "status": status,
        "code": code,
        "message": message,
        "detail": detail,
        "hint": hint,
    }
