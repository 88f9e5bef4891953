"""A receiver of OpenTelemetry's traces over HTTP, which reads what comes by the protocol's own definitions."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace import tracing


@dataclass(frozen=True)
class Span:
    """One span as it came."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    links: tuple[bytes, ...]
    kind: int
    error: str | None
    began: int
    ended: int
    attributes: dict[str, Any]
    service: str


@dataclass
class Receiver:
    """What has come so far."""

    spans: list[Span] = field(default_factory=list[Span])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def flushed(self) -> list[Span]:
        """All spans, those that were not sent yet included."""
        sent = tracing.traces()
        assert sent is not None
        sent.flush()
        return list(self.spans)

    def named(self, name: str) -> list[Span]:
        """The spans of a name."""
        return [one for one in self.flushed() if one.name == name]

    def below(self, span: Span) -> list[Span]:
        """The spans whose parent this one is."""
        return [one for one in self.flushed() if one.parent == span.id and one.trace == span.trace]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _spans(body: bytes) -> Iterator[Span]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request: Any = ExportTraceServiceRequest()
    request.ParseFromString(body)
    for of_resource in request.resource_spans:
        resource = {one.key: _value(one.value) for one in of_resource.resource.attributes}
        for of_scope in of_resource.scope_spans:
            assert of_scope.scope.name == "headrace"
            for one in of_scope.spans:
                yield Span(
                    one.name,
                    one.trace_id,
                    one.span_id,
                    one.parent_span_id,
                    tuple(link.span_id for link in one.links),
                    one.kind,
                    one.status.message if one.status.code == 2 else None,
                    one.start_time_unix_nano,
                    one.end_time_unix_nano,
                    {each.key: _value(each.value) for each in one.attributes},
                    resource["service.name"],
                )


@contextmanager
def receiving(monkeypatch: pytest.MonkeyPatch) -> Generator[Receiver, None, None]:
    """A receiver that the environment names as the endpoint; traces of this process go there inside."""
    receiver = Receiver()

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.headers.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.spans.extend(_spans(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - so it is called
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receive)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(tracing, "_decided", False)
    monkeypatch.setattr(tracing, "_traces", None)
    tracing.begin_tracing()
    try:
        yield receiver
    finally:
        sent = tracing.traces()
        if sent is not None:
            sent.flush()
        monkeypatch.undo()
        server.shutdown()
        server.server_close()
        thread.join()
