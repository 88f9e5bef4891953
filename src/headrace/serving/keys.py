"""Idempotency keys: the same key must come with the same body."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

from headrace.serving.problems import Refusal


class Keys:
    """What each of the newest keys was first sent with."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._prints: OrderedDict[str, bytes] = OrderedDict()

    def free(self, key: str | None) -> None:
        """Forget a key whose changes were rejected: mended ones may come under it."""
        with self._lock:
            self._prints.pop(key or "", None)

    def check(self, key: str | None, *content: bytes) -> None:
        """422 for a key that came with other content before: its first receipt would hide that this is not applied."""
        if key is None:
            return
        digest = hashlib.blake2b(digest_size=16)
        for part in content:
            digest.update(len(part).to_bytes(8, "big") + part)
        with self._lock:
            known = self._prints.setdefault(key, digest.digest())
            self._prints.move_to_end(key)
            while len(self._prints) > self._kept:
                self._prints.popitem(last=False)
        if known != digest.digest():
            raise Refusal(
                422,
                "key_reused",
                "this Idempotency-Key was sent with another request before",
                hint="a key stands for one request and its repetitions; use a new one for new changes",
            )
