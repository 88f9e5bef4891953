"""Who is let in: keys, hosts, and what browsers say of the page that sent a request."""

from __future__ import annotations

import asyncio
import hmac
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from headrace.access.grants import read_grant
from headrace.access.keys import create_key
from headrace.access.ring import KeyRing
from headrace.errors import LedgerError, SetupError
from headrace.serving import problems, session
from headrace.serving.access import forbidden
from headrace.serving.auth import Credentials, Guarded, is_known, refuse_open_listening
from headrace.serving.console import pages
from headrace.serving.oidc import OpenId
from headrace.serving.refusal_log import RefusalLog
from headrace.serving.service import Held, Service
from headrace.settings import Settings, read_settings

HERE = "http://127.0.0.1:8080"


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(str(is_known(Request(scope))))(scope, receive, send)


def _ask(
    path: str = "/metrics",
    keys: tuple[str, ...] = (),
    client: str = "127.0.0.1",
    ring: KeyRing | None = None,
    **headers: str,
) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Guarded(_app, credentials=Credentials(keys, ring)), client=(client, 5555))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as asking:
            return await asking.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return asyncio.run(ask())


@pytest.mark.parametrize(
    "keys", [("",), ("   ",), ("\t\n",), ("s3cr3t",), (" s3cr3t-inside ",), ("control\x00key",), ("good enough", "")]
)
def test_a_key_that_is_none_is_refused_before_anything_is_made(keys: tuple[str, ...]) -> None:
    with pytest.raises(SetupError, match="a setting is not as it must be") as refused:
        read_settings(api_keys=keys)
    assert "api_keys" in refused.value.detail
    assert not any(key in str(refused.value) for key in keys if len(key.strip()) > 3)


