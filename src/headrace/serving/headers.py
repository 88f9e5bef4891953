"""Headers by which a browser does no more with an answer than it is meant for."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Data: whatever a browser takes it for, nothing of it runs, is framed, or loads anything.
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
# Pages: their own files and nothing from elsewhere; styles may stand in them, scripts may not.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_YEAR = b"max-age=31536000"
_TLS = b"strict-transport-security"
_RAW = [(name.lower().encode(), value.encode()) for name, value in _ALWAYS.items()]
_POLICY = b"content-security-policy"


class Headed:
    """Adds the headers to every answer; a route's own policy stays."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                # As they go out, without a look at each for each: this is done for every answer.
                headers: list[tuple[bytes, bytes]] = list(message["headers"])
                own = {name.lower(): value for name, value in headers}
                headers += [one for one in _RAW if one[0] not in own]
                if _POLICY not in own:
                    is_page = own.get(b"content-type", b"").startswith(b"text/html")
                    headers.append((_POLICY, (PAGE_POLICY if is_page else _DATA_POLICY).encode()))
                if scope.get("scheme") == "https" and _TLS not in own:
                    headers.append((_TLS, _YEAR))
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, headed if scope["type"] == "http" else send)
