"""A server of this process, and its port."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from fastapi import FastAPI

from headrace.serving.certificate import Certificate
from headrace.serving.server import Server, serving


@contextmanager
def listening(app: FastAPI, certificate: Certificate | None = None) -> Iterator[tuple[Server, int]]:
    """A server of an application, on a port that is free, until all that it was asked is answered."""
    with serving(app, certificate) as server:
        port = urlsplit(server.url).port
        assert port is not None
        yield server, port
