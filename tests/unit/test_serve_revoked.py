"""A stream ends when what it was let in for no longer holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

from headrace.access.grants import read_grant
from headrace.access.keys import create_key, revoke_key, set_stand_in
from headrace.access.ring import KeyRing
from headrace.serving.auth import Credentials, Guarded
from headrace.serving.streams import EventStream, OpenStream


class _Slot:
    def release(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("revoked", [True, False], ids=["revoked", "with a view that stands in from now on"])
def test_a_stream_ends_when_its_key_no_longer_holds(tmp_path: Path, revoked: bool) -> None:
    key, token = create_key(tmp_path, "dash", [read_grant("read:t")], "me")
    ring = KeyRing(tmp_path)

    def change() -> None:
        revoke_key(tmp_path, key.id) if revoked else set_stand_in(tmp_path, "t", "t_masked")
        ring.look()

    assert asyncio.run(_sent(ring, token, change)) == b"before, "
    if revoked:
        assert asyncio.run(_sent(ring, token, lambda: None)).startswith(b'{"type"')


def test_a_stream_of_a_key_that_holds_goes_on(tmp_path: Path) -> None:
    _, token = create_key(tmp_path, "dash", [read_grant("read:t")], "me")
    ring = KeyRing(tmp_path)
    create_key(tmp_path, "other", [read_grant("read:t")], "me")
    assert asyncio.run(_sent(ring, token, ring.look)) == b"before, after"


async def _sent(ring: KeyRing, token: str, meanwhile: Callable[[], None]) -> bytes:
    async def events() -> AsyncGenerator[bytes, None]:
        yield b"before, "
        meanwhile()
        yield b"after"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        slot = cast("OpenStream", _Slot())
        await EventStream(events(), slot, 90.0, greeting=b"")(scope, receive, send)

    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(600)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    headers = [(b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/v1/changes/t", "headers": headers, "query_string": b""}
    await Guarded(app, credentials=Credentials((), ring))(scope, receive, send)
    return b"".join(sent)