@pytest.mark.parametrize(
    "given", ["first-key-of-two", "second-key-of-two", "first-key-of-twx", "first", "", "x" * 4_000]
)
def test_how_long_it_takes_tells_nothing_of_a_key(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key is compared, whichever is right, and by digests: of one length, and in constant time."""
    compared: list[tuple[bytes, bytes]] = []
    compare_digest = hmac.compare_digest

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return compare_digest(left, right)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    keys = ("first-key-of-two", "second-key-of-two")
    assert _ask(keys=keys, X_API_Key=given).status_code == (200 if given in keys else 401)
    assert len(compared) == len(keys)
    assert {len(one) for pair in compared for one in pair} == {32}


def test_refusals_are_logged_and_a_flood_of_them_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, clock = RefusalLog(), [100.0]
    monkeypatch.setattr("headrace.serving.refusal_log.time.monotonic", lambda: clock[0])
    scope: Any = {"type": "http", "method": "GET", "path": "/v1/\n" + "x" * 5_000, "client": ("10.0.0.1", 1)}
    for _ in range(1_000):
        log.note(scope, 401, "unauthorized")
    assert len(caplog.records) == 20
    clock[0] += 60
    log.note(scope, 403)
    lines = [one.getMessage() for one in caplog.records]
    assert lines[20] == "980 more requests were refused"
    assert lines[21].startswith("refused 403 forbidden: nobody from 10.0.0.1: GET '/v1/\\n")
    assert max(map(len, lines)) < 300


@pytest.mark.anyio
async def test_every_refusal_is_logged_whoever_gives_it(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    problems.install(app)
    settings = Settings(api_keys=("right-key",))
    app.state.service = SimpleNamespace(settings=settings)
    app.state.credentials = Credentials(settings.api_keys)
    app.state.openid = OpenId(settings)
    for router in (session.router, pages.router):
        app.include_router(router)

    @app.get("/v1/graph")
    async def graph() -> None:  # pyright: ignore[reportUnusedFunction]
        raise forbidden("read customers")

    @app.get("/v1/own")
    async def own() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse({}, 403)

    app.add_middleware(Guarded, credentials=app.state.credentials)
    guessed, right = {"X-API-Key": "a guess"}, {"X-API-Key": "right-key"}
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/v1/session", {"json": {"key": "a guess"}}),
        ("POST", "/console/session", {"json": {"key": "a guess"}}),
        ("GET", "/v1/session", {"headers": guessed}),
        ("GET", "/console/session", {"headers": guessed}),
        ("GET", "/healthz", {"headers": guessed}),
        ("GET", "/v1/query", {"headers": guessed}),
        ("GET", "/v1/graph", {"headers": right}),
        ("GET", "/v1/own", {"headers": right}),
    ]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE) as client:
        for method, path, sent in asked:
            caplog.clear()
            await client.request(method, path, **sent)
            (line,) = [one.getMessage() for one in caplog.records if one.name == "headrace.access"]
            who = "a key of the settings" if sent.get("headers") == right else "nobody"
            code = "403 forbidden" if who != "nobody" else "401 unauthorized"
            assert line == f"refused {code}: {who} from 127.0.0.1: {method} '{path}'"
        caplog.clear()
        await client.get("/console/session")
        await client.get("/console/session", headers=right)
        assert not caplog.records, "nobody was refused"


def test_good_keys_are_taken() -> None:
    assert read_settings(api_keys=("0123456789abcdef", "second-ö")).api_keys == ("0123456789abcdef", "second-ö")


@pytest.mark.parametrize("text", ["", "secret-key", '""', '[""]', "[]x", "[null]", '["short"]'])
def test_keys_of_the_environment_that_are_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_API_KEYS", text)
    with pytest.raises(SetupError, match="a setting is not as it must be") as refused:
        refuse_open_listening("0.0.0.0", read_settings().api_keys)
    assert "api_keys" in refused.value.detail


@pytest.mark.parametrize("given", [{}, {"X_API_Key": ""}, {"Authorization": "Bearer "}, {"Authorization": "Bearer"}])
def test_nothing_is_no_key_even_where_it_is_listed(given: dict[str, str]) -> None:
    assert _ask(keys=("",), **given).status_code == 401


KEYLESS_REFUSED: list[dict[str, str]] = [
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "whatever"},
    {"Sec_Fetch_Site": "cross-site", "Referer": f"{HERE}/"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "file://"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "https://127.0.0.1:8080"},
    {"Origin": "http://localhost:8080"},
    {"Origin": "http://127.0.0.1:8080@evil.example"},
    {"Referer": "http://evil.example/page"},
    {"Referer": "http://127.0.0.1:3000/page"},
    {"Referer": "http://127.0.0.1:8080@evil.example/"},
    *(
        {"Host": host}
        for host in (
            "evil.example", "127.0.0.1.nip.io", "localhost.evil.example", "127.0.0.1@evil.example", "127.0.0.1#evil",
            "evil.example@127.0.0.1", "127.0.0.1/evil", "0.0.0.0", "127.1", "2130706433", "", "127.0.0.1:80:80",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("headers", KEYLESS_REFUSED)
def test_without_a_key_nothing_of_elsewhere_passes(headers: dict[str, str]) -> None:
    answer = _ask(**headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_site")
    assert _ask("/healthz", **headers).text == "False"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec_Fetch_Site": "none"},
        {"Sec_Fetch_Site": "same-origin", "Origin": HERE, "Referer": f"{HERE}/console"},
        {"Origin": HERE},
        {"Referer": f"{HERE}/console?x=1"},
        {"Host": "localhost:8080"},
        {"Host": "localhost:8080", "Origin": "http://LOCALHOST:8080"},
        {"Host": "127.0.0.1", "Origin": "http://127.0.0.1:80"},
        {"Host": "[::1]:8080"},
        {"Host": "127.8.9.10:8080"},
    ],
)
def test_without_a_key_programs_and_pages_of_this_machine_pass(headers: dict[str, str]) -> None:
    assert _ask(**headers).text == "True"


@pytest.mark.parametrize("client", ["203.0.113.9", "10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1", "0.0.0.0", "", "here"])
def test_without_a_key_nobody_of_another_machine_passes(client: str) -> None:
    answer = _ask(client=client)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_this_machine")
    assert _ask("/healthz", client=client).text == "False"
    assert _ask(client=client, keys=("right-key",), X_API_Key="right-key").text == "True"


@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.9.10", "::1"])
def test_without_a_key_this_machine_passes(client: str) -> None:
    assert _ask(client=client).text == "True"


def test_a_server_whose_keys_vanish_stays_closed(tmp_path: Path) -> None:
    _, token = create_key(tmp_path, "ann", [read_grant("observe")], "test")
    ring = KeyRing(tmp_path)
    (tmp_path / "access").rename(tmp_path / "away")
    with pytest.raises(LedgerError):
        ring.look()
    assert _ask(ring=ring).status_code == 401
    assert _ask(ring=ring, X_API_Key=token).status_code == 200


def test_that_keys_are_not_renewed_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.serving.service.findings", lambda *_: [])
    ring, nothing = SimpleNamespace(failure=None), cast("Any", None)
    service = Service(*[nothing] * 3, Held(Settings()), *[nothing] * 9, ring=cast("Any", ring))
    assert service.look() == []
    ring.failure = "the keys of the home are gone."
    (found,) = service.look()
    assert found.name == ("keys", "access")
    assert found.text.endswith(ring.failure)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/v1/query", "/v0/pipelines/p/query?sql=SELECT%201", "/metrics", "/openapi.json"])
def test_a_page_of_elsewhere_is_refused_with_a_key_too(site: str, path: str) -> None:
    right: dict[str, Any] = {"keys": ("right-key",), "X_API_Key": "right-key"}
    assert _ask(path, Sec_Fetch_Site=site, **right).status_code == 403
    assert _ask(path, Sec_Fetch_Site="none", **right).status_code == 200


def test_with_a_key_any_host_and_proxy_may_stand_before_the_server() -> None:
    through = {"Host": "headrace.example", "Origin": "https://headrace.example", "Sec_Fetch_Site": "same-origin"}
    assert _ask(keys=("right-key",), X_API_Key="right-key", **through).text == "True"


def test_whoever_asks_for_health_is_known_or_not() -> None:
    for path in ("/healthz", "/readyz"):
        assert _ask(path, keys=("right-key",)).text == "False"
        assert _ask(path, keys=("right-key",), X_API_Key="wrong-key").text == "False"
        assert _ask(path, keys=("right-key",), Authorization="Bearer right-key").text == "True"
        assert _ask(path).text == "True"
