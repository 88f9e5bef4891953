"""A server of this process, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from headrace.serving.certificate import Certificate
from headrace.serving.server import Server


@contextmanager
def listening(app: FastAPI, certificate: Certificate | None = None) -> Iterator[tuple[Server, int]]:
    """A server of an application, on a port that is free, until all that it was asked is answered."""
    ready = threading.Event()
    server = Server(app, "127.0.0.1", 0, lambda _: ready.set(), certificate)
    taken = server.bind()
    thread = threading.Thread(target=server.run, args=([taken],), daemon=True)
    thread.start()
    try:
        assert ready.wait(30)
        yield server, taken.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)
        taken.close()
        assert not thread.is_alive()
