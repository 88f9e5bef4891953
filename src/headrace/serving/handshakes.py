"""Connections before TLS is agreed upon: they count like any other, and have as long as a request's head has.

A server that hands its certificate to the event loop hears of a connection only when that has happened: strangers who
connect and say nothing would then take every file that the process may open.
"""

from __future__ import annotations

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import Any, cast

from headrace.serving.certificate import Certificate
from headrace.serving.request_parsing import RequestParsing


def secured(plain: type[RequestParsing], certificate: Certificate, seconds: float, most: int) -> Any:
    """The protocol of connections that agree on TLS within so many seconds, on which `plain` ones then speak."""
    there: set[SSLProtocol] = set()

    class Secured(SSLProtocol):
        """One connection, which counts from the moment that it is accepted."""

        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(
                asyncio.get_running_loop(),
                plain(*given, **named),
                certificate.context,
                cast("Any", None),
                server_side=True,
                ssl_handshake_timeout=max(1, round(seconds)),
            )

        def connection_made(self, transport: Any) -> None:
            """Begin the handshake, if there is room for one more."""
            if len(there) >= most:
                # Nothing can be said to it before the handshake, which would take what there is no room for.
                transport.abort()
                return
            there.add(self)
            super().connection_made(transport)

        def connection_lost(self, exc: BaseException | None) -> None:
            """Make room for another."""
            there.discard(self)
            super().connection_lost(exc)

    return Secured
