"""Where a page ended, as text that the next request brings back: self-describing, and good for the same question only.

It gives no right: conditions and fields are taken from the request, and a cursor only says after which place of their
order to go on. So it is checked, and not signed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, cast

import orjson

from headrace.reading.access import Access
from headrace.reading.page import Position
from headrace.reading.ranks import rank_from_json, rank_to_json
from headrace.serving.data.parameters import Asked
from headrace.serving.data.shown import Shown
from headrace.serving.problems import Refusal
from headrace.state.arrow_types import arrow_type

_LONGEST = 20_000


def question_of(shown: Shown, asked: Asked, access: Access, place: str) -> str:
    """What tells one question from another; how many rows and which fields it asks for does not."""
    told = f"{place}\0{asked.conditions!r}\0{access.order!r}".encode()
    return hashlib.blake2b(shown.digest + told, digest_size=9).hexdigest()


def written_cursor(position: Position, question: str) -> str:
    """A position as text."""
    low, high = position.identity
    parts = [question, [rank_to_json(one) for one in position.ranks], f"{low:016x}{high:016x}", position.times]
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode("ascii").rstrip("=")


def read_cursor(text: str, shown: Shown, access: Access, question: str) -> Position:
    """The position that a text stands for; 400 for one that is none, or one of another question."""
    if len(text) > _LONGEST:
        raise _bad("it is too long")
    try:
        given: Any = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        asked, values, identity, times = cast(list[Any], given)
        if asked != question:
            raise _bad("it belongs to another relation, condition or order, or the relation's columns have changed")
        types = [arrow_type(shown.schema[one.name].dataType) for one in access.order]
        ranks = tuple(rank_from_json(value, kind) for value, kind in zip(values, types, strict=True))
        low, high = int(identity[:16], 16), int(identity[16:], 16)
        if type(times) is not int or len(identity) != 32 or not 0 <= times < 2**62:
            raise ValueError("no place")
        return Position(ranks, (low, high), times)
    except (ValueError, TypeError, AttributeError, OverflowError, binascii.Error):
        raise _bad("it is none of this server's") from None


def _bad(why: str) -> Refusal:
    return Refusal(
        400,
        "bad_cursor",
        "the cursor cannot be gone on from",
        detail=f"{why[0].upper()}{why[1:]}.",
        hint="send next_cursor as it came, with the same conditions and order; without a cursor the first page comes",
    )
