"""Sessions of browsers: who signed in carries a random token, for some hours, instead of a key or an identity."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from headrace.access.grants import Access

COOKIE = "headrace_session"
LASTS_SECONDS = 12 * 3600
# The oldest goes when there are more: nobody fills the memory by signing in.
_MOST = 10_000


@dataclass(frozen=True)
class Session:
    """Who signed in: by a key, known by its digest, which must still be good; or as somebody whom a provider named."""

    ends_at: float
    key: bytes = b""
    access: Access | None = None


class Sessions:
    """The sessions of one server; they end with it, with their time, and when their key is no longer good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the token's digest: what is held here opens nothing.
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, key: bytes) -> str:
        """A token that stands for a key, which is given by its digest."""
        return self._begin(Session(time.monotonic() + LASTS_SECONDS, key=key))

    def begin_as(self, access: Access, seconds: float) -> str:
        """A token that stands for somebody, for so long at most."""
        return self._begin(Session(time.monotonic() + min(seconds, LASTS_SECONDS), access=access))

    def find(self, token: str) -> Session | None:
        """The session of a token; None if there is no such session any more."""
        with self._lock:
            found = self._open.get(_digest(token))
        return found if found is not None and found.ends_at > time.monotonic() else None

    def end(self, token: str) -> None:
        """Sign out."""
        with self._lock:
            self._open.pop(_digest(token), None)

    def _begin(self, session: Session) -> str:
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(token)] = session
            while len(self._open) > _MOST:
                self._open.popitem(last=False)
        return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
