"""Sign-in by OpenID Connect: /auth/login leads to the provider, /auth/callback brings a person back with a session.

The code flow with PKCE: what the provider sends back is of use only to the browser that was sent there (a cookie),
once, and only here, who alone knows the verifier. The id token must be signed by a key of the provider, for this one.

What a sign-in under way needs goes with the browser, sealed: whoever begins thousands of them pushes out none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import urlencode

import httpx
from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headrace.access.grants import Access, Grant, read_grant
from headrace.errors import SetupError
from headrace.secrets import referred_to
from headrace.serving.problems import Refusal
from headrace.serving.session import set_cookie
from headrace.settings import Settings

router = APIRouter(include_in_schema=False)
T = TypeVar("T")

_COOKIE = "headrace_login"
_LOGIN_SECONDS = 600
# So many that were finished are known, and not finished again; the provider takes each code once as well.
_MOST_FINISHED = 10_000
_SESSION_SECONDS = 8 * 3600
_TIMEOUT = 10.0
# Sign-ins that ask the provider at once.
_THREADS = 4
# For how long a provider that did not answer is not asked again.
_REST_SECONDS = 3.0
# Asymmetric ones: nobody but the provider can sign.
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
# A page of ours that leads on: the browser then comes from here, and not from the provider.
_BACK = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>Headrace</title><a href="/">Go on</a>'


@dataclass(frozen=True)
class Login:
    """A sign-in under way, as the browser carries it; what only this process may know is derived from its state."""

    state: str
    redirect: str
    ends_at: float


class OpenId:
    """The provider of a server, and the seal of the sign-ins that are under way."""

    def __init__(self, settings: Settings) -> None:
        self._issuer = (settings.oidc_issuer or "").rstrip("/")
        self._client = settings.oidc_client_id or ""
        self._secret = settings.oidc_client_secret
        self._claim = settings.oidc_claim
        self._grants = {name: tuple(map(read_grant, texts)) for name, texts in settings.oidc_grants.items()}
        self._threads = CapacityLimiter(_THREADS)
        self._rests_until = 0.0
        self._lock = threading.Lock()
        self._key = secrets.token_bytes(32)
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._found: dict[str, Any] = {}
        if self._issuer and not self._client:
            raise SetupError("sign-in by OpenID Connect needs a client", hint="set HEADRACE_OIDC_CLIENT_ID")
        if self._issuer and find_spec("joserfc") is None:
            raise SetupError("sign-in by OpenID Connect needs a library", hint="pip install 'headrace[console]'")

    async def asked(self, work: Callable[[], T]) -> T:
        """Ask the provider in a thread, one of few: while it hangs, everybody else's requests need theirs."""
        return await to_thread.run_sync(work, limiter=self._threads)

    @property
    def is_offered(self) -> bool:
        """Whether people may sign in."""
        return bool(self._issuer)

    def begin(self, redirect: str) -> tuple[str, str]:
        """Where to send a browser, and the cookie that it is to bring back."""
        login = Login(secrets.token_urlsafe(32), redirect, time.monotonic() + _LOGIN_SECONDS)
        challenge = _text(hashlib.sha256(self._derived("verifier", login.state).encode()).digest())
        asked = {
            "response_type": "code", "client_id": self._client, "redirect_uri": redirect, "state": login.state,
            "scope": "openid email profile groups", "nonce": self._derived("nonce", login.state),
            "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        address = f"{self._provider()['authorization_endpoint']}?{urlencode(asked)}"
        content = _text(json.dumps(asdict(login)).encode())
        return address, f"{content}.{self._derived('seal', content)}"

    def login_of(self, cookie: str, state: str) -> Login:
        """The sign-in of a browser that brings back the cookie and the state that it was given, in time."""
        content, _, seal = cookie.partition(".")
        if not hmac.compare_digest(seal.encode("utf-8", "surrogatepass"), self._derived("seal", content).encode()):
            raise _refused("This browser did not begin it, or not here.")
        login = Login(**json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))))
        if not hmac.compare_digest(login.state.encode(), state.encode("utf-8", "surrogatepass")):
            raise _refused("This browser did not begin it.")
        if login.ends_at < time.monotonic():
            raise _refused("It took too long.")
        return login

    def finish(self, login: Login, code: str) -> Access:
        """Who signed in, and what that one may do; once."""
        state = login.state
        if not self._is_first(state):
            raise _refused("It was finished before.")
        provider = self._provider()
        sent = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": login.redirect,
            "client_id": self._client, "code_verifier": self._derived("verifier", state),
        }  # fmt: skip
        if self._secret is not None:
            told = referred_to("oidc_client_secret", self._secret, SetupError, "start the server again")
            sent["client_secret"] = str(told)
        try:
            answer = httpx.post(provider["token_endpoint"], data=sent, timeout=_TIMEOUT, follow_redirects=False)
            answer.raise_for_status()
            token = str(answer.json()["id_token"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            raise _refused("The provider gave no token for it.") from None
        return self._access(self._claims(token, self._derived("nonce", state)))

    def _derived(self, what: str, content: str) -> str:
        """What only this process can tell of a content."""
        return _text(hmac.digest(self._key, f"{what} {content}".encode("utf-8", "surrogatepass"), "sha256"))

    def _is_first(self, state: str) -> bool:
        """Whether a sign-in was not finished before; from now on it was."""
        with self._lock:
            if state in self._finished:
                return False
            self._finished[state] = None
            if len(self._finished) > _MOST_FINISHED:
                self._finished.popitem(last=False)
            return True

    def _claims(self, token: str, nonce: str) -> dict[str, Any]:
        """What an id token says, if it is the provider's, for this client, of this sign-in, and of now."""
        from joserfc import jwk, jwt
        from joserfc.errors import JoseError

        try:
            listed: Any = self._fetched(self._provider()["jwks_uri"])
            keys = jwk.KeySet.import_key_set(listed)
            claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
            wanted = jwt.JWTClaimsRegistry(
                leeway=60,
                iss={"essential": True, "value": self._provider()["issuer"]},
                aud={"essential": True, "value": self._client},
                exp={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            wanted.validate(claims)
        except (JoseError, ValueError, KeyError, TypeError):
            raise _refused("Its token is not what it must be.") from None
        return claims

    def _access(self, claims: dict[str, Any]) -> Access:
        """What somebody may do: what is granted to the groups, and to the address if the provider has verified it.

        A name with an @ is an address: no group of that name, and no address that is only claimed, is taken for it.
        """
        listed = claims.get(self._claim, [])
        groups = cast("list[Any]", listed) if isinstance(listed, list) else [listed]
        names = [name for name in map(str, groups) if "@" not in name]
        email = str(claims.get("email", ""))
        address = email if "@" in email and claims.get("email_verified") is True else ""
        if address:
            names.append(address)
        found: list[Grant] = [grant for name in names for grant in self._grants.get(name, ())]
        if not found:
            raise Refusal(403, "forbidden", "nothing is granted to you here", hint="ask who runs the server")
        return Access(f"{(address or str(claims['sub']))[:100]} (signed in)", tuple(found))

    def _provider(self) -> dict[str, Any]:
        if not self._found:
            found = self._fetched(f"{self._issuer}/.well-known/openid-configuration")
            if str(found.get("issuer", "")).rstrip("/") != self._issuer:
                raise _refused("The provider calls itself otherwise than the setting does.")
            self._found = found
        return self._found

    def _fetched(self, url: str) -> dict[str, Any]:
        if time.monotonic() < self._rests_until:
            raise _unavailable()
        try:
            answer = httpx.get(url, timeout=_TIMEOUT, follow_redirects=False)
            answer.raise_for_status()
            return dict(answer.json())
        except (httpx.HTTPError, ValueError, TypeError):
            # Those who wait for their turn hear it now, and not one after the other.
            self._rests_until = time.monotonic() + _REST_SECONDS
            raise _unavailable() from None


@router.get("/auth/login")
async def login(request: Request) -> Response:
    """Lead a browser to the provider."""
    provider = _offered(request)
    redirect = request.app.state.service.settings.oidc_redirect or str(request.url_for("callback"))
    address, cookie = await provider.asked(partial(provider.begin, redirect))
    answer = RedirectResponse(address, 302)
    secure = request.url.scheme == "https"
    answer.set_cookie(_COOKIE, cookie, _LOGIN_SECONDS, path="/auth", httponly=True, samesite="lax", secure=secure)
    return answer


@router.get("/auth/callback")
async def callback(
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4_000)] = "",
) -> Response:
    """Take somebody back from the provider, with a session."""
    provider = _offered(request)
    login = provider.login_of(request.cookies.get(_COOKIE, ""), state)
    if not code:
        raise _refused("The provider brought no code for it.")
    access = await provider.asked(partial(provider.finish, login, code))
    credentials = request.app.state.credentials
    answer = HTMLResponse(_BACK)
    set_cookie(answer, request, credentials.sessions.begin_as(access, _SESSION_SECONDS))
    answer.delete_cookie(_COOKIE, path="/auth")
    return answer


def _offered(request: Request) -> OpenId:
    provider: OpenId = request.app.state.openid
    if not provider.is_offered:
        raise Refusal(404, "not_found", "nobody signs in by OpenID Connect here", hint="set HEADRACE_OIDC_ISSUER")
    return provider


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _unavailable() -> Refusal:
    return Refusal(
        503, "provider_unavailable", "the provider of identities does not answer", headers={"Retry-After": "5"}
    )


def _refused(detail: str) -> Refusal:
    return Refusal(
        401, "unauthorized", "the sign-in cannot be finished", detail=detail, hint="begin again: /auth/login"
    )
