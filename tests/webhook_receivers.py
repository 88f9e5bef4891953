"""A receiver of webhooks that behaves as it is told, request by request, over plain sockets or TLS."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

# What becomes of a request: bytes of an answer, or a function that does something with the connection.
Behaviour = bytes | Callable[[socket.socket], None]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def status(code: int, *headers: str, body: bytes = b"") -> bytes:
    """An answer."""
    lines = [f"HTTP/1.1 {code} Said", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def hang_up(connection: socket.socket) -> None:
    """Close the connection without a word."""
    connection.shutdown(socket.SHUT_RDWR)


def hang_up_in_the_middle(connection: socket.socket) -> None:
    """Begin to say something."""
    connection.sendall(b"HTTP/1.1 20")
    connection.shutdown(socket.SHUT_RDWR)


def say_nothing(connection: socket.socket) -> None:
    """Take the request, and say nothing until the other side hangs up."""
    with suppress(OSError):
        connection.recv(1)


def drip(connection: socket.socket) -> None:
    """Say a letter now and then until the client hangs up."""
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"x: y\r\n")
            time.sleep(0.05)


def pour(connection: socket.socket) -> None:
    """Say more than anybody wants to hear, before any status is known to be whole."""
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"x-more: " + b"y" * 10_000 + b"\r\n")


@dataclass
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> bytes:
        """The body as it was before it was compressed."""
        return gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body

    @property
    def events(self) -> list[dict[str, Any]]:
        return json.loads(self.text)


@dataclass
class Receiver:
    """What was received, and what is to be said to each request; when there is nothing left to say, OK."""

    port: int = 0
    answers: list[Behaviour] = field(default_factory=list[Behaviour])
    # Decides by the request, if it is there.
    judge: Callable[[Received], Behaviour] | None = None
    received: list[Received] = field(default_factory=list[Received])
    taken: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    connections: int = 0

    def serve(self, connection: socket.socket) -> None:
        self.connections += 1
        with suppress(OSError), connection:
            reading = connection.makefile("rb")
            while (line := reading.readline()).strip():
                headers: dict[str, str] = {}
                while header := reading.readline().strip():
                    name, _, value = header.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = reading.read(int(headers.get("content-length", "0")))
                request = Received(line.split()[1].decode(), headers, body)
                self.received.append(request)
                answer: Behaviour = OK
                if self.answers:
                    answer = self.answers.pop(0)
                elif self.judge is not None:
                    answer = self.judge(request)
                if not isinstance(answer, bytes):
                    answer(connection)
                    return
                if answer.startswith(b"HTTP/1.1 2"):
                    self.taken += request.events
                connection.sendall(answer)


@contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Generator[Receiver]:
    """A receiver that listens on loopback."""
    receiver = Receiver()
    listener = socket.create_server(("127.0.0.1", 0))
    receiver.port = listener.getsockname()[1]

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                if context is not None:
                    connection = context.wrap_socket(connection, server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            threading.Thread(target=receiver.serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
