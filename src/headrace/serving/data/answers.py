"""Rows as an answer of the data API: in the one JSON form, within the bytes of a page, and told how fresh they are."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson
from fastapi.responses import Response

from headrace.json_forms import json_form
from headrace.serving.data.parameters import Asked
from headrace.serving.data.shown import Shown
from headrace.serving.problems import Refusal

# Epochs of a home that was put back from a copy may come twice with other rows: a tag is good for one process.
_SALT = os.urandom(16)
MEDIA_TYPE = "application/json"


def json_default(value: Any) -> Any:
    """What orjson has no form for, in the one that there is."""
    return f"{value:f}" if isinstance(value, Decimal) else json_form(value)


@dataclass(frozen=True)
class Freshness:
    """The epoch of rows, what changes with the rows, the seconds that they are behind, and how many events lack."""

    epoch: int
    version: tuple[int | str, ...]
    lag: float = 0.0
    # Events of the relation that the sink refused.
    parked: int = 0


def entity_tag(shown: Shown, asked: Asked, freshness: Freshness, place: str, form: str) -> str:
    """What an answer is known by: the same as long as the relation has not changed."""
    compared = [(one.column, one.operator, one.value) for one in asked.conditions]
    order = [(one.name, one.descending) for one in asked.order]
    told = (place, form, freshness.version, asked.fields, compared, order, asked.limit, asked.offset, asked.cursor)
    digest = hashlib.blake2b(shown.digest + repr(told).encode(), key=_SALT, digest_size=15).digest()
    return f'"{base64.urlsafe_b64encode(digest).decode("ascii")}"'


def is_known(tags: str | None, tag: str) -> bool:
    """Whether If-None-Match names a tag; whether it is called weak does not matter here."""
    if not tags:
        return False
    return tags.strip() == "*" or tag in {one.strip().removeprefix("W/") for one in tags.split(",")}


def headers_of(freshness: Freshness, tag: str) -> dict[str, str]:
    """The headers of an answer with rows, or that they are still the same."""
    headers = {
        "ETag": tag,
        # Whoever keeps an answer asks whether it still holds; keys see different things.
        "Cache-Control": "private, no-cache",
        "Vary": "Authorization, X-API-Key",
        "Headrace-Epoch": str(freshness.epoch),
        "Headrace-Lag": f"{freshness.lag:.3f}",
    }
    return headers | {"Headrace-Parked": str(freshness.parked)} if freshness.parked else headers


def unchanged(headers: Mapping[str, str]) -> Response:
    """304: what the sender has is still so."""
    return Response(status_code=304, headers=dict(headers))


def fitting(rows: Sequence[Mapping[str, Any]], most_bytes: int) -> tuple[bytes, int]:
    """As many rows as have room, as text of a JSON array, and how many they are; 400 if the first alone has none."""
    whole = orjson.dumps(rows, json_default)
    if len(whole) <= most_bytes:
        return whole, len(rows)
    texts: list[bytes] = []
    size = 2
    for row in rows:
        text = orjson.dumps(row, json_default)
        size += len(text) + 1
        if size > most_bytes:
            break
        texts.append(text)
    if not texts:
        raise Refusal(
            400,
            "row_too_large",
            "a row is larger than an answer may be",
            detail=f"An answer has at most {most_bytes} bytes of rows.",
            hint="ask for fewer columns with select, or set HEADRACE_DATA_PAGE_BYTES",
        )
    return b"[" + b",".join(texts) + b"]", len(texts)


def row_body(rows: bytes, epoch: int) -> bytes:
    """The one row of an array."""
    return b'{"data":' + rows[1:-1] + b',"epoch":' + str(epoch).encode() + b"}"


def page_body(rows: bytes, cursor: str | None, epoch: int) -> bytes:
    """A page: its rows, and the cursor that leads on if others follow."""
    more = b'"' + cursor.encode() + b'","has_more":true' if cursor is not None else b'null,"has_more":false'
    return b'{"data":' + rows + b',"next_cursor":' + more + b',"epoch":' + str(epoch).encode() + b"}"
