"""What a receiver's answer means: taken, refused, not now, or never again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from headrace.feeds.sink import SinkEnded, SinkUnavailable

# Statuses by which a receiver says that there is something wrong with what it was sent.
_OWN_FAULT = frozenset({400, 413, 422})
_LONGEST_WAIT = 3_600.0
_REASONS = {
    401: "it does not accept who we are (401): see the options token, secret and header.*",
    403: "it does not let us in (403): see the options token, secret and header.*",
    404: "there is nothing at this URL (404)",
    405: "it takes no POST at this URL (405)",
    408: "it waited too long for the request (408)",
    429: "it asks for fewer requests (429)",
}


class Refused(Exception):
    """A receiver that found fault with what it was sent."""


def judge_answer(status: int, headers: Mapping[str, str], said: str) -> None:
    """Return if what was sent is taken; else `Refused`, `SinkUnavailable` or `SinkEnded`."""
    if 200 <= status < 300:
        return
    if status == 410:
        raise SinkEnded("the receiver is gone for good (410)")
    words = f": {said}" if said else ""
    if status in _OWN_FAULT:
        raise Refused(f"the receiver refuses it ({status}){words}")
    if 300 <= status < 400:
        raise SinkUnavailable(f"the receiver answers with a redirect ({status}), and none is followed")
    reason = _REASONS.get(status, f"it answers with status {status}{words}")
    # By Standard Webhooks, any answer may say when to come again.
    raise SinkUnavailable(f"the receiver took nothing: {reason}", seconds_to_wait(headers.get("retry-after")))


def seconds_to_wait(text: str | None, now: datetime | None = None) -> float | None:
    """How long Retry-After asks to wait, in seconds or until a date, at most an hour; None if it says nothing."""
    if text is None:
        return None
    try:
        seconds = float(text) if text.strip().isascii() and text.strip().isdigit() else _until(text, now)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT) if math.isfinite(seconds) else _LONGEST_WAIT


def _until(text: str, now: datetime | None) -> float:
    at = parsedate_to_datetime(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - (now or datetime.now(UTC))).total_seconds()
