"""Who may use the server: API keys, and without one only programs and pages of this machine."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.errors import SetupError
from headrace.serving.problems import Refusal, respond

# What a load balancer asks for; it tells a stranger only that a server is here.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})


def refuse_open_listening(host: str, keys: Sequence[str]) -> None:
    """Without a key the server listens on this machine only."""
    if not keys and not is_loopback(host):
        raise SetupError(
            f"refusing to listen on {host} without an API key",
            detail="Whoever reaches that address could read and change everything in the home.",
            hint="give a key with --api-key or HEADRACE_API_KEYS, or listen on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guarded:
    """Lets a request pass if it carries one of the keys; if there are none, if it is meant for this machine."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            headers = Headers(scope=scope)
            refusal = self._unknown_key(headers) if self._keys else _foreign(headers)
            if refusal is not None:
                await respond(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _unknown_key(self, headers: Headers) -> Refusal | None:
        given = _given(headers)
        # Every key is compared, in constant time: how long it takes tells nothing.
        matches = [hmac.compare_digest(given, key) for key in self._keys]
        if any(matches):
            return None
        return Refusal(
            401,
            "unauthorized",
            "a valid API key is needed",
            hint="send it as Authorization: Bearer <key> or as X-API-Key: <key>",
            headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
        )


def _given(headers: Headers) -> bytes:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    given = credentials.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    # Header values reach us as Latin-1; a key outside ASCII was sent as UTF-8.
    return given.encode("latin-1")


def _foreign(headers: Headers) -> Refusal | None:
    """Refuse what a page of another site makes the user's browser send: no key would stop it here."""
    host, origin = headers.get("host", ""), headers.get("origin")
    if not is_loopback(_name(f"//{host}")) or (origin is not None and _name(origin) != _name(f"//{host}")):
        return Refusal(
            403,
            "foreign_site",
            "without an API key only this machine is served",
            detail="The request names another host, or comes from a page of another site.",
            hint="use http://127.0.0.1 or http://localhost, or start the server with an API key",
            headers={"Connection": "close"},
        )
    return None


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
