"""Traces by OpenTelemetry, where an endpoint is set: what a request, an epoch, a batch of a source or a feed took.

Without an endpoint nothing of OpenTelemetry is loaded, and each place that would make a span asks one global for it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from headrace.version import release

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_log = logging.getLogger("headrace.tracing")
_NOTHING = nullcontext()
_turn = threading.Lock()
# None where no traces are wanted: all that the work of a home asks for then.
_traces: Traces | None = None
_decided = False


class Traces:
    """Makes spans, and has them sent."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import propagate, trace

        self._provider = provider
        self._trace: Any = trace
        self._propagate: Any = propagate
        self._tracer: Any = provider.get_tracer("headrace", release())

    @contextmanager
    def span(
        self, name: str, attributes: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Generator[Any, None, None]:
        """A span around what is done inside: of a request, if headers are given, within the trace that they name."""
        kind = self._trace.SpanKind.INTERNAL if headers is None else self._trace.SpanKind.SERVER
        context = None if headers is None else self._propagate.extract(headers)
        # What an error says is for who asked: it may tell of rows.
        with self._tracer.start_as_current_span(
            name, context, kind, attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
                raise

    def fail(self, span: Any) -> None:
        """Say of a span that what it was for came to nothing."""
        span.set_status(self._trace.StatusCode.ERROR)

    def here(self) -> Any:
        """The span that is under way in this thread or task; None without one."""
        span = self._trace.get_current_span()
        return span if span.get_span_context().is_valid else None

    def past(
        self,
        name: str,
        began: int,
        stages: Mapping[str, float],
        callers: Iterable[Any],
        attributes: Mapping[str, Any],
        error: BaseException | None = None,
    ) -> None:
        """A span of what is over, with one below it for each of its stages, which came one after the other.

        It belongs to the span that asked for it; where several did, it stands alone, with links to them.
        """
        askers = {id(one): one for one in callers if one is not None}
        one = next(iter(askers.values())) if len(askers) == 1 else None
        links = [] if one is not None else [self._trace.Link(asker.get_span_context()) for asker in askers.values()]
        context = self._trace.set_span_in_context(one or self._trace.INVALID_SPAN)
        span = self._tracer.start_span(name, context, links=links, attributes=attributes, start_time=began)
        if error is not None:
            # Not the message: rows may be part of it.
            span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
        below, at = self._trace.set_span_in_context(span), began
        for stage, seconds in stages.items():
            part = self._tracer.start_span(f"{name} {stage}", below, start_time=at)
            at += int(seconds * 1e9)
            part.end(at)
        span.end(max(at, began) if stages and error is None else time.time_ns())

    def flush(self) -> None:
        """Send what is not sent yet."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send what can be sent soon, and nothing from then on."""
        self._provider.shutdown()


def begin_tracing() -> None:
    """Send traces from now on, if the environment names an endpoint; what is missing for that is told once."""
    global _traces, _decided
    with _turn:
        if not _decided:
            _decided = True
            _traces = _begun() if is_wanted(os.environ) else None


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether an endpoint is set, and neither the SDK nor its traces are turned off."""
    off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return not off and any(environment.get(name) for name in _ENDPOINTS)


def traces() -> Traces | None:
    """Who makes spans; None where nobody wants any."""
    return _traces


def span(name: str, **attributes: Any) -> AbstractContextManager[Any]:
    """A span around what is done inside; nothing where no traces are sent."""
    if _traces is None:
        return _NOTHING
    return _traces.span(name, {f"headrace.{key}": value for key, value in attributes.items()})


def here() -> Any:
    """The span that is under way; None without one, and where no traces are sent."""
    return None if _traces is None else _traces.here()


def _begun() -> Traces | None:
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        _log.warning("no traces are sent: the protocol is %s, and only http/protobuf is spoken", protocol)
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning("no traces are sent, for %s is missing: pip install 'headrace[tracing]'", error.name)
        return None
    given: Any = trace.get_tracer_provider()
    if isinstance(given, TracerProvider):
        # The program around Headrace has its own.
        return Traces(given)
    try:
        resource = Resource({"service.name": "headrace", "service.version": release()}).merge(_resource(Resource))
        provider = TracerProvider(resource=resource)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except Exception as error:
        _log.warning("no traces are sent: %s", error)
        return None
    return Traces(provider)


def _resource(resource: Any) -> Any:
    """What the environment says of the service; its own name for a service without one is left out."""
    found = resource.create()
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return found if named else resource({k: v for k, v in found.attributes.items() if k != "service.name"})
