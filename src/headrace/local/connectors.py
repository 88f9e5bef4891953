"""Connectors of a Connect worker, over its REST interface."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.errors import SourceError

if TYPE_CHECKING:
    import httpx

_ANSWER_SECONDS = 60.0
_RUNNING_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_NOT_FOUND, _CONFLICT = 404, 409


class Connectors:
    """The connectors of one worker."""

    def __init__(self, url: str) -> None:
        self._url = url

    def names(self) -> list[str]:
        """The connectors that the worker has."""
        return self._ask("GET", "/connectors").json()

    def create(self, config: Mapping[str, str]) -> None:
        """Create a connector, or give an existing one this configuration; return when it and its tasks run."""
        name = config.get("name")
        if not name:
            raise SourceError("a connector has no name", hint="give its configuration a name: {'name': 'shop', ...}")
        self._ask("PUT", f"{_path(name)}/config", dict(config))
        self.wait(name)

    def wait(self, name: str) -> None:
        """Wait until a connector and its tasks run; one that has failed is an error that says why."""
        until = time.monotonic() + _RUNNING_SECONDS
        while True:
            status = self.status(name)
            parts = [] if status is None else [status["connector"], *status["tasks"]]
            states = {part["state"] for part in parts}
            if "FAILED" in states:
                traces = [str(part.get("trace", "")) for part in parts if part["state"] == "FAILED"]
                raise SourceError(
                    f"connector {name} has failed",
                    detail=_reasons(traces[0]),
                    hint="`headrace local logs connect` has all",
                )
            if len(parts) > 1 and states == {"RUNNING"}:
                return
            if time.monotonic() > until:
                raise SourceError(
                    f"connector {name} does not run after {_RUNNING_SECONDS:.0f} seconds",
                    detail=f"Its state is {', '.join(sorted(states)) or 'not known'}.",
                    hint="`headrace local logs connect` shows what the worker says",
                )
            time.sleep(_LOOK_SECONDS)

    def status(self, name: str) -> dict[str, Any] | None:
        """The state of a connector and of its tasks, in Connect's own words; none if there is no such connector."""
        answer = self._ask("GET", f"{_path(name)}/status", absent=True)
        return None if answer.status_code == _NOT_FOUND else answer.json()

    def delete(self, name: str) -> None:
        """Delete a connector, if it is there, and return when it has gone; what it has made in its database stays."""
        self._ask("DELETE", _path(name), absent=True)
        until = time.monotonic() + _RUNNING_SECONDS
        while self.status(name) is not None:
            if time.monotonic() > until:
                raise SourceError(
                    f"connector {name} is not gone after {_RUNNING_SECONDS:.0f} seconds",
                    hint="`headrace local logs connect` shows what the worker says",
                )
            time.sleep(_LOOK_SECONDS)

    def _ask(self, method: str, path: str, body: object = None, *, absent: bool = False) -> httpx.Response:
        # Imported late, so that whoever starts no servers does not pay for it.
        import httpx

        until = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                answer = httpx.request(
                    method, f"{self._url}{path}", json=body, timeout=_ANSWER_SECONDS, trust_env=False
                )
            except httpx.HTTPError as error:
                raise SourceError(
                    "Kafka Connect does not answer",
                    detail=f"{method} {self._url}{path}: {error!r}.",
                    hint="`headrace local status` tells whether it runs",
                ) from error
            # It answers so while its tasks are being shared out.
            if answer.status_code == _CONFLICT and time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
                continue
            if answer.is_success or (absent and answer.status_code == _NOT_FOUND):
                return answer
            raise SourceError(f"Kafka Connect refused {method} {path}", detail=_said(answer))


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _said(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.text[:500]}"


def _reasons(trace: str) -> str:
    """The messages of a Java stack, without its lines of code."""
    lines = (line.strip() for line in trace.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("at ", "... ")))[:2000]
