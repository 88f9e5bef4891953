"""A real Redis of this machine that writes down every change before it answers, killed and started again at will."""

from __future__ import annotations

import shutil
from pathlib import Path

import redis

from headrace.local.ports import HOST, free_port
from headrace.local.server import Program, Server

PROGRAM = shutil.which("redis-server")
MISSING = "needs redis-server (apt-get install redis-server)"


class RedisServer(Server):
    """A Redis whose data lie in a folder; it ends with the context, or with this process, however that ends."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://{HOST}:{self.port}/0"
        where = ["--port", str(self.port), "--bind", HOST, "--dir", str(folder)]
        command = [str(PROGRAM), *where, "--appendonly", "yes", "--appendfsync", "always"]
        super().__init__(Program("redis", self.url, self.port, command, self._answers), folder / "redis.log")

    def __enter__(self) -> RedisServer:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _answers(self) -> bool:
        with redis.Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False
