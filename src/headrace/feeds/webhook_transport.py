"""Requests to a webhook: pinned to an address that was judged, bounded in time and in bytes from the first to the last.

The connection goes to the address; what TLS verifies and what the request names is the host of the URL.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from headrace.feeds.webhook_addresses import Resolver, judged_addresses

# What an answer may have, headers and all: nobody reads it but for its status.
MOST_ANSWER_BYTES = 256 * 1024


class Deadline:
    """Until when the request that is under way has time, and what it may still read."""

    def __init__(self) -> None:
        self.at = 0.0
        self.bytes_left = 0

    def begin(self, seconds: float) -> None:
        """A new request begins."""
        self.at = time.monotonic() + seconds
        self.bytes_left = MOST_ANSWER_BYTES

    def shorten(self, seconds: float) -> None:
        """There is less time left for what is no more than a courtesy."""
        self.at = min(self.at, time.monotonic() + seconds)

    def left(self, at_most: float | None, error: type[Exception]) -> float:
        """How long a step may take."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise error("the request has taken all its time")
        return left if at_most is None else min(left, at_most)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._deadline.bytes_left <= 0:
            raise httpcore.ReadError(f"the answer has more than {MOST_ANSWER_BYTES:,} bytes")
        data = self._stream.read(max_bytes, self._deadline.left(timeout, httpcore.ReadTimeout))
        self._deadline.bytes_left -= len(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # Here, for the stream's own loop would give every single send as long as all of them.
        socket: Any = self._stream.get_extra_info("socket")
        view = memoryview(buffer)
        try:
            while view:
                socket.settimeout(self._deadline.left(timeout, httpcore.WriteTimeout))
                view = view[socket.send(view) :]
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._deadline.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, deadline: Deadline, allow_private: bool, resolve: Resolver | None) -> None:
        self._real = httpcore.SyncBackend()
        self._deadline = deadline
        self._allow_private = allow_private
        self._resolve = resolve

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        seconds = self._deadline.left(timeout, httpcore.ConnectTimeout)
        found = judged_addresses(host, port, self._allow_private, self._resolve, seconds)
        failed: Exception | None = None
        for address in found:
            left = self._deadline.left(timeout, httpcore.ConnectTimeout)
            try:
                # An address: nothing is resolved again.
                stream = self._real.connect_tcp(address, port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
                continue
            return _Stream(stream, self._deadline)
        raise failed or httpcore.ConnectError(f"{host} has no address")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class PinnedTransport(httpx.BaseTransport):
    """A transport of httpx for one receiver and one thread, without proxies."""

    def __init__(self, context: ssl.SSLContext, allow_private: bool, resolve: Resolver | None = None) -> None:
        self.deadline = Deadline()
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=1,
            max_keepalive_connections=1,
            keepalive_expiry=30.0,
            http1=True,
            http2=False,
            retries=0,
            network_backend=_Backend(self.deadline, allow_private, resolve),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; what the network does is raised as httpx does it."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        content = request.read()
        asked = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=content, extensions=request.extensions
        )
        with _as_httpx():
            answer = self._pool.handle_request(asked)
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions)

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        with _as_httpx():
            self._answer.close()


@contextmanager
def _as_httpx() -> Generator[None]:
    try:
        yield
    except httpcore.TimeoutException as error:
        raise httpx.TimeoutException(str(error) or type(error).__name__) from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise httpx.NetworkError(str(error) or type(error).__name__) from error
    except ssl.SSLError as error:
        raise httpx.NetworkError(str(error)) from error
