"""A real Redis of this machine that writes down every change before it answers, killed and started again at will."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import redis

from headrace.local.ports import free_port

PROGRAM = shutil.which("redis-server")
MISSING = "needs redis-server (apt-get install redis-server)"


class RedisServer:
    """A Redis whose data lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        self._process = subprocess.Popen(
            [str(PROGRAM), *where, "--appendonly", "yes", "--appendfsync", "always"], stdout=subprocess.DEVNULL
        )
        until = time.monotonic() + 20
        with redis.Redis(port=self.port) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError:
                    assert time.monotonic() < until, "Redis gives no answer"
                    time.sleep(0.05)

    def kill(self) -> None:
        """End it as kill -9 does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again on the same port and data."""
        self.kill()
        self.start()
