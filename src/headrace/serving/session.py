"""/v1/session: a browser signs in with a key and carries a cookie from then on; and who one is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.access.grants import Access
from headrace.serving.access import OfAccess
from headrace.serving.auth import Credentials, is_known, key_digest, session_token
from headrace.serving.definition_routes import read_model
from headrace.serving.openapi import body, refusals
from headrace.serving.problems import Refusal
from headrace.serving.rows import JSON
from headrace.serving.sessions import COOKIE, LASTS_SECONDS

router = APIRouter(tags=["operation"])


class SignIn(BaseModel):
    """A key, for which the browser is given a cookie."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"key": "hr_..."}]})

    key: str = Field(min_length=1, max_length=1000)


class WhoBody(BaseModel):
    """Who one is, and what one may do."""

    who: str
    grants: list[str]


@router.get("/v1/session", response_model=WhoBody, responses=refusals())
async def who(request: Request, access: OfAccess) -> Response:
    """Who the request is from, and what its sender may do."""
    if not is_known(request):
        raise _unknown()
    return JSONResponse(_told(access))


@router.post(
    "/v1/session",
    response_model=WhoBody,
    responses=refusals(408, 413, 422),
    openapi_extra=body(SignIn.model_json_schema(), JSON, description="The key to sign in with."),
)
async def sign_in(request: Request) -> Response:
    """Take a key, and give the browser a cookie that stands for it for twelve hours."""
    sent = await read_model(request, SignIn)
    credentials: Credentials = request.app.state.credentials
    digest = key_digest(sent.key)
    access = credentials.access_of_key(digest)
    if access is None:
        raise _unknown()
    answer = JSONResponse(_told(access))
    set_cookie(answer, request, credentials.sessions.begin(digest))
    return answer


@router.delete("/v1/session", status_code=204, response_class=Response, responses=refusals())
async def sign_out(request: Request) -> Response:
    """End the session that the browser's cookie stands for."""
    request.app.state.credentials.sessions.end(session_token(request.headers))
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path="/")
    return answer


def set_cookie(answer: Response, request: Request, token: str, seconds: int = LASTS_SECONDS) -> None:
    """Have a browser carry a session: no script reads it, and no other site's page has it sent."""
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, token, max_age=seconds, path="/", httponly=True, samesite="strict", secure=secure)


def _told(access: Access) -> dict[str, Any]:
    return {"who": access.who, "grants": [str(one) for one in access.grants]}


def _unknown() -> Refusal:
    return Refusal(401, "unauthorized", "the key is not known", headers={"WWW-Authenticate": "Bearer"})
