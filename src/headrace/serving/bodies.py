"""Reading a request's body piece by piece, within the limits."""

from __future__ import annotations

from fastapi import Request
from starlette.requests import ClientDisconnect

from headrace.serving.limits import Place
from headrace.serving.problems import Refusal


async def read_body(request: Request, place: Place) -> bytes:
    """The whole body; refused as soon as it is known to be too large, and never read further."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit():
        place.check(int(declared))
    pieces: list[bytes] = []
    try:
        async for piece in request.stream():
            place.grow(len(piece))
            pieces.append(piece)
    except ClientDisconnect:
        # Nobody reads the answer; it ends the request and frees its place.
        raise Refusal(400, "incomplete", "the body ended before it was whole") from None
    return b"".join(pieces)
