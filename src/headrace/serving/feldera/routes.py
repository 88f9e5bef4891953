"""The client's routes, on an application."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request

from headrace.serving.feldera import listening, openapi, pipelines, pushes, queries
from headrace.serving.feldera.errors import ClientRoute
from headrace.serving.feldera.pipeline_status import PipelineStatus
from headrace.serving.problems import Refusal

_rest = APIRouter(prefix="/v0", route_class=ClientRoute)


@_rest.api_route("/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
async def not_answered(rest: str, request: Request) -> None:
    """Whatever else the client can ask."""
    raise Refusal(
        404,
        "not_answered",
        f"{request.method} /v0/{rest} is not answered here",
        detail="A home answers to the client's pushes, completion tokens, ad-hoc queries, listening, status and stats. "
        "Its tables and views are defined in SQL, not by the client.",
        hint="define tables and views with headrace run, or leave this call out",
    )


def install(app: FastAPI, home: str) -> None:
    """Answer the client; its API is another project's, so it has a document apart from that of our own."""
    app.state.pipeline = PipelineStatus(home)
    for group in (pipelines, pushes, queries, listening, openapi):
        app.include_router(group.router, include_in_schema=False)
    app.include_router(_rest, include_in_schema=False)
