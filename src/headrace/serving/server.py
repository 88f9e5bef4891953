"""Running the application: where it listens, and how it ends."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from headrace.errors import SetupError
from headrace.serving.certificate import Certificate
from headrace.serving.connections import bounded, most_connections
from headrace.serving.handshakes import secured

_log = logging.getLogger("headrace.operation")
_START_SECONDS = 60
_GRACE_SECONDS = 60


class Server(uvicorn.Server):
    """Tells when it listens; when it is to end, ends change streams first and lets everything else finish."""

    def __init__(
        self,
        app: FastAPI,
        host: str,
        port: int,
        listening: Callable[[str], None] = lambda _: None,
        certificate: Certificate | None = None,
        is_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        settings = app.state.service.settings
        seconds, most = settings.serve_patience.total_seconds(), most_connections(settings.serve_connections)
        connections = plain = bounded(seconds, most)
        if certificate is not None:
            connections = secured(plain, certificate, seconds, most)
        super().__init__(
            uvicorn.Config(
                app,
                http=connections,
                # Whatever else is installed: the limits on connections are tried with this one.
                loop="uvloop",
                host=host,
                port=port,
                lifespan="on",
                ws="none",
                access_log=False,
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )
        self._certificate = certificate
        self._app = app
        self._host = host
        self._listening = listening
        self._is_lost = is_lost
        self.url = ""

    def bind(self) -> socket.socket:
        """Take the port, before anything that lasts is begun."""
        taken = take_port(self._host, self.config.port)
        name = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "http" if self._certificate is None else "https"
        self.url = f"{scheme}://{name}:{taken.getsockname()[1]}"
        return taken

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self._listening(self.url)

    async def on_tick(self, counter: int) -> bool:
        """Asked ten times a second whether to end; one whose home another has taken over does."""
        if not self.should_exit and self._is_lost():
            _log.error("another process took the home over: the server ends")
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would go on for ever, then wait for the rest."""
        self._app.state.service.end()
        await super().shutdown(sockets)


def take_port(host: str, port: int) -> socket.socket:
    """A socket of this address that does not listen yet; raises if another has it."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # TCP by name: only then does the event loop turn off the delay of small packets, 40 ms of every answer.
        taken = socket.socket(family, kind, socket.IPPROTO_TCP)
    except OSError as error:
        raise _no_listening(host, port, error) from None
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        taken.close()
        raise _no_listening(host, port, error) from None
    return taken


def _no_listening(host: str, port: int, error: OSError) -> SetupError:
    return SetupError(
        f"cannot listen on {host}:{port}",
        detail=f"{error.strerror or error}.",
        hint="choose another address with --host and --port; --port 0 takes a free one",
    )


@contextmanager
def serving(app: FastAPI, certificate: Certificate | None = None) -> Generator[Server, None, None]:
    """A server of this process on a free port of this machine, until all that it was asked is answered."""
    ready = threading.Event()
    server = Server(app, "127.0.0.1", 0, lambda _: ready.set(), certificate)
    taken = server.bind()
    thread = threading.Thread(target=server.run, args=([taken],), daemon=True)
    thread.start()
    try:
        if not ready.wait(_START_SECONDS):
            raise SetupError("the server did not start", hint="its log tells why")
        yield server
    finally:
        server.should_exit = True
        # It gives up by itself what does not end in time.
        thread.join()
        taken.close()


def run_until_told(server: Server, taken: socket.socket) -> None:
    """Serve until the process is told to end; returns, so that the home can be closed."""
    # The server hands a signal on when it has ended; by then it has done what was asked.
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        server.run([taken])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        taken.close()
