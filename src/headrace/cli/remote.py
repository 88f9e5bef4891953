"""A running server, as the verbs that go through HTTP know it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, cast

import httpx

from headrace.errors import HeadraceError

# An epoch that fills a view anew may take minutes; a server that cannot be reached is known at once.
_TIMEOUT = httpx.Timeout(None, connect=5.0)
# A server that is busy, or that met what may pass, says when to come back; after so many times it is an error.
_ATTEMPTS = 20
_LONGEST_PAUSE = 5.0


class Remote(HeadraceError):
    """What a server refused, in its own words."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(
            str(problem.get("message") or problem.get("title") or f"the server answered {status}"),
            detail=str(problem.get("detail") or ""),
            hint=str(problem.get("hint") or ""),
        )
        self.code = str(problem.get("code") or "server_error")
        self.status = status
        self.problem = problem
        self.transient = status in (429, 503)


class Unreachable(HeadraceError):
    """No server answers at the address."""

    code = "server_unreachable"


class Server:
    """Requests to one server; every refusal is an error with message, detail and hint."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        # The machine's proxy settings are for the world outside, not for a server on it.
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT, trust_env=False)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str) -> dict[str, Any]:
        """What a path answers."""
        return self._answer("GET", path)

    def post(self, path: str, body: bytes, *, content_type: str, key: str) -> dict[str, Any]:
        """What the server answers to a body, which it takes once however often it is sent under its key."""
        headers = {"Content-Type": content_type, "Idempotency-Key": key}
        return self._answer("POST", path, body, headers)

    def _answer(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        attempts: int = _ATTEMPTS,
    ) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"no answer from {self.url}",
                detail=str(error) or type(error).__name__,
                hint="start headrace serve, or name its address with --url",
            ) from error
        content = _content(response)
        if response.is_success:
            return content
        if _may_pass(response) and attempts > 1:
            time.sleep(_seconds(response.headers.get("Retry-After", "")))
            return self._answer(method, path, body, headers, attempts - 1)
        raise Remote(response.status_code, content)


def _may_pass(response: httpx.Response) -> bool:
    """Whether the server asks for the same again later: it is busy, or what failed may have passed by then."""
    return response.status_code == 429 or (response.status_code == 503 and "Retry-After" in response.headers)


def _seconds(retry_after: str) -> float:
    """How long to stay away."""
    return min(float(retry_after), _LONGEST_PAUSE) if retry_after.isascii() and retry_after.isdigit() else 1.0


def _content(response: httpx.Response) -> dict[str, Any]:
    try:
        content = json.loads(response.content or b"{}")
    except ValueError:
        content = None
    if isinstance(content, dict):
        return cast("dict[str, Any]", content)
    return {"message": f"{response.url} answered {response.status_code}, but not as a Headrace server does"}
