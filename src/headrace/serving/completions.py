"""Completion tokens: what became of changes that were taken without waiting for their epoch."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from headrace.epoch.receipt import Receipt
from headrace.serving.problems import Refusal, kept_refusal, log_failure

_KEPT_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True)
class Completion:
    """The state behind a token; a complete one has its receipt, a failed one what its sender is answered."""

    state: Literal["complete", "in progress", "failed", "unknown"]
    receipt: Receipt | None = None
    error: Refusal | None = None


class Completions:
    """Tokens of this process: one under way is always known, of those that are over the newest `kept`.

    Fewer are where what there is to say of them takes more than `kept_bytes`.
    """

    def __init__(self, kept: int = 100_000, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Receipt]] = {}
        self._over: OrderedDict[str, tuple[Completion, int]] = OrderedDict()

    def limit(self, kept: int) -> None:
        """Remember so many from now on; older ones go with the next that is over."""
        self._kept = kept

    def issue(self, submission: Future[Receipt]) -> str:
        """A token for a submission; whoever has it may ask what became of it."""
        token = secrets.token_urlsafe(18)
        with self._lock:
            self._under_way[token] = submission
        # Runs at once if the submission is over already.
        submission.add_done_callback(lambda done: self._end(token, done))
        return token

    def ask(self, token: str) -> Completion:
        """The state of a token's submission."""
        with self._lock:
            if token in self._under_way:
                return Completion("in progress")
            found = self._over.get(token)
        return Completion("unknown") if found is None else found[0]

    async def over(self, token: str, seconds: float) -> None:
        """Wait until a token's submission is over, for so many seconds at most."""
        with self._lock:
            submission = self._under_way.get(token)
        if submission is None:
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        submission.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()

    def _end(self, token: str, submission: Future[Receipt]) -> None:
        error, size = submission.exception(), 0
        if error is None:
            over = Completion("complete", submission.result())
        else:
            log_failure(error)
            # Not the error itself, whose frames hold the whole body.
            refusal, size = kept_refusal(error)
            over = Completion("failed", error=refusal)
        with self._lock:
            self._under_way.pop(token, None)
            self._over[token] = over, size
            self._bytes += size
            while len(self._over) > self._kept or self._bytes > self._kept_bytes:
                self._bytes -= self._over.popitem(last=False)[1][1]
