"""Requests as they come off a connection: heads have an end, and an upgrade that is not taken changes nothing."""

from __future__ import annotations

import json
import logging

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.serving.problems import MEDIA_TYPE, Refusal, problem_of

_log = logging.getLogger("headrace.serving")
# What is read of a request without coming to the end of its head, or to a piece of its body.
_HEAD_BYTES = 64 * 1024
_OF_BODY = frozenset({b"content-length", b"transfer-encoding"})


def closing_answer(status: str, refusal: Refusal, header: str = "") -> bytes:
    """An answer that no application gives, and behind which the connection ends."""
    content = json.dumps(problem_of(refusal)).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {MEDIA_TYPE}\r\nContent-Length: {len(content)}\r\n"
    return f"{head}{header}Connection: close\r\n\r\n".encode() + content


class RequestParsing(HttpToolsProtocol):
    """Reads requests with httptools, which by itself bounds no head and drops the body of who offers another protocol.

    Clients that could speak HTTP/2 offer to change to it (Upgrade: h2c) also with a request that has a body. The parser
    ends at such a head: another one goes on behind it.
    """

    _unparsed = 0
    _goes_on = False
    url = b""

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        self._unset_keepalive_if_required()
        self._unparsed += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError:
            if len(self.url) >= _HEAD_BYTES:
                # A whole head, in one piece: httptools reads no URL of that length.
                self._refuse_head()
                return
            _log.info("a request is no HTTP: %s", self.client)
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._unparsed > _HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    def _refuse_head(self) -> None:
        self.transport.write(_TOO_LONG)
        self.transport.close()

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._go_on()

    def _go_on(self) -> None:
        """Have another parser read the body of a request whose head the first one has read."""
        self.parser = httptools.HttpRequestParser(self)
        told = [b"%s: %s\r\n" % (name, value) for name, value in self.headers if name in _OF_BODY]
        self._goes_on = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(told) + b"\r\n")

    def on_message_begin(self) -> None:
        """A request begins."""
        if not self._goes_on:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of its URL."""
        if not self._goes_on:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of it."""
        if not self._goes_on:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._unparsed = 0
        if not self._goes_on:
            super().on_headers_complete()
        self._goes_on = False

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """It is whole; a parser that ends at an upgrade says so, too, before the body."""
        if not self.parser.should_upgrade():
            self._unparsed = 0
            super().on_message_complete()


_TOO_LONG = closing_answer(
    "431 Request Header Fields Too Large",
    Refusal(
        431,
        "headers_too_large",
        "the headers of the request are too long",
        detail=f"They may have {_HEAD_BYTES} bytes.",
        hint="send a shorter URL, or fewer and shorter headers",
    ),
)
