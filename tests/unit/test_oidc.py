"""Sign-in by OpenID Connect, with a provider of our own on loopback: discovery, PKCE, RS256 tokens, and forged ones."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from joserfc import jwk, jwt

from headrace.errors import SetupError
from headrace.serving import oidc, problems, session
from headrace.serving.auth import Credentials, Guarded
from headrace.serving.oidc import OpenId
from headrace.serving.problems import Refusal
from headrace.settings import Settings, read_settings
from tests.servers import listening

CLIENT = "headrace-here"


class Provider:
    """Speaks discovery, authorize with PKCE, token and jwks; its tokens can be spoiled."""

    def __init__(self) -> None:
        self.key = jwk.RSAKey.generate_key(2048, {"kid": "one"})
        self.claims: dict[str, Any] = {"sub": "42", "email": "ann@shop", "email_verified": True, "groups": ["team"]}
        self.spoil: Callable[[dict[str, Any]], dict[str, Any]] = lambda claims: claims
        self.signed_by, self.algorithm = self.key, "RS256"
        self.codes: dict[str, dict[str, str]] = {}
        self.secrets: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if url.path.endswith("openid-configuration"):
                    found = {"issuer": outer.issuer, "authorization_endpoint": f"{outer.issuer}/authorize"}
                    found |= {"token_endpoint": f"{outer.issuer}/token", "jwks_uri": f"{outer.issuer}/keys"}
                    self._answer(200, found)
                elif url.path == "/keys":
                    self._answer(200, {"keys": [outer.key.as_dict(private=False)]})
                else:
                    asked = {name: one[0] for name, one in parse_qs(url.query).items()}
                    code = f"code-{len(outer.codes)}"
                    outer.codes[code] = asked
                    self.send_response(302)
                    self.send_header("Location", f"{asked['redirect_uri']}?code={code}&state={asked['state']}")
                    self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                sent = {name: one[0] for name, one in parse_qs(body).items()}
                asked = outer.codes.pop(sent["code"], None)
                digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                outer.secrets.append(sent.get("client_secret", ""))
                if asked is None or challenge != asked["code_challenge"] or asked["client_id"] != sent["client_id"]:
                    self._answer(400, {"error": "invalid_grant"})
                    return
                now = int(time.time())
                claims = {"iss": outer.issuer, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": asked["nonce"]}
                claims = outer.spoil({**claims, **outer.claims})
                token = jwt.encode({"alg": outer.algorithm, "kid": "one"}, claims, outer.signed_by)
                self._answer(200, {"id_token": token, "token_type": "Bearer"})

            def _answer(self, status: int, body: Any) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def url(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("OIDC_SECRET", "of the client")
    settings = Settings(
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret="env:OIDC_SECRET",
        oidc_grants={"team": ["read:sales_*"], "ann@shop": ["observe"], "ops": ["admin:*"]},
    )
    app = FastAPI()
    app.state.service = SimpleNamespace(settings=settings, end=lambda: None)
    app.state.openid = OpenId(settings)
    app.state.credentials = Credentials((), needed=True)
    problems.install(app)
    app.include_router(session.router)
    app.include_router(oidc.router)
    app.add_middleware(Guarded, credentials=app.state.credentials)
    with listening(app) as (server, _):
        yield server.url


def _signed_in(browser: httpx.Client) -> httpx.Response:
    leads = browser.get("/auth/login")
    assert leads.status_code == 302, leads.text
    back = httpx.get(leads.headers["location"], timeout=90)
    navigates = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    return browser.get(back.headers["location"], headers=navigates)


def test_a_person_signs_in_and_may_do_what_is_granted(url: str, provider: Provider) -> None:
    with httpx.Client(base_url=url, timeout=90) as browser:
        assert browser.get("/v1/session").status_code == 401
        back = _signed_in(browser)
        assert back.status_code == 200, back.text
        cookies = "; ".join(back.headers.get_list("set-cookie")).lower()
        assert "httponly" in cookies
        assert "samesite=strict" in cookies
        told = browser.get("/v1/session").json()
        assert told == {"who": "ann@shop (signed in)", "grants": ["read:sales_*", "observe:*"]}
    assert provider.secrets == ["of the client"]
    with httpx.Client(base_url=url, timeout=90) as other:
        assert other.get("/v1/session").status_code == 401


def _spoiled(**changed: Any) -> Callable[[Provider], None]:
    def spoil(provider: Provider) -> None:
        provider.spoil = lambda claims: {**claims, **changed}

    return spoil


def _another_key(provider: Provider) -> None:
    provider.signed_by = jwk.RSAKey.generate_key(2048, {"kid": "one"})


@pytest.mark.parametrize(
    "spoil",
    [
        _spoiled(aud="another client"),
        _spoiled(iss="https://evil.example"),
        _spoiled(nonce="another"),
        _spoiled(exp=int(time.time()) - 3_600),
        _another_key,
    ],
)
def test_a_forged_token_opens_nothing(url: str, provider: Provider, spoil: Callable[[Provider], None]) -> None:
    spoil(provider)
    with httpx.Client(base_url=url, timeout=90) as browser:
        back = _signed_in(browser)
        assert (back.status_code, back.json()["code"]) == (401, "unauthorized")
        assert browser.get("/v1/session").status_code == 401


def test_to_whom_nothing_is_granted_nothing_is_open(url: str, provider: Provider) -> None:
    provider.claims = {"sub": "7", "email": "ann@shop", "email_verified": False, "groups": []}
    with httpx.Client(base_url=url, timeout=90) as browser:
        assert _signed_in(browser).status_code == 403
        assert browser.get("/v1/session").status_code == 401


def test_a_sign_in_is_of_the_browser_that_began_it_and_of_once(url: str) -> None:
    with httpx.Client(base_url=url, timeout=90) as browser, httpx.Client(base_url=url, timeout=90) as victim:
        leads = browser.get("/auth/login")
        back = httpx.get(leads.headers["location"], timeout=90).headers["location"]
        assert victim.get(back).status_code == 401
        assert browser.get(back).status_code == 200
        assert browser.get(back).status_code == 401
        for path in ("/auth/callback", "/auth/callback?state=x&code=y", f"/auth/callback?state={'x' * 300}&code=y"):
            assert browser.get(path).status_code in (401, 422)


def test_only_a_verified_address_is_a_name_and_no_group_is_an_address(url: str, provider: Provider) -> None:
    claimed = {"sub": "42", "email": "ann@shop", "email_verified": False, "groups": ["team", "ann@shop"]}
    for claims in (claimed, {**claimed, "email_verified": "true"}, {**claimed, "email": "ops", "email_verified": True}):
        provider.claims = claims
        with httpx.Client(base_url=url, timeout=90) as browser:
            assert _signed_in(browser).status_code == 200
            assert browser.get("/v1/session").json() == {"who": "42 (signed in)", "grants": ["read:sales_*"]}


def _openid(provider: Provider) -> OpenId:
    return OpenId(Settings(oidc_issuer=provider.issuer, oidc_client_id=CLIENT, oidc_grants={"team": ["read:*"]}))


def test_thousands_who_begin_to_sign_in_push_out_nobody(provider: Provider) -> None:
    openid, redirect = _openid(provider), "http://127.0.0.1/auth/callback"
    address, cookie = openid.begin(redirect)
    for _ in range(5_000):
        openid.begin(redirect)
    leads = httpx.get(address, timeout=90).headers["location"]
    back = {name: one[0] for name, one in parse_qs(urlsplit(leads).query).items()}
    login = openid.login_of(cookie, back["state"])
    assert openid.finish(login, back["code"]).who == "ann@shop (signed in)"
    with pytest.raises(Refusal, match="cannot be finished") as again:
        openid.finish(openid.login_of(cookie, back["state"]), back["code"])
    assert again.value.detail == "It was finished before."


def test_a_sign_in_is_sealed_by_who_began_it_and_lasts_minutes(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    openid = _openid(provider)
    address, cookie = openid.begin("http://127.0.0.1/auth/callback")
    asked = {name: one[0] for name, one in parse_qs(urlsplit(address).query).items()}
    content, _, seal = cookie.partition(".")
    padded = base64.urlsafe_b64decode(content + "==").decode()
    assert asked["state"] in padded
    assert asked["nonce"] not in padded
    moved = base64.urlsafe_b64encode(padded.replace("127.0.0.1", "evil.example").encode()).decode().rstrip("=")
    for forged in (
        "",
        ".",
        content,
        f"{content}.",
        f"{content}.{seal[:-1]}",
        f"{moved}.{seal}",
        f".{seal}",
        "\udcff.x",
    ):
        with pytest.raises(Refusal):
            openid.login_of(forged, asked["state"])
    for state in ("", "another", asked["state"] + "x", "ö", "\udcff"):
        with pytest.raises(Refusal):
            openid.login_of(cookie, state)
    with pytest.raises(Refusal):
        _openid(provider).login_of(cookie, asked["state"])
    now = time.monotonic()
    monkeypatch.setattr("headrace.serving.oidc.time.monotonic", lambda: now + 601)
    with pytest.raises(Refusal) as late:
        openid.login_of(cookie, asked["state"])
    assert late.value.detail == "It took too long."


@pytest.mark.thorough
def test_a_provider_that_hangs_keeps_no_thread_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_TIMEOUT", 600)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        settings = Settings(
            oidc_issuer=f"http://127.0.0.1:{silent.getsockname()[1]}", oidc_client_id=CLIENT, oidc_grants={}
        )
        app = FastAPI()
        app.state.service = SimpleNamespace(settings=settings, end=lambda: None)
        app.state.openid = OpenId(settings)
        problems.install(app)
        app.include_router(oidc.router)

        @app.get("/threaded")
        def threaded() -> str:  # pyright: ignore[reportUnusedFunction]
            return "here"

        async def ask(url: str) -> None:
            async with httpx.AsyncClient(base_url=url, timeout=90, limits=httpx.Limits(max_connections=100)) as client:
                logins = [asyncio.create_task(client.get("/auth/login")) for _ in range(60)]
                await asyncio.sleep(0.5)
                # With the threads of all it would wait for the provider.
                assert (await client.get("/threaded")).status_code == 200
                silent.close()
                assert (await logins[0]).status_code == 503
                for one in logins:
                    one.cancel()

        with listening(app) as (server, _):
            asyncio.run(ask(server.url))


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SetupError, match="needs a client"):
        OpenId(Settings(oidc_issuer="https://provider.example"))
    with pytest.raises(SetupError, match="a setting is not as it must be"):
        read_settings(oidc_client_secret="plain")
    with pytest.raises(SetupError, match="no grant"):
        OpenId(Settings(oidc_grants={"team": ["root:*"]}))
    assert not OpenId(Settings()).is_offered
