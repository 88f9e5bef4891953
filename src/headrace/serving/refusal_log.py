"""Refusals in the log: who was refused what, in lines that a flood of them cannot fill a disk with."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable

from starlette.types import Message, Scope, Send

from headrace.serving.access import access_in

_log = logging.getLogger("headrace.access")
_LINES = 20
_SECONDS = 10.0
_LONGEST = 200
# What a line calls an answer of whose code it is not told.
_REFUSED = {401: "unauthorized", 403: "forbidden"}


class RefusalLog:
    """Notes refusals, so many in some seconds; of those beyond, how many there were."""

    def __init__(self) -> None:
        self._since = 0.0
        self._noted = 0

    def noted(self, scope: Scope, send: Send) -> Send:
        """Sends an answer, and notes it if it is a refusal: whichever route gives it, and however."""

        def sent(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start" and message["status"] in _REFUSED:
                self.note(scope, message["status"])
            return send(message)

        return sent

    def note(self, scope: Scope, status: int, code: str = "") -> None:
        """Note a refusal: status, who, where from, method and path; never a key, a header or a query."""
        now = time.monotonic()
        if now - self._since > _SECONDS:
            if self._noted > _LINES:
                _log.warning("%d more requests were refused", self._noted - _LINES)
            self._since, self._noted = now, 0
        self._noted += 1
        if self._noted > _LINES:
            return
        client = scope.get("client")
        _log.warning(
            "refused %d %s: %s from %s: %s %r",
            status,
            code or _REFUSED[status],
            access_in(scope).who,
            client[0] if client else "?",
            scope["method"][:20],
            scope["path"][:_LONGEST],
        )
