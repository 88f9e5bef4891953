"""/v0/openapi.json: the client's routes as they are answered here, in a document of their own."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response

from headrace.serving.feldera import listening, pipelines, pushes, queries
from headrace.serving.feldera.errors import ClientRoute
from headrace.serving.feldera.pipelines import ANSWERED_VERSION
from headrace.serving.openapi import body, refusals

router = APIRouter(prefix="/v0", route_class=ClientRoute)
_PIPELINE = "/v0/pipelines/{name}"
# By path, the ways to be refused beside those of every route.
_REFUSALS: dict[str, tuple[int, ...]] = {
    "/v0/config": (),
    "/v0/cluster_healthz": (),
    "/v0/pipelines": (422,),
    _PIPELINE: (404, 422),
    f"{_PIPELINE}/start": (404, 422),
    f"{_PIPELINE}/resume": (404, 409),
    f"{_PIPELINE}/pause": (404, 409),
    f"{_PIPELINE}/stop": (404,),
    f"{_PIPELINE}/dismiss_error": (404,),
    f"{_PIPELINE}/stats": (404, 409),
    f"{_PIPELINE}/metrics": (400, 404, 422),
    f"{_PIPELINE}/query": (400, 404, 408, 409, 410, 413, 422, 429, 503),
    f"{_PIPELINE}/completion_status": (400, 404, 410, 413, 422, 429, 503),
    f"{_PIPELINE}/ingress/{{table}}": (400, 404, 408, 409, 413, 422, 429, 503),
    f"{_PIPELINE}/egress/{{relation}}": (400, 404, 409, 422, 429, 503),
}
_ANY: dict[str, Any] = {"schema": {}}
# What is not one JSON value: figures, rows in the form that was asked for, chunks of a stream.
_ANSWERS: dict[str, dict[str, Any]] = {
    f"{_PIPELINE}/dismiss_error": {},
    f"{_PIPELINE}/metrics": {"text/plain": {"schema": {"type": "string"}}},
    f"{_PIPELINE}/query": {
        "text/plain": {"schema": {"type": "string"}},
        "application/x-ndjson": _ANY,
        "application/vnd.apache.arrow.stream": _ANY,
        "application/vnd.apache.parquet": _ANY,
    },
    f"{_PIPELINE}/egress/{{relation}}": {"application/json": _ANY},
}


@router.get("/openapi.json", include_in_schema=False)
async def document() -> Response:
    """The document."""
    return JSONResponse(client_document())


@cache
def client_document() -> dict[str, Any]:
    """What the client may send, and every answer that it may get."""
    groups = (pipelines, pushes, queries, listening)
    made = get_openapi(
        title="Headrace, for the feldera client",
        version=ANSWERED_VERSION,
        description="The part of the client's API that a home answers; whatever else is asked under /v0 is a 404.",
        routes=[route for group in groups for route in group.router.routes],
    )
    for path, operations in made["paths"].items():
        for operation in operations.values():
            told: dict[str, Any] = operation["responses"]
            # The framework's own form of a refusal, which is not how they are answered.
            told.pop("422", None)
            if path in _ANSWERS:
                told["200"] = {"description": "As asked for.", "content": _ANSWERS[path]}
            told |= {str(status): refusal for status, refusal in refusals(*_REFUSALS[path]).items()}
            if path.endswith("/ingress/{table}"):
                operation |= body({}, "application/json", "text/plain", description="Changes as JSON, a line each.")
    made.get("components", {}).get("schemas", {}).clear()
    return made
