"""Who may use the server: API keys, and without one only programs and pages of this machine."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.errors import SetupError
from headrace.serving.problems import Refusal, respond
from headrace.serving.sessions import COOKIE, Sessions

# What a load balancer asks for; it tells a stranger only that a server is here.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
# The console's own files, the same for everyone, and where a browser signs in; what they show needs a key.
_PAGES = "/console/"
_SAFE = frozenset({"GET", "HEAD"})
# What a browser says of a request that no other page had a part in; a sister domain is another page.
_OWN_SITES = frozenset({"same-origin", "none"})
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_KNOWN = "headrace.known"

Origin = tuple[str, str, int]


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


def is_known(request: Request) -> bool:
    """Whether the request may see more than that a server is here, also where it needs no key."""
    return bool(request.scope.get(_KNOWN))


class Guarded:
    """Lets a request pass if it carries one of the keys; if there are none, if it is meant for this machine.

    What a page of another site has a browser send never passes.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], sessions: Sessions | None = None) -> None:
        self._app = app
        self._sessions = sessions or Sessions()
        # By their digests, all of one length: even that of a key is nobody's business.
        self._keys = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = _sent_by_another_page(headers) or (
                self._unknown_key(headers, scope["method"])
                if self._keys
                else _foreign(headers, scope.get("scheme", "http"))
            )
            scope[_KNOWN] = refusal is None
            if refusal is not None and not _is_open(scope["path"], refusal):
                await respond(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _unknown_key(self, headers: Headers, method: str) -> Refusal | None:
        given = _given(headers)
        matches = is_key(_digest(given), self._keys)
        if given and matches:
            return None
        token = "" if given else session_token(headers)
        signed_in = self._sessions.key_of(token) if token else None
        if signed_in is not None and is_key(signed_in, self._keys):
            # A browser sends its cookie by itself, whatever page made it do so.
            return (
                None if method in _SAFE or _is_own_page(headers) else _foreign_site("No page of this server sent it.")
            )
        return Refusal(
            401,
            "unauthorized",
            "a valid API key is needed",
            hint="send it as Authorization: Bearer <key> or as X-API-Key: <key>",
            headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
        )


def key_digest(key: str) -> bytes:
    """What a key is known by."""
    return _digest(key.encode("utf-8", "surrogatepass"))


def is_key(digest: bytes, keys: Sequence[bytes]) -> bool:
    """Whether a digest is that of one of the keys; each is compared, in constant time: the time tells nothing."""
    matches = [hmac.compare_digest(digest, key) for key in keys]
    return any(matches)


def session_token(headers: Headers) -> str:
    """The token that a browser carries, or nothing."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _is_open(path: str, refusal: Refusal) -> bool:
    return path in OPEN_PATHS or (refusal.status == 401 and (path == "/" or path.startswith(_PAGES)))


def _is_own_page(headers: Headers) -> bool:
    """Whether a browser says that a page of this server sent it; behind a proxy with TLS the scheme differs."""
    if "sec-fetch-site" in headers:
        return True
    return _host_of(headers.get("origin", "")) == headers.get("host", "").lower() != ""


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _given(headers: Headers) -> bytes:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    given = credentials.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
    # Header values reach us as Latin-1; a key outside ASCII was sent as UTF-8.
    return given.encode("latin-1")


def _sent_by_another_page(headers: Headers) -> Refusal | None:
    """Refuse what a browser itself says was caused by a page of another site."""
    if any(site.lower() not in _OWN_SITES for site in headers.getlist("sec-fetch-site")):
        return _foreign_site("The browser says that a page of another site sent the request.")
    return None


def _foreign(headers: Headers, scheme: str) -> Refusal | None:
    """Refuse what a page of another site makes the user's browser send: no key would stop it here."""
    own = _origin(scheme, headers.get("host", ""))
    if own is None or not is_loopback(own[1]):
        return _foreign_site("The request names another host than this machine.")
    # Browsers that tell neither the site nor the origin of a request tell the page it came from.
    page = headers.get("origin") if "sec-fetch-site" in headers or "origin" in headers else headers.get("referer")
    if page is not None and _page_origin(page) != own:
        return _foreign_site("The request comes from a page of another site.")
    return None


def _foreign_site(detail: str) -> Refusal:
    return Refusal(
        403,
        "foreign_site",
        "pages of other sites are not served",
        detail=detail,
        hint="use a program instead of a browser; without an API key, by http://127.0.0.1 or http://localhost",
        headers={"Connection": "close"},
    )


def _page_origin(url: str) -> Origin | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return _origin(parts.scheme, parts.netloc)


def _origin(scheme: str, host: str) -> Origin | None:
    """Scheme, name and port; none of what is no plain host, such as one with a user's name before it."""
    found = _HOST.fullmatch(host)
    if found is None or scheme not in _PORTS:
        return None
    return scheme, found["name"].lower(), int(found["port"] or _PORTS[scheme])
