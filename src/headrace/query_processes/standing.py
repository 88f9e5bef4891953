"""What is known of a query by how it went before: whether it was quick, or did harm."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from typing import Literal

# quick: answered in a moment the last time. harmful: its process ended with it, or it was stopped after long.
Standing = Literal["quick", "unknown", "harmful"]
_KEPT = 4096
# A query that did harm may have been unlucky, or the rows that it read are others now.
_FORGIVEN_SECONDS = 600.0


class Standings:
    """Remembers queries by their exact text: another value in it makes another query, of which nothing is known."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[Standing, float]] = OrderedDict()

    def of(self, sql: str) -> Standing:
        """How a query stands."""
        with self._lock:
            standing, since = self._known.get(_digest(sql), ("unknown", 0.0))
        forgiven = standing == "harmful" and time.monotonic() - since > _FORGIVEN_SECONDS
        return "unknown" if forgiven else standing

    def note(self, sql: str, standing: Standing) -> None:
        """Keep how a query went; only the newest are kept."""
        with self._lock:
            digest = _digest(sql)
            self._known.pop(digest, None)
            if standing != "unknown":
                self._known[digest] = standing, time.monotonic()
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)


def _digest(sql: str) -> bytes:
    return hashlib.blake2b(sql.encode(errors="surrogatepass"), digest_size=16).digest()
