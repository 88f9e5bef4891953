"""Refusals in the log: who was refused what, in lines that a flood of them cannot fill a disk with."""

from __future__ import annotations

import logging
import time

from starlette.types import Scope

from headrace.serving.access import access_in
from headrace.serving.problems import Refusal

_log = logging.getLogger("headrace.access")
_LINES = 20
_SECONDS = 10.0
_LONGEST = 200


class RefusalLog:
    """Notes refusals, so many in some seconds; of those beyond, how many there were."""

    def __init__(self) -> None:
        self._since = 0.0
        self._noted = 0

    def note(self, scope: Scope, refusal: Refusal) -> None:
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
            refusal.status,
            refusal.code,
            access_in(scope).who,
            client[0] if client else "?",
            scope["method"][:20],
            scope["path"][:_LONGEST],
        )
