"""Reading a request's body piece by piece, within the limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from fastapi import Request
from starlette.requests import ClientDisconnect

from headrace.serving.limits import PushSlot, becomes, too_large
from headrace.serving.problems import Refusal
from headrace.serving.service import service_of

SMALL_BODY_BYTES = 2 * 1024 * 1024
# A body that comes at this rate has all the time it needs.
SLOWEST_BYTES_PER_SECOND = 64 * 1024


async def read_body(request: Request, slot: PushSlot) -> bytes:
    """The whole body; refused as soon as it is known to be too large, also for what it would become once read."""
    sent = await _read(request, slot.check, slot.grow)
    slot.become(becomes(sent))
    return sent


async def read_small_body(request: Request) -> bytes:
    """The whole body of a request that brings no changes, and so has no reason to be large."""
    size = 0

    def check(declared: int) -> None:
        if declared > SMALL_BODY_BYTES:
            raise too_large(SMALL_BODY_BYTES)

    def grow(more: int) -> None:
        nonlocal size
        size += more
        check(size)

    return await _read(request, check, grow)


async def _read(request: Request, check: Callable[[int], None], grow: Callable[[int], None]) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit():
        check(int(declared))
    settings = (await service_of(request)).settings
    patience, whole = settings.serve_patience.total_seconds(), settings.serve_body_time.total_seconds()
    started_at, size = time.monotonic(), 0
    pieces: list[bytes] = []
    stream = request.stream()
    try:
        while True:
            # A client that stalls, or that sends a byte now and then, must not keep its slot for ever.
            left = started_at + whole + size / SLOWEST_BYTES_PER_SECOND - time.monotonic()
            async with asyncio.timeout(max(min(patience, left), 0)):
                piece = await anext(stream, None)
            if piece is None:
                return b"".join(pieces)
            grow(len(piece))
            size += len(piece)
            pieces.append(piece)
    except TimeoutError:
        raise Refusal(
            408,
            "stalled",
            "the body did not come",
            detail=f"Nothing of it came for {patience:g} seconds, or it was not whole after {whole:g} seconds "
            f"and one more for every {SLOWEST_BYTES_PER_SECOND} bytes.",
            hint="send the request again",
            headers={"Connection": "close"},
        ) from None
    except ClientDisconnect:
        # Nobody reads the answer; it ends the request and frees its slot.
        raise Refusal(400, "incomplete", "the body ended before it was whole") from None
