"""A real server on a free port of this machine, for as long as a test needs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from headrace.home import Headrace
from headrace.serving.app import build_app
from headrace.settings import Settings


@contextmanager
def served(hr: Headrace, settings: Settings | None = None) -> Iterator[str]:
    """The address of a server of this home."""
    app = build_app(hr, settings or hr.settings)
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
