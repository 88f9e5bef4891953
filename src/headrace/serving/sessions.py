"""Sessions of browsers: who signed in carries a random token, for some hours, instead of a key or an identity."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass

from headrace.access.grants import Access

COOKIE = "headrace_session"
LASTS_SECONDS = 12 * 3600
# Nobody fills the memory by signing in, nor signs others out by it: of who has more, the oldest goes, and when there
# are too many in all, one of whoever has the most.
_MOST_OF_ONE = 100
_MOST = 10_000


@dataclass(frozen=True)
class Session:
    """Who signed in: by a key, known by its digest, which must still be good; or as somebody whom a provider named."""

    ends_at: float
    key: bytes = b""
    access: Access | None = None

    @property
    def holder(self) -> bytes | str:
        """Whose it is: a key's digest, or the name that a provider gave."""
        return self.key if self.access is None else self.access.who


class Sessions:
    """The sessions of one server; they end with it, with their time, and when their key is no longer good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the token's digest: what is held here opens nothing.
        self._open: dict[bytes, Session] = {}
        # Of each holder the same digests, the oldest first.
        self._held: dict[bytes | str, dict[bytes, None]] = {}

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
            self._close(_digest(token))

    def _begin(self, session: Session) -> str:
        token = secrets.token_urlsafe(32)
        known = _digest(token)
        with self._lock:
            self._open[known] = session
            held = self._held.setdefault(session.holder, {})
            held[known] = None
            if len(held) > _MOST_OF_ONE:
                self._close(next(iter(held)))
            elif len(self._open) > _MOST:
                self._close(next(iter(max(self._held.values(), key=len))))
        return token

    def _close(self, known: bytes) -> None:
        session = self._open.pop(known, None)
        if session is not None:
            held = self._held[session.holder]
            del held[known]
            if not held:
                del self._held[session.holder]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
