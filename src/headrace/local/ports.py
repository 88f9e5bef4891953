"""Ports of this machine that nobody uses."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from headrace.errors import SetupError

HOST = "127.0.0.1"
# Below what systems give to outgoing connections (from 32768 on Linux, 49152 elsewhere): while a server is restarted, a
# client that tries its port again and again can be given that very port and connect to itself, and the server cannot
# listen any more.
_LOWEST, _HIGHEST = 20_000, 32_000
_TRIES = 200


def free_port(taken: Collection[int] = ()) -> int:
    """A port on which nobody listens, other than those taken."""
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, _HIGHEST)
        if port not in taken and is_free(port):
            return port
    raise SetupError(
        "no free port was found",
        detail=f"{_TRIES} ports between {_LOWEST} and {_HIGHEST} were tried on {HOST}.",
        hint="look at what listens on this machine: ss -ltn",
    )


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as tried:
        # As servers do: connections that were closed a moment ago are no obstacle.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HOST, port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True
