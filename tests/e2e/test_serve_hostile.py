"""What the world sends: floods, giants, broken and unfinished requests, and SQL where no SQL belongs."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headrace.face import home_of
from tests.e2e.conftest import Served
from tests.waiting import PATIENCE, until

INJECTIONS = [
    "parts'; DROP TABLE parts; --",
    'parts"; DROP TABLE parts; --',
    "parts` UNION SELECT 1",
    "parts; DELETE FROM parts",
    "../../etc/passwd",
    "parts\x00",
    "%00",
    "${env:PATH}",
    "parts WHERE 1=1",
    "' OR '1'='1",
    "\U0001f600" * 100,
    "x" * 10_000,
]


def test_a_body_of_a_hundred_megabytes_is_refused_and_its_sender_hears_it(server: Served) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(1600):
            yield b" " * 65536

    declared = server.client.post("/v1/ingress/parts", content=b" " * 100_000_000)
    assert (declared.status_code, declared.json()["code"]) == (413, "too_large")
    # Chunked: nobody knows how much will come, so it is held up to the limit; the rest is thrown away as it comes.
    chunked = server.client.post("/v1/ingress/parts", content=pieces())
    assert chunked.status_code == 413
    assert server.service.pushes.under_way == 0
    for path in ("/v1/epochs", "/v1/query"):
        assert server.client.post(path, content=b" " * 40_000_000).status_code == 413


def test_a_body_that_claims_to_be_huge_is_refused_at_once(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
        client.sendall(b"POST /v1/ingress/parts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413")


def test_broken_bodies(server: Served) -> None:
    bodies = [
        b"\x00" * 1000,
        b"\xff" * 1000,
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"insert":' * 50_000,
        b'{"insert": {"id": 1e999999999}}',
        b'{"insert": {"id": ' + b"9" * 100_000 + b"}}",
        b'{"insert": {"id": 1, "price": ' + b"9." + b"9" * 100_000 + b"}}",
        b'{"insert": {"id": 1, "name": "\\ud800"}}',
        b'{"insert": {"id": 1, "' + b"x" * 100_000 + b'": 1}}',
        b'{"insert": {"id": 1, "\\ud800": 1}}',
        b"<xml/>",
        b"id,name\n1,a",
        b'"text"',
        b"1",
        b"[1, 2, 3]",
        b"[[[{}]]]",
    ]
    for body in bodies:
        answer = server.push("parts", body)
        assert answer.status_code == 422, (body[:50], answer.text[:300])
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(answer.content) < 500_000
    assert server.rows("parts") == []


@pytest.mark.parametrize("text", INJECTIONS)
def test_sql_is_no_name(server: Served, text: str) -> None:
    epoch = server.hr.epoch
    name = quote(text, safe="", errors="surrogatepass")
    requests = [
        ("POST", f"/v1/ingress/{name}", {}),
        ("POST", f"/v1/ingress/parts?update_format={name}", {}),
        ("POST", f"/v1/ingress/parts?format={name}", {}),
        ("POST", f"/v1/ingress/parts?wait={name}", {}),
        ("GET", f"/v1/completion?token={name}", {}),
        ("GET", f"/v1/changes/{name}", {}),
        ("GET", f"/v1/changes/parts?since={name}", {}),
        ("POST", "/v1/epochs", {"json": {text: [{"insert": {"id": 1}}]}}),
        ("POST", "/v1/epochs", {"json": {"parts": [{text: {"id": 1}}]}}),
        ("POST", "/v1/epochs", {"json": {"parts": [{"insert": {text: 1}}]}}),
        ("POST", "/v1/query", {"json": {"sql": "SELECT 1", "epoch": text}}),
        ("POST", "/v1/query", {"json": {"sql": f"SELECT * FROM `{text.replace('`', '``')}`"}}),
    ]
    for method, path, how in requests:
        answer = server.client.request(method, path, **how)
        assert 400 <= answer.status_code < 500, (path[:80], answer.text[:300])
    assert server.hr.epoch == epoch


def test_a_client_that_hangs_up_in_the_middle_of_its_body(server: Served) -> None:
    head = b"POST /v1/ingress/parts?wait=true HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(head + b'{"insert": {"id": 1}}\n')
            until(lambda: server.service.pushes.under_way > 0)
    until(lambda: server.service.pushes.under_way == 0)
    assert server.rows("parts") == []


def test_a_client_that_stalls_loses_its_place(server_with: Callable[..., Any]) -> None:
    with server_with(serve_patience=timedelta(seconds=1), serve_pushes=1) as served:
        with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as client:
            client.sendall(b"POST /v1/ingress/parts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
            assert client.recv(100).startswith(b"HTTP/1.1 408")
        # On a busy machine, this client may take as long as the one before to send its body.
        until(lambda: served.push("parts", '{"insert": {"id": 1}}').status_code == 200)


def test_changes_of_a_client_that_hung_up_after_its_body_are_not_lost(server: Served) -> None:
    body = b'{"insert": {"id": 1}}'
    head = f"POST /v1/ingress/parts?wait=true HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head.encode() + body)
        until(lambda: server.service.pushes.under_way > 0 or bool(server.rows("parts")))
    until(lambda: len(server.rows("parts")) == 1)


def test_two_hundred_at_once(server: Served) -> None:
    begin = server.hr.epoch

    def push(number: int) -> httpx.Response:
        lines = "\n".join(json.dumps({"insert": {"id": number * 10 + i, "name": "p"}}) for i in range(10))
        bad = number % 10 == 0
        return client.post("/v1/ingress/parts?wait=true", content=lines + ("\n{" if bad else ""))

    limits = httpx.Limits(max_connections=200)
    with (
        httpx.Client(base_url=server.url, timeout=PATIENCE, limits=limits) as client,
        ThreadPoolExecutor(200) as many,
    ):
        with home_of(server.hr).loop.turn:
            asked = many.map(push, range(200))
            until(lambda: server.service.pushes.under_way == 180)
        answers = list(asked)
    assert {answer.status_code for answer in answers[::10]} == {422}
    taken = [answer for number, answer in enumerate(answers) if number % 10]
    assert {answer.status_code for answer in taken} == {200}
    assert len(server.rows("parts")) == 1800
    # Those that waited were taken together: far fewer epochs than calls.
    assert server.hr.epoch - begin == len({answer.json()["epoch"] for answer in taken})
    assert server.hr.epoch - begin < 20


def test_a_flood_is_turned_away_and_nothing_that_was_accepted_is_lost(server_with: Callable[..., Any]) -> None:
    with server_with(serve_pushes=4) as served:

        def push(number: int) -> int:
            while True:
                answer = client.post("/v1/ingress/parts", content=json.dumps({"insert": {"id": number}}))
                if answer.status_code == 202:
                    return number
                assert answer.status_code == 429, answer.text
                time.sleep(0.1)

        limits = httpx.Limits(max_connections=40)
        with (
            httpx.Client(base_url=served.url, timeout=PATIENCE, limits=limits) as client,
            ThreadPoolExecutor(40) as many,
        ):
            sent = list(many.map(push, range(100)))
        until(lambda: served.service.pushes.under_way == 0)
        assert {row["id"] for row in served.rows("parts")} == set(range(100))
        assert sent == list(range(100))


def test_requests_that_are_no_http(server: Served) -> None:
    for nonsense in (
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"\r\n" * 1000,
        b"POST /v1/ingress/parts HTTP/9.9\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
            client.sendall(nonsense)
            client.settimeout(1)
            with contextlib.suppress(TimeoutError):
                client.recv(1000)
    assert server.client.get("/healthz").status_code == 200


def test_the_server_does_not_wait_for_the_epoch(server: Served) -> None:
    """While one epoch runs, whoever asks for something else is answered."""
    pushing = threading.Thread(
        target=lambda: server.push("items", "\n".join(json.dumps({"insert": {"id": i}}) for i in range(500)))
    )
    with home_of(server.hr).loop.turn:
        pushing.start()
        until(lambda: server.service.pushes.under_way == 1)
        assert server.client.get("/healthz").status_code == 200
        assert server.service.pushes.under_way == 1
    while pushing.is_alive():
        assert server.client.get("/healthz").status_code == 200
    assert len(server.rows("items")) == 500
