"""A real server on a free port of this machine, for as long as a test needs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.home import Headrace
from headrace.serving.app import build_app
from headrace.serving.server import Server
from headrace.settings import Settings


@contextmanager
def served(hr: Headrace, settings: Settings | None = None) -> Iterator[str]:
    """The address of a server of this home."""
    server = Server(build_app(hr, settings or hr.settings), "127.0.0.1", 0)
    taken = server.bind()
    thread = threading.Thread(target=server.run, args=([taken],), name="server")
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield server.url
    finally:
        server.should_exit = True
        thread.join()
        taken.close()
