"""Signatures of Standard Webhooks: what was sent comes from us, is whole, and is not an old copy.

The text that is signed is the id, the time and the body, before it is compressed. Each secret signs, so that a receiver
can go over from one to the next.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

from headrace.errors import FeedError

_PREFIX = "whsec_"
_LEAST_BYTES, _MOST_BYTES = 24, 64


def read_secrets(text: str) -> list[bytes]:
    """The keys of one or more secrets, separated by spaces: whsec_ and 24 to 64 bytes in base64."""
    return [_read_secret(one, number) for number, one in enumerate(text.split(), 1)]


def message_id(feed_id: str, sequences: Sequence[int], kind: str = "events") -> str:
    """The id of a message: the same whenever the same events of the same feed are sent."""
    digest = hashlib.sha256(f"{kind}\0{feed_id}\0{','.join(map(str, sequences))}".encode()).hexdigest()
    return f"msg_{digest[:32]}"


def signed_headers(keys: Sequence[bytes], identity: str, at: int, body: bytes) -> dict[str, str]:
    """The headers of a message; without keys, it has no signature."""
    headers = {"webhook-id": identity, "webhook-timestamp": str(at)}
    if keys:
        text = f"{identity}.{at}.".encode() + body
        made = [base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode() for key in keys]
        headers["webhook-signature"] = " ".join(f"v1,{one}" for one in made)
    return headers


def _read_secret(text: str, number: int) -> bytes:
    content = text.removeprefix(_PREFIX)
    try:
        key = base64.b64decode(content + "=" * (-len(content) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        # Never the secret itself.
        raise FeedError(
            f"secret number {number} of the webhook is none of Standard Webhooks",
            detail=f"One is {_PREFIX} and {_LEAST_BYTES} to {_MOST_BYTES} bytes in base64; several are separated by "
            "spaces.",
            hint="make one with: echo whsec_$(openssl rand -base64 32)",
        )
    return key
