"""Refusals in the words that the client looks for: message, error_code and details, beside our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute

from headrace.errors import HeadraceError
from headrace.serving.problems import Refusal, problem_of, respond


class ClientRoute(APIRoute):
    """A route whose refusals the client can read, those of its keys and parameters included."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        answer = super().get_route_handler()

        async def client_error(request: Request) -> Response:
            try:
                return await answer(request)
            except HeadraceError as error:
                return refused(error)
            except RequestValidationError as error:
                reasons = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
                return refused(Refusal(422, "invalid_request", "the request is not as declared", detail=reasons))

        return client_error


def refused(error: BaseException) -> Response:
    """The answer that an error becomes."""
    plain = respond(error)
    # The client sends a request again that timed out at a gateway; a statement that took too long would run anew.
    plain.status_code = 400 if plain.status_code == 504 else plain.status_code
    plain.body = json.dumps(client_error(error), ensure_ascii=False, default=str).encode("utf-8", "replace")
    plain.headers["content-length"] = str(len(plain.body))
    return plain


def client_error(error: BaseException) -> dict[str, Any]:
    """An error in the client's words, beside our own."""
    problem = problem_of(error)
    whole = f"{problem['message']}: {problem['detail']}" if problem["detail"] else problem["message"]
    return {
        **problem,
        "message": whole,
        "error_code": problem["code"],
        "details": {"hint": problem["hint"], **{name: problem[name] for name in problem if name not in _OWN}},
    }


def unquoted(name: str) -> str:
    """A relation's name; the client puts a case-sensitive one in quotes."""
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name


_OWN = frozenset({"type", "title", "status", "code", "message", "detail", "hint"})
