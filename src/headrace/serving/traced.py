"""A span for every request, where traces are sent."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.tracing import Traces

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# What tells the trace of who asks; no other header is anybody's matter.
_HEADERS = ("traceparent", "tracestate", "baggage", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled")


class Traced:
    """Has each request followed, within the trace that its sender began, if it names one."""

    def __init__(self, app: ASGIApp, traces: Traces) -> None:
        self._app = app
        self._traces = traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on inside a span that says the route and the status; no path, for it may have keys in it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope)
        headers = {name: given[name] for name in _HEADERS if name in given}
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        attributes = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
        with self._traces.span(method, attributes, headers) as span:

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        self._traces.fail(span)
                await send(message)

            try:
                await self._app(scope, receive, noted)
            finally:
                route = getattr(scope.get("route"), "path", None)
                if route is not None:
                    span.set_attribute("http.route", route)
                    span.update_name(f"{method} {route}")
