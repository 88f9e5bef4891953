"""Attacks on who may use the server: keys, other hosts, pages of other sites."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Served
from tests.thinned import thinned
from tests.waiting import PATIENCE

KEY = "a-key-of-the-server"
ROUTES = [
    ("GET", "/metrics"), ("HEAD", "/metrics"), ("OPTIONS", "/metrics"), ("TRACE", "/metrics"), ("GET", "//metrics"),
    ("GET", "/healthz/../metrics"), ("GET", "/healthz%2f..%2fmetrics"), ("GET", "/healthz/"), ("GET", "/docs"),
    ("GET", "/openapi.json"), ("GET", "/redoc"), ("GET", "/"), ("GET", "/v1/completion?token=x"),
    ("POST", "/v1/ingress/parts"), ("POST", "/v1/epochs"), ("POST", "/v1/query"), ("GET", "/v1/changes/parts"),
    ("GET", "/v0/pipelines"), ("GET", "/v0/pipelines/p/query?sql=SELECT%201"),
    ("POST", "/v0/pipelines/p/ingress/parts"),
    ("POST", "/v0/pipelines/p/egress/parts"), ("GET", "/v0/pipelines/p/completion_status?token=x"),
]  # fmt: skip


def test_nothing_but_a_key_opens_any_route(server_with: Callable[..., Any]) -> None:
    strangers: list[dict[str, str]] = [
        {},
        {"X-API-Key": KEY[:-1]},
        {"X-API-Key": f"{KEY}x"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": KEY},
        {"Cookie": f"api_key={KEY}"},
        {"Authorization": "Bearer wrong", "X-API-Key": KEY},
    ]
    with server_with(api_keys=(KEY,)) as served, httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
        # The console's page is the same for everyone; what it shows needs a key.
        for method, path in (one for one in ROUTES if one[1] != "/"):
            for headers in strangers:
                answer = client.request(method, f"{served.url}{path}", headers=headers)
                assert answer.status_code == 401, (method, path, headers)
        assert client.get("/metrics", params={"api_key": KEY}).status_code == 401
        assert client.get("/metrics", headers={"Authorization": f"bearer   {KEY}"}).status_code == 200
        preflight = client.options("/v1/query", headers={"X-API-Key": KEY, "Origin": "https://evil.example"})
        assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_no_page_of_another_site_reaches_any_route(server: Served) -> None:
    for method, path in ROUTES[4:]:
        for headers in (
            {"Sec-Fetch-Site": "cross-site", "Referer": "http://evil.example/"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "http://127.0.0.1:3000"},
            {"Origin": f"https://127.0.0.1:{server.port}"},
            {"Referer": "http://evil.example/"},
            {"Host": f"evil.example@127.0.0.1:{server.port}"},
        ):
            answer = server.client.request(method, f"{server.url}{path}", headers=headers)
            assert answer.status_code == 403, (method, path, headers)


def test_a_picture_of_another_site_deletes_nothing(server: Served) -> None:
    server.push("parts", '{"insert": {"id": 1}}')
    path, sql = "/v0/pipelines/p/query", {"sql": "DELETE FROM parts WHERE id = 1"}
    browsers: list[dict[str, str]] = [
        {"Sec-Fetch-Site": "cross-site", "Referer": "http://evil.example/", "User-Agent": "Mozilla/5.0"},
        # One that tells nothing of the page, and a link that was pasted.
        {"User-Agent": "Mozilla/5.0"},
        {"Sec-Fetch-Site": "none", "User-Agent": "Mozilla/5.0"},
    ]
    for headers in browsers:
        assert server.client.get(path, params=sql, headers=headers).status_code == 403, headers
    assert len(server.rows("parts")) == 1
    as_client = {"User-Agent": "feldera-python-sdk/v1"}
    assert server.client.get(path, params=sql, headers=as_client).status_code == 200
    assert server.rows("parts") == []


@pytest.mark.slow
@pytest.mark.parametrize("key", thinned(["", "  ", "short"], 3))
def test_a_key_that_is_none_starts_no_server(key: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [sys.executable, "-c", "from headrace.cli.main import run; run()", "serve", "--home", str(home)]
    ended = subprocess.run(
        [*command, "--host", "0.0.0.0", "--api-key", key],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 1
    assert "an API key is" in ended.stderr
    assert not home.exists()
