"""Sessions of browsers: who signed in with a key carries a random token instead of it, for some hours."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict

COOKIE = "headrace_session"
LASTS_SECONDS = 12 * 3600
# The oldest goes when there are more: nobody fills the memory by signing in.
_MOST = 10_000


class Sessions:
    """The sessions of one server; they end with it, with their time, and when their key is no longer good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the token's digest: what is held here opens nothing.
        self._open: OrderedDict[bytes, tuple[bytes, float]] = OrderedDict()

    def begin(self, key: bytes) -> str:
        """A token that stands for a key, which is given by its digest."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(token)] = key, time.monotonic() + LASTS_SECONDS
            while len(self._open) > _MOST:
                self._open.popitem(last=False)
        return token

    def key_of(self, token: str) -> bytes | None:
        """The digest of the key that a token stands for; None if there is no such session any more."""
        with self._lock:
            found = self._open.get(_digest(token))
        if found is None or found[1] < time.monotonic():
            return None
        return found[0]

    def end(self, token: str) -> None:
        """Sign out."""
        with self._lock:
            self._open.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
