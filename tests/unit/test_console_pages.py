"""The console's files and its sign-in, without a home: what is served to whom, and what is refused."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

import headrace.serving.console.pages as pages
from headrace.serving import problems
from headrace.serving.auth import Credentials, Guarded, key_digest
from headrace.serving.oidc import OpenId
from headrace.serving.sessions import COOKIE, Sessions
from headrace.settings import Settings

KEY = "a-key-of-the-console"
STATIC = Path(pages.__file__).parent / "static"


def app_with(*keys: str, **openid: Any) -> FastAPI:
    app = FastAPI()
    app.state.service = SimpleNamespace(settings=Settings(api_keys=keys))
    app.state.credentials = Credentials(keys)
    app.state.openid = OpenId(Settings(**openid))
    problems.install(app)
    app.include_router(pages.router)

    @app.api_route("/v1/secret", methods=["GET", "POST"])
    async def secret(request: Request) -> str:
        return "secret"

    app.add_middleware(Guarded, credentials=app.state.credentials)
    return app


def ask(app: FastAPI, method: str, path: str, **parts: Any) -> httpx.Response:
    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            return await client.request(method, path, **parts)

    return asyncio.run(asked())


def signed_in(app: FastAPI) -> dict[str, str]:
    answer = ask(app, "POST", "/console/session", json={"key": KEY})
    assert answer.status_code == 200
    return {"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}


def test_pages_are_strict_about_where_things_come_from() -> None:
    answer = ask(app_with(), "GET", "/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert "https:" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("file", sorted(STATIC.rglob("*.*")), ids=lambda file: file.name)
def test_no_file_names_another_host_or_writes_markup(file: Path) -> None:
    text = file.read_text()
    hosts = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert hosts == set()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"<[a-z]+[^>]*\s(on[a-z]+|style)=", text), "a strict policy would block it"
    asked = set(re.findall(r"[\"'`](/console/[a-z/]+\.(?:js|css|svg))[\"'`]", text))
    assert all((STATIC / one.removeprefix("/console/")).is_file() for one in asked)


def test_an_asset_is_sent_once() -> None:
    app = app_with()
    first = ask(app, "GET", "/console/app.js")
    assert first.headers["content-type"] == "text/javascript; charset=utf-8"
    assert first.headers["content-encoding"] == "gzip"
    again = ask(app, "GET", "/console/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    ["/console/../auth.py", "/console/%2e%2e/pages.py", "/console/..%2fpages.py", "/console//etc/passwd", "/console/"],
)
def test_nothing_beside_the_assets_is_sent(path: str) -> None:
    assert ask(app_with(), "GET", path).status_code == 404


def test_the_first_page_is_for_everyone_and_nothing_else() -> None:
    app = app_with(KEY)
    assert ask(app, "GET", "/").status_code == 200
    assert ask(app, "GET", "/console/app.js").status_code == 200
    assert ask(app, "GET", "/console/session").json() == {"needs_key": True, "known": False}
    assert ask(app, "GET", "/v1/secret").status_code == 401


def test_where_people_sign_in_the_page_is_told_so() -> None:
    provider = {"oidc_issuer": "https://provider.example", "oidc_client_id": "headrace-here"}
    told = ask(app_with(KEY, **provider), "GET", "/console/session").json()
    assert told == {"needs_key": True, "known": False, "oidc": True}
    assert '"/auth/login"' in (STATIC / "app.js").read_text()


def test_a_session_stands_for_its_key_until_it_is_ended() -> None:
    app = app_with(KEY)
    cookie = signed_in(app)
    assert KEY not in cookie["Cookie"]
    assert ask(app, "GET", "/v1/secret", headers=cookie).status_code == 200
    assert ask(app, "GET", "/console/session", headers=cookie).json()["known"] is True
    own = {**cookie, "Origin": "http://127.0.0.1:8080"}
    assert ask(app, "POST", "/v1/secret", headers=own).status_code == 200
    assert ask(app, "DELETE", "/console/session", headers=own).status_code == 200
    assert ask(app, "GET", "/v1/secret", headers=cookie).status_code == 401


@pytest.mark.parametrize("key", ["", "wrong-key-of-it", KEY + "x", KEY[:-1], "ключ"])
def test_a_key_that_is_not_one_begins_no_session(key: str) -> None:
    answer = ask(app_with(KEY), "POST", "/console/session", json={"key": key})
    assert answer.status_code in (401, 422)
    assert "set-cookie" not in answer.headers


def test_the_cookie_is_for_this_site_and_no_script() -> None:
    answer = ask(app_with(KEY), "POST", "/console/session", json={"key": KEY})
    attributes = answer.headers["set-cookie"].lower()
    assert "httponly" in attributes
    assert "samesite=strict" in attributes


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8080"},
    ],
)
def test_a_page_of_another_site_changes_nothing_with_the_cookie(headers: dict[str, str]) -> None:
    app = app_with(KEY)
    assert ask(app, "POST", "/v1/secret", headers={**signed_in(app), **headers}).status_code == 403


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}])
def test_pages_are_not_shown_to_other_sites(headers: dict[str, str]) -> None:
    assert ask(app_with(), "GET", "/", headers=headers).status_code == 403


@pytest.mark.parametrize("token", ["", "forged", "a" * 5000, "\udcff"])
def test_a_forged_token_opens_nothing(token: str) -> None:
    assert Sessions().find(token) is None


def test_a_session_of_a_key_that_is_gone_opens_nothing() -> None:
    app = app_with(KEY)
    token = app.state.credentials.sessions.begin(key_digest("another-key-that-was"))
    assert ask(app, "GET", "/v1/secret", headers={"Cookie": f"{COOKIE}={token}"}).status_code == 401
