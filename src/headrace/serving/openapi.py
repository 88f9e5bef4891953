"""What the OpenAPI document says of the routes: bodies, answers, and every way to be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import FastAPI, Path
from pydantic import BaseModel, ConfigDict, Field

from headrace.serving.problems import MEDIA_TYPE

NAME_LENGTH = 255
RelationName = Annotated[str, Path(max_length=NAME_LENGTH, description="The name of a table or view.")]

_REFUSALS = {
    400: "The request cannot be understood, or the statement cannot be answered.",
    401: "A valid API key is missing.",
    403: "The server does not do this, or not for this sender.",
    404: "There is no such relation.",
    406: "No offered form of the answer is acceptable.",
    409: "It is not as expected: another version of the aggregate, several rows of one key, or under way already.",
    408: "The body did not come.",
    410: "It is no longer known.",
    413: "The body is too large.",
    422: "The changes, or the parameters, are not as they must be; nothing was applied.",
    429: "Too much is under way; Retry-After says when to come back.",
    431: "The URL and the headers are too long.",
    503: "The machine failed; Retry-After says when to send it again. Without it: no longer the owner of its home.",
}


class Problem(BaseModel):
    """Why a request was refused (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    code: str = Field(description="A name for programs.")
    message: str = Field(description="Short; the same as the title.")
    detail: str = Field(description="More of it, in sentences.")
    hint: str = Field(description="What to do next.")


class ReceiptBody(BaseModel):
    """What became of changes: their epoch, counts by table, and seconds, by stage."""

    epoch: int
    applied: dict[str, int]
    stale: dict[str, int]
    dead: dict[str, int]
    seconds: float
    stages: dict[str, float]


class AppendedBody(ReceiptBody):
    """What became of events: also the version of their aggregate after them, and the position of the last."""

    version: int
    position: int


class TokenBody(BaseModel):
    """A token, to ask with what became of changes."""

    token: str


class CompletionBody(BaseModel):
    """What became of changes that were taken without waiting."""

    status: str
    receipt: ReceiptBody | None


class DefinedBody(BaseModel):
    """A definition took effect at an epoch."""

    epoch: int


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The declared refusals of a route; those that any route may give are among them."""
    schema = Problem.model_json_schema()
    return {
        status: {"description": _REFUSALS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in sorted({401, 403, 431, *statuses})
    }


def body(schema: dict[str, Any], *media: str, description: str) -> dict[str, Any]:
    """A declared body that the route reads by itself, piece by piece."""
    content = {one: {"schema": schema} for one in media}
    return {"requestBody": {"required": True, "description": description, "content": content}}


def with_keys(app: FastAPI, needed: Callable[[], bool]) -> None:
    """Declare that requests carry a key, where they need one."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        if not needed():
            return document
        schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
        schemes["bearer"] = {"type": "http", "scheme": "bearer"}
        schemes["header"] = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
        document["security"] = [{"bearer": []}, {"header": []}]
        return document

    app.openapi = openapi
