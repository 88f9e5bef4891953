"""How often each sender may ask: a bucket of tokens for each, filled at a steady rate."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headrace.serving.problems import Refusal

# Buckets of senders that were not heard of for longest are full again, or forgotten.
_MOST_SENDERS = 10_000


@dataclass
class _Bucket:
    tokens: float
    at: float


class Rates:
    """Counts requests; used by the event loop alone."""

    def __init__(self, rate: float | None, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def limit(self, rate: float | None, burst: int) -> None:
        """Answer so many from now on."""
        self._rate, self._burst = rate, burst

    def take(self, sender: str) -> dict[str, str]:
        """The headers that tell a sender what is left; 429 if nothing is."""
        if self._rate is None:
            return {}
        now = self._clock()
        bucket = self._buckets.pop(sender, None) or _Bucket(self._burst, now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        self._buckets[sender] = bucket
        if len(self._buckets) > _MOST_SENDERS:
            self._buckets.popitem(last=False)
        policy = f'"data";q={self._burst};w={math.ceil(self._burst / self._rate)}'
        if bucket.tokens < 1:
            wait = max(math.ceil((1 - bucket.tokens) / self._rate), 1)
            raise Refusal(
                429,
                "too_many_requests",
                "too many requests",
                detail=f"{self._rate:g} in a second are answered, and {self._burst} at once.",
                hint="send the request again after the seconds that Retry-After names",
                headers={"Retry-After": str(wait), "RateLimit-Policy": policy, "RateLimit": f'"data";r=0;t={wait}'},
            )
        bucket.tokens -= 1
        full = math.ceil((self._burst - bucket.tokens) / self._rate)
        return {"RateLimit-Policy": policy, "RateLimit": f'"data";r={int(bucket.tokens)};t={full}'}
