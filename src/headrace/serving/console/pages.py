"""The console's own files at / and /console, and signing in with a key."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.access.grants import Access
from headrace.catalog.catalog import Catalog
from headrace.serving.access import OfAccess
from headrace.serving.auth import Credentials, is_known, key_digest, session_token
from headrace.serving.definition_routes import OfService, read_model
from headrace.serving.problems import Refusal
from headrace.serving.service import Service
from headrace.serving.session import set_cookie
from headrace.serving.sessions import COOKIE
from headrace.sources.system_tables import DEAD_LETTERS
from headrace.version import release

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
# Nothing comes from elsewhere, nothing is written into a page as markup, and no page of another frames this one.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Asset:
    """A file of the console, as it is sent."""

    content: bytes
    packed: bytes
    media_type: str
    etag: str


class Key(BaseModel):
    """A key to sign in with."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(min_length=1, max_length=1_000)


def _read_assets() -> dict[str, Asset]:
    """All files by name, read once: a request names one of them or nothing, and reads no disk."""
    found: dict[str, Asset] = {}
    for file in sorted(_FOLDER.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            kind = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            media = f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            found[file.relative_to(_FOLDER).as_posix()] = Asset(content, gzip.compress(content, 6), media, etag)
    return found


_ASSETS = _read_assets()


@router.get("/")
async def index(request: Request) -> Response:
    """The one page; what it shows is chosen by the part of the address behind #."""
    return _sent("index.html", request)


@router.get("/console/session")
async def session(request: Request, service: OfService, access: OfAccess) -> Response:
    """Whether this browser may use the server, and what the server takes."""
    known = is_known(request)
    told: dict[str, Any] = {"needs_key": _credentials(request).is_needed, "known": known}
    if request.app.state.openid.is_offered:
        told["oidc"] = True
    if known:
        told |= {"definitions": service.settings.serve_definitions, "version": release()}
        told |= {"signed_in": bool(session_token(request.headers)), "who": access.who}
        told |= {"grants": [str(one) for one in access.grants], "may": _may(access, service)}
    return JSONResponse(told, headers={**HEADERS, "Cache-Control": "no-cache"})


def _may(access: Access, service: Service) -> dict[str, bool]:
    """What pages leave out for who may not; the routes judge for themselves."""
    return {
        "administer": access.may_administer(),
        "observe": access.may_observe(),
        "read": any(one.role != "observe" for one in access.grants),
        "letters": access.may_read(DEAD_LETTERS, system=True),
        "events": access.is_unlimited or _reads_events(access, service.readings.catalog),
    }


def _reads_events(access: Access, catalog: Catalog) -> bool:
    stores = [one.name for one in catalog.tables() if one.events is not None]
    return any(access.may_read(one, system=True) and access.reads_in_place_of(one) == one for one in stores)


@router.post("/console/session")
async def sign_in(request: Request) -> Response:
    """Begin a session with a key; a page of another site never gets here."""
    digest = key_digest((await read_model(request, Key)).key.strip())
    credentials = _credentials(request)
    if credentials.access_of_key(digest) is None:
        raise Refusal(401, "unauthorized", "this key is not known", hint="ask whoever runs the server for one")
    answer = JSONResponse({"known": True}, headers=HEADERS)
    set_cookie(answer, request, credentials.sessions.begin(digest))
    return answer


@router.delete("/console/session")
async def sign_out(request: Request) -> Response:
    """End this browser's session."""
    _credentials(request).sessions.end(session_token(request.headers))
    answer = JSONResponse({"known": False}, headers=HEADERS)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


@router.get("/console/{name:path}")
async def asset(name: str, request: Request) -> Response:
    """One of the console's files."""
    return _sent(name, request)


def _sent(name: str, request: Request) -> Response:
    found = _ASSETS.get(name)
    if found is None:
        raise Refusal(404, "not_found", "the console has no such file", hint="open / instead")
    headers = {**HEADERS, "ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(found.packed, headers=headers, media_type=found.media_type)
    return Response(found.content, headers=headers, media_type=found.media_type)


def _credentials(request: Request) -> Credentials:
    return request.app.state.credentials
