"""A server on loopback without a home: connections that say nothing, drip, or come in a flood."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response

from headrace.serving import problems
from headrace.serving.bodies import read_body
from headrace.serving.connections import Lingering, most_connections
from headrace.serving.limits import Pushes
from headrace.serving.server import Server
from headrace.serving.streams import EventStream
from headrace.settings import Settings
from tests.servers import listening
from tests.waiting import until

_LARGE = 20_000_000


@contextmanager
def serving(**overrides: Any) -> Iterator[tuple[int, Pushes]]:
    with running(**overrides) as (port, pushes, _):
        yield port, pushes


@contextmanager
def running(asked: list[str] | None = None, **overrides: Any) -> Iterator[tuple[int, Pushes, Server]]:
    asked = [] if asked is None else asked
    settings = Settings(**overrides)
    pushes = Pushes(256, 1_000_000, 10_000_000)
    app = FastAPI()
    problems.install(app)
    app.add_middleware(Lingering)
    app.state.service = SimpleNamespace(settings=settings, end=lambda: None)

    @app.post("/push")
    async def push(request: Request) -> dict[str, int]:
        slot = pushes.enter()
        try:
            return {"bytes": len(await read_body(request, slot))}
        finally:
            slot.release()

    @app.get("/large")
    async def large() -> Response:
        asked.append("/large")
        return Response(b"x" * _LARGE)

    @app.get("/events")
    async def events() -> Response:
        async def large_event() -> AsyncGenerator[bytes, None]:
            yield b"x" * _LARGE

        asked.append("/events")
        slot: Any = SimpleNamespace(release=lambda: None)
        return EventStream(large_event(), slot, settings.serve_patience.total_seconds())

    @app.get("/slow")
    async def slow() -> dict[str, bool]:
        await asyncio.sleep(3 * settings.serve_patience.total_seconds())
        return {"slow": True}

    with listening(app) as (server, port):
        yield port, pushes, server


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=90)


def _is_closed(client: socket.socket, piece: bytes) -> bool:
    """Send a piece, and return whether the server has closed the connection."""
    try:
        client.sendall(piece)
    except OSError:
        return True
    return False


def _answer(client: socket.socket) -> bytes:
    """One small answer with its body, which may come after its head."""
    got = b""
    while not got.endswith(b"}"):
        piece = client.recv(65536)
        assert piece, got
        got += piece
    return got


def _whole(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    pieces: list[bytes] = []
    while piece := client.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_connection_without_a_request_is_closed() -> None:
    with serving(serve_patience=timedelta(seconds=1)) as (port, _):
        silent, slow, busy = _connect(port), _connect(port), _connect(port)
        slow.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n")
        busy.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert _whole(silent) == b""
        until(lambda: _is_closed(slow, b"X: y\r\n"))
        # A request that is under way is not touched, however long it takes.
        assert b'{"slow":true}' in _whole(busy)


def test_a_second_request_is_not_waited_for_for_ever_either() -> None:
    with serving(serve_patience=timedelta(seconds=1)) as (port, _), _connect(port) as client:
        client.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nabGET /slow HT")
        assert _whole(client).count(b"HTTP/1.1 200 OK") == 1


def test_a_connection_too_many_is_told_so() -> None:
    with serving(serve_connections=3) as (port, _):
        kept = [_connect(port) for _ in range(3)]
        for client in kept:
            client.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
            assert b"200 OK" in _answer(client)
        with _connect(port) as over:
            head, _, content = _whole(over).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After" in head
        assert json.loads(content)["code"] == "too_many_connections"
        kept[0].close()

        def is_served() -> bool:
            with suppress(OSError), _connect(port) as again:
                again.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab")
                return b"200 OK" in again.recv(65536)
            return False

        until(is_served)
        for client in kept[1:]:
            client.close()


def test_the_files_of_the_process_bound_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 4096))
    assert most_connections(2_000) == 768
    assert most_connections(100) == 100


def test_a_body_that_drips_loses_its_place() -> None:
    with serving(serve_body_time=timedelta(seconds=1)) as (port, pushes):
        clients = [_connect(port) for _ in range(40)]
        for client in clients:
            client.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
        until(lambda: list(filter(lambda client: not _is_closed(client, b" "), clients)) == [])
        assert pushes.under_way == 0
        assert b"HTTP/1.1 408 " in clients[0].recv(65536)
        for client in clients:
            client.close()


def test_a_body_that_comes_fast_enough_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first piece gives the others minutes.
    monkeypatch.setattr("headrace.serving.bodies.SLOWEST_BYTES_PER_SECOND", 10)
    with serving(serve_body_time=timedelta(seconds=0.3)) as (port, _), _connect(port) as client:
        client.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n" + b" " * 1_000)
        for _ in range(9):
            time.sleep(0.1)
            client.sendall(b" " * 1_000)
        assert b'{"bytes":10000}' in _answer(client)


@pytest.mark.parametrize("size", [2_000_000, 100_000_000])
def test_a_client_that_sends_first_sees_the_refusal(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.serving.connections._LINGER_SECONDS", 600)
    monkeypatch.setattr("headrace.serving.connections._PAUSE_SECONDS", 600)
    with serving() as (port, pushes), _connect(port) as client:
        client.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        piece = b" " * 1_000_000
        for _ in range(size // len(piece)):
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        answer = _whole(client)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "too_large"
        assert pushes.under_way == 0


def test_a_client_that_is_refused_and_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.serving.connections._LINGER_SECONDS", 600)
    with serving() as (port, _), _connect(port) as client:
        client.sendall(b"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
        assert _whole(client).startswith(b"HTTP/1.1 413 ")


PUSH = b"POST /push HTTP/1.1\r\nHost: x\r\n"


def test_ten_requests_at_once_are_answered_in_order() -> None:
    with serving() as (port, _), _connect(port) as client:
        requests = [PUSH + b"Content-Length: %d\r\n\r\n%s" % (n, b" " * n) for n in range(1, 10)]
        client.sendall(b"".join(requests) + PUSH + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
        answers = _whole(client)
        found = [part.partition(b"}")[0] for part in answers.split(b'{"bytes":')[1:]]
        assert found == [b"%d" % n for n in (*range(1, 10), 0)]


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 1e3\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Bad Header: x\r\n",
        b"X: a\x00b\r\n",
    ],
)
def test_a_request_of_unclear_length_is_refused(head: bytes) -> None:
    with serving() as (port, _), _connect(port) as client:
        client.sendall(PUSH + head + b"\r\nab")
        answer = _whole(client)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))
        assert answer.count(b"HTTP/1.1 ") == 1


def test_two_ways_to_give_a_length_are_one_request() -> None:
    with serving() as (port, _), _connect(port) as client:
        smuggled = b"0\r\n\r\nGET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
        client.sendall(PUSH + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(smuggled) + smuggled)
        client.shutdown(socket.SHUT_WR)
        assert b'{"slow":true}' not in _whole(client).partition(b'{"bytes":0}')[0]


def test_headers_without_end_are_cut_off() -> None:
    with serving() as (port, _), _connect(port) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\nX: ")
        for _ in range(1_000):
            try:
                client.sendall(b"a" * 65536)
            except OSError:
                return
        pytest.fail("headers may be without end")


def test_trailers_without_end_are_cut_off() -> None:
    with serving() as (port, _), _connect(port) as client:
        client.sendall(PUSH + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ")
        for _ in range(1_000):
            try:
                client.sendall(b"a" * 65536)
            except OSError:
                return
        pytest.fail("trailers may be without end")


@pytest.mark.parametrize("end", [b"", b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"], ids=["endless", "whole"])
def test_a_head_that_is_too_long_is_told_so(end: bytes) -> None:
    with serving() as (port, _), _connect(port) as client:
        client.sendall(b"GET /slow?" + b"a" * 70_000 + end)
        head, _, content = _whole(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert json.loads(content)["code"] == "headers_too_large"


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_who_offers_another_protocol_loses_nothing_of_its_body(protocol: bytes) -> None:
    offer = PUSH + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABk\r\n" % protocol
    with serving() as (port, _), _connect(port) as client:
        client.sendall(offer + b"Content-Length: 3\r\n\r\nabc")
        assert b'{"bytes":3}' in _answer(client)
        client.sendall(offer + b"Transfer-Encoding: chunked\r\n\r\n4\r\nab")
        time.sleep(0.1)
        client.sendall(b"cd\r\n0\r\n\r\n" + offer + b"Content-Length: 5\r\nConnection: close\r\n\r\nabcde")
        found = _whole(client)
        assert found.index(b'{"bytes":4}') < found.index(b'{"bytes":5}')


def test_clients_that_hang_up_leave_their_places() -> None:
    with serving() as (port, pushes):
        clients = [_connect(port) for _ in range(50)]
        for client in clients:
            client.sendall(PUSH + b"Content-Length: 1000\r\n\r\nab")
        until(lambda: pushes.under_way == 50)
        for client in clients:
            client.close()
        until(lambda: pushes.under_way == 0)


def _unsent(server: Server) -> list[int]:
    """How many bytes of its answer each connection has not got rid of."""
    connections: list[Any] = list(server.server_state.connections)
    return [one.transport.get_write_buffer_size() for one in connections]


def _ask_and_not_read(port: int, path: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(90)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
    return client


@pytest.mark.parametrize("path", [b"/large", b"/events"])
def test_who_does_not_read_its_answer_is_let_go_of_with_all_that_is_unsent(path: bytes) -> None:
    asked: list[str] = []
    with running(asked, serve_patience=timedelta(seconds=1)) as (port, _, server):
        clients = [_ask_and_not_read(port, path) for _ in range(5)]
        until(lambda: len(asked) == 5)
        until(lambda: not server.server_state.connections)
        for client in clients:
            got = 0
            with client, suppress(ConnectionResetError):
                while piece := client.recv(65536):
                    got += len(piece)
            assert got < _LARGE


@pytest.mark.thorough
def test_a_large_event_is_handed_over_as_it_is_read() -> None:
    with (
        running(serve_patience=timedelta(seconds=600)) as (port, _, server),
        _ask_and_not_read(port, b"/events") as client,
    ):
        until(lambda: any(_unsent(server)))
        time.sleep(0.2)
        assert 0 < _unsent(server)[0] < 1_000_000
        assert _whole(client).count(b"x") >= _LARGE


@pytest.mark.thorough
@pytest.mark.parametrize("path", [b"/large", b"/events"])
def test_who_reads_slowly_gets_all_of_it(path: bytes) -> None:
    """It takes several times the patience, and something is taken all the while."""
    with running(serve_patience=timedelta(seconds=1)) as (port, _, _):
        until(lambda: _is_read_slowly(port, path))


def _is_read_slowly(port: int, path: bytes) -> bool:
    """Return whether an answer came whole; one that did not must have been kept waiting by a machine that is busy."""
    with _connect(port) as client:
        client.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path)
        got, longest, read_at = 0, 0.0, time.monotonic()
        with suppress(ConnectionResetError):
            while piece := client.recv(2_000_000):
                got += piece.count(b"x")
                time.sleep(0.2 * len(piece) / 1_000_000)
                longest, read_at = max(longest, time.monotonic() - read_at), time.monotonic()
        longest = max(longest, time.monotonic() - read_at)
    assert got >= _LARGE or longest > 0.9
    return got >= _LARGE
