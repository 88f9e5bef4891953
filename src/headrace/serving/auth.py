"""API keys: who may use the server, and where it may listen without one."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Sequence

from fastapi import Request

from headrace.errors import SetupError
from headrace.serving.problems import Refusal

# What a load balancer and a scraper ask for, and what tells a stranger only that a server is here.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})


def refuse_open_listening(host: str, keys: Sequence[str]) -> None:
    """Without a key the server listens on this machine only."""
    if not keys and not _is_loopback(host):
        raise SetupError(
            f"refusing to listen on {host} without an API key",
            detail="Whoever reaches that address could read and change everything in the home.",
            hint="give a key with --api-key or HEADRACE_API_KEYS, or listen on 127.0.0.1",
        )


def checked_by(keys: Sequence[str]) -> Callable[[Request], Awaitable[None]]:
    """A dependency that lets a request pass if it carries one of the keys, or if there are none."""
    known = [key.encode() for key in keys]

    async def check(request: Request) -> None:
        if not known or request.url.path in OPEN_PATHS:
            return
        given = _given(request)
        # Every key is compared, in constant time: how long it takes tells nothing.
        matches = [hmac.compare_digest(given, key) for key in known]
        if not any(matches):
            raise Refusal(
                401,
                "unauthorized",
                "a valid API key is needed",
                hint="send it as Authorization: Bearer <key> or as X-API-Key: <key>",
                headers={"WWW-Authenticate": "Bearer"},
            )

    return check


def _given(request: Request) -> bytes:
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    given = credentials.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    return given.encode("utf-8", "surrogateescape")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
