"""Who a request is from: an API key, a browser's session, or, where there are no keys, a program of this machine."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.access.grants import Access, unlimited
from headrace.access.ring import KeyRing
from headrace.errors import SetupError
from headrace.serving.access import ACCESS, STILL, refusal_of_path
from headrace.serving.problems import Refusal, respond
from headrace.serving.refusal_log import RefusalLog
from headrace.serving.sessions import COOKIE, Sessions

# What a load balancer asks for; it tells a stranger only that a server is here.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
# Where somebody who is not known yet signs in.
_SIGN_IN = frozenset({"/v1/session", "/auth/login", "/auth/callback"})
# The console's own files, the same for everyone; what they show needs a key.
_PAGES = "/console/"
# What a public client asks, which has a key and no session.
_FELDERA = "/v0/"
_SAFE = frozenset({"GET", "HEAD"})
# What a browser says of a request that no other page had a part in; a sister domain is another page.
_OWN_SITES = frozenset({"same-origin", "none"})
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_KNOWN = "headrace.known"
_CREDENTIALS = "headrace.credentials"

_THIS_MACHINE = unlimited("this machine")
Origin = tuple[str, str, int]


def refuse_open_listening(host: str, keys: Sequence[str], has_keys: bool = False) -> None:
    """Without a key, of the settings or of the home, the server listens on this machine only."""
    if not keys and not has_keys and not is_loopback(host):
        raise SetupError(
            f"refusing to listen on {host} without an API key",
            detail="Whoever reaches that address could read and change everything in the home.",
            hint="make a key with headrace key create, give one with HEADRACE_API_KEYS, or listen on 127.0.0.1",
        )


@lru_cache(1_000)
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


def carries_credentials(request: Request) -> bool:
    """Whether the request was let in for a key or a session that it carries, and not for where it comes from."""
    return bool(request.scope.get(_CREDENTIALS))


class Credentials:
    """What opens a server: the keys of its settings, those of its home, and the sessions of browsers."""

    def __init__(self, keys: Sequence[str], ring: KeyRing | None = None, *, needed: bool = False) -> None:
        # By their digests, all of one length: even that of a key is nobody's business.
        self._keys = [_digest(key.encode()) for key in keys]
        self._ring = ring
        self._needed = needed
        self.sessions = Sessions()

    @property
    def is_needed(self) -> bool:
        """Whether requests need a key: from the first one that is made on."""
        return bool(self._keys) or self._needed or (self._ring is not None and self._ring.has_keys)

    def masked(self, access: Access) -> Access:
        """Somebody who reads views in place of what they stand in for in this home."""
        return access if self._ring is None else replace(access, stand_ins=self._ring.stand_ins)

    def access_of_key(self, digest: bytes) -> Access | None:
        """What the holder of the key of a digest may do; those of the settings may do everything."""
        if is_key(digest, self._keys):
            return unlimited("a key of the settings")
        return None if self._ring is None else self._ring.access_of(digest)


class Guarded:
    """Lets a request pass that carries a key or a session; if there are no keys, one of and for this machine.

    What a page of another site has a browser send never passes. What the sender may do goes along with the request,
    and what no route judges is refused here to all but administrators.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str] = (), credentials: Credentials | None = None) -> None:
        self._app = app
        self._credentials = credentials or Credentials(keys)
        self._refusals = RefusalLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "websocket":
            # None is offered; one that a later part adds would have to be judged here first.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http":
            refusal = self._judge(scope)
            if refusal is not None and not _is_open(scope["path"], refusal):
                self._refusals.note(scope, refusal.status, refusal.code)
                await respond(refusal)(scope, receive, send)
                return
            if refusal is not None and refusal.status == 401 and _given(Headers(scope=scope)):
                # Where everybody is answered, the answer may tell all the same whether a key is known.
                self._refusals.note(scope, refusal.status, refusal.code)
            else:
                send = self._refusals.noted(scope, send)
        await self._app(scope, receive, send)

    def _judge(self, scope: Scope) -> Refusal | None:
        """Why a request is refused, if it is; what its sender may do is told to the routes."""
        headers, method = Headers(scope=scope), scope["method"]
        scope[_KNOWN], scope[_CREDENTIALS] = False, False
        foreign = _sent_by_another_page(headers, scope["path"], method)
        if foreign is not None:
            return foreign
        if not self._credentials.is_needed:
            elsewhere = _foreign(headers, scope.get("scheme", "http")) or _from_elsewhere(scope)
            if elsewhere is not None:
                return elsewhere
            access = _THIS_MACHINE
        else:
            found = self._access_of(headers, method, scope["path"])
            if isinstance(found, Refusal):
                return found
            access, scope[_CREDENTIALS] = found, True
            scope[STILL] = lambda: self._access_of(headers, method, scope["path"]) == found
        scope[_KNOWN], scope[ACCESS] = True, access
        return refusal_of_path(access, method, scope["path"])

    def _access_of(self, headers: Headers, method: str, path: str) -> Access | Refusal:
        """What the holder of a key or a session may do, or that neither is there."""
        given = _given(headers)
        access = self._credentials.access_of_key(_digest(given))
        if given and access is not None:
            return access
        # Its statements change things by GET, which any link could have a browser send.
        of_a_program = path.startswith(_FELDERA)
        token = "" if given or of_a_program else session_token(headers)
        session = self._credentials.sessions.find(token) if token else None
        if session is not None:
            # A browser sends its cookie by itself, whatever page made it do so.
            if method not in _SAFE and not _is_own_page(headers):
                return _foreign_site("No page of this server sent it.")
            signed_in = session.access
            access = (
                self._credentials.access_of_key(session.key)
                if signed_in is None
                else self._credentials.masked(signed_in)
            )
            if access is not None:
                return access
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
    """Whether a digest is that of one of the keys; each is compared, in constant time."""
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
    if path in OPEN_PATHS:
        return True
    return refusal.status == 401 and (path == "/" or path.startswith(_PAGES) or path in _SIGN_IN)


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


def _sent_by_another_page(headers: Headers, path: str, method: str) -> Refusal | None:
    """Refuse what a browser itself says was caused by a page of another site."""
    # A provider of identities sends the browser back by a link of its own; what it brings is checked against a cookie.
    returns = path == "/auth/callback" and method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if not returns and any(site.lower() not in _OWN_SITES for site in headers.getlist("sec-fetch-site")):
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


def _from_elsewhere(scope: Scope) -> Refusal | None:
    """Refuse who is not on this machine, whatever address the server has come to listen on and a request names."""
    client = scope.get("client")
    if client is not None and is_loopback(client[0]):
        return None
    return Refusal(
        403,
        "not_this_machine",
        "without an API key only this machine is served",
        detail="The request comes from another one.",
        hint="make a key with headrace key create, and send it as Authorization: Bearer <key>",
        headers={"Connection": "close"},
    )


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


@lru_cache(1_000)
def _origin(scheme: str, host: str) -> Origin | None:
    """Scheme, name and port; none of what is no plain host, such as one with a user's name before it."""
    found = _HOST.fullmatch(host)
    if found is None or scheme not in _PORTS:
        return None
    return scheme, found["name"].lower(), int(found["port"] or _PORTS[scheme])
