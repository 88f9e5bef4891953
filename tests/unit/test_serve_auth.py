"""Who is let in: keys, hosts, and what browsers say of the page that sent a request."""

from __future__ import annotations

import asyncio
import hmac
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from headrace.errors import SetupError
from headrace.serving.auth import Guarded, is_known, refuse_open_listening
from headrace.serving.problems import Refusal
from headrace.serving.refusal_log import RefusalLog
from headrace.settings import read_settings

HERE = "http://127.0.0.1:8080"


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse(str(is_known(Request(scope))))(scope, receive, send)


def _ask(path: str = "/metrics", keys: tuple[str, ...] = (), **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Guarded(_app, keys))
        async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
            return await client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

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
        log.note(scope, Refusal(401, "unauthorized", "a valid API key is needed"))
    assert len(caplog.records) == 20
    clock[0] += 60
    log.note(scope, Refusal(403, "forbidden", "this key may not"))
    lines = [one.getMessage() for one in caplog.records]
    assert lines[20] == "980 more requests were refused"
    assert lines[21].startswith("refused 403 forbidden: nobody from 10.0.0.1: GET '/v1/\\n")
    assert max(map(len, lines)) < 300


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
