"""TLS by files: what is served, what is refused, and a certificate that is renewed while the server runs."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from headrace.errors import SetupError
from headrace.serving.certificate import Certificate, certificate_of
from headrace.serving.headers import Headed
from headrace.settings import Settings
from tests.certificates import write_certificate
from tests.servers import listening
from tests.waiting import until


def _write(folder: Path, name: str, password: bytes | None = None) -> tuple[Path, Path]:
    files = folder / "cert.pem", folder / "key.pem"
    write_certificate(files, name, "localhost", password)
    return files


def _get(url: str, verify: ssl.SSLContext | bool = True) -> httpx.Response:
    return httpx.get(url, verify=verify, timeout=90)


def _app(**settings: Any) -> FastAPI:
    app = FastAPI()
    app.state.service = SimpleNamespace(settings=Settings(**settings), end=lambda: None)
    app.add_middleware(Headed)

    @app.get("/healthz")
    async def healthz() -> str:  # pyright: ignore[reportUnusedFunction]
        return "ok"

    return app


def test_a_server_with_a_certificate_speaks_tls_only(tmp_path: Path) -> None:
    files = _write(tmp_path, "first")
    certificate = Certificate(*files)
    with listening(_app(), certificate) as (server, port):
        assert server.url.startswith("https://")
        url = f"https://localhost:{port}/healthz"
        answer = _get(url, ssl.create_default_context(cafile=str(files[0])))
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"].startswith("max-age=")
        with pytest.raises(httpx.ConnectError):
            _get(url)
        with pytest.raises(httpx.HTTPError):
            _get(f"http://localhost:{port}/healthz")
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(httpx.ConnectError):
            _get(url, old)
        # Renewed: connections from now on are shown the new one.
        renewed = _write(tmp_path, "second")
        certificate.read()
        assert _get(url, ssl.create_default_context(cafile=str(renewed[0]))).status_code == 200
        # One that cannot be used leaves what is in use.
        files[1].write_text("nothing")
        with pytest.raises(SetupError):
            certificate.read()
        assert _get(url, ssl.create_default_context(cafile=str(renewed[0]))).status_code == 200


def test_who_connects_and_says_nothing_is_counted(tmp_path: Path) -> None:
    files = _write(tmp_path, "first")
    app = _app(serve_connections=8, serve_patience=timedelta(seconds=600))
    with listening(app, Certificate(*files)) as (_, port), ExitStack() as opened:
        for _ in range(8):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
            _get(f"https://localhost:{port}/healthz", ssl.create_default_context(cafile=str(files[0])))


def test_who_connects_and_says_nothing_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What asyncio would give without being asked.
    monkeypatch.setattr("asyncio.constants.SSL_HANDSHAKE_TIMEOUT", 600)
    files = _write(tmp_path, "first")
    verify = ssl.create_default_context(cafile=str(files[0]))
    app = _app(serve_connections=1, serve_patience=timedelta(seconds=2))

    def is_answered() -> bool:
        try:
            return _get(f"https://localhost:{port}/healthz", verify).status_code == 200
        except httpx.TransportError:
            return False

    with listening(app, Certificate(*files)) as (_, port), socket.create_connection(("127.0.0.1", port)) as silent:
        silent.settimeout(90)
        assert silent.recv(1) == b"", "it said nothing for as long as it was given"
        until(is_answered)


def test_a_request_may_come_with_the_end_of_the_handshake(tmp_path: Path) -> None:
    files = _write(tmp_path, "first")
    context = ssl.create_default_context(cafile=str(files[0]))
    with listening(_app(), Certificate(*files)) as (_, port):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", port), timeout=90) as connection:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    incoming.write(connection.recv(65536))
            client.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            connection.sendall(outgoing.read())
            said = b""
            while b"ok" not in said:
                try:
                    said += client.read(65536)
                except ssl.SSLWantReadError:
                    incoming.write(connection.recv(65536))
    assert said.startswith(b"HTTP/1.1 200")


def test_a_server_without_one_speaks_http() -> None:
    with listening(_app()) as (server, port):
        assert server.url == f"http://127.0.0.1:{port}"
        answer = _get(f"{server.url}/healthz")
        assert (answer.status_code, "strict-transport-security" in answer.headers) == (200, False)


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    certificate, key = _write(tmp_path, "one")
    assert certificate_of(None, None) is None
    for wrong in ((certificate, None), (None, key)):
        with pytest.raises(SetupError, match="two files"):
            certificate_of(*wrong)
    for wrong in ((certificate, certificate), (tmp_path / "none", key), (key, key)):
        with pytest.raises(SetupError, match="cannot be used"):
            certificate_of(*wrong)
    with pytest.raises(SetupError, match="cannot be used") as refused:
        certificate_of(*_write(tmp_path, "locked", b"secret"))
    assert "secret" not in str(refused.value)
