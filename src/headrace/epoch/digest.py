"""What an idempotency key stands for: the changes it first came with, as a few bytes."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.json_forms import json_form


def digest_of(changes: Mapping[str, Sequence[object]]) -> str:
    """The same for the same changes, in whatever order a row names its columns, and whether as values or JSON forms."""
    content = {name.lower(): list(listed) for name, listed in changes.items()}
    try:
        text = json.dumps(content, sort_keys=True, default=_plain)
    except (TypeError, ValueError, RecursionError):
        # Names that do not sort, or a row inside itself: told by intake, if at all.
        try:
            text = repr(content)
        except (ValueError, RecursionError):
            # No text at all: intake refuses it, and till then it is like nothing else.
            text = secrets.token_hex()
    return digest(text.encode("utf-8", "surrogatepass"))


def digest(*parts: bytes) -> str:
    """The digest of parts, none of which can pass for the end of another."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.hexdigest()


def _plain(value: Any) -> Any:
    """A value that JSON does not know, in the form in which it may also be given."""
    return json_form(value.asDict() if hasattr(value, "asDict") else value)
