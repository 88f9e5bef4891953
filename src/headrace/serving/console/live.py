"""GET /v1/live, /v1/runtime and /v1/epochs: epochs as they are committed, and how they went."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from headrace.access.grants import Access
from headrace.serving.access import OfAccess, counted_as
from headrace.serving.console.history import History, PastEpoch
from headrace.serving.definition_routes import OfService
from headrace.serving.openapi import refusals
from headrace.serving.service import Service
from headrace.serving.streams import EventStream, OpenStream

router = APIRouter(tags=["console"])

# A page is told of epochs at most so often; those between come together.
_PACE_SECONDS = 0.25
_LOOKS = 25
_EVENT = "Events `epochs`: those committed since the last event, with the rows that each relation changed."


class EpochsBody(BaseModel):
    """The epochs that can be read, newest last."""

    oldest: int
    newest: int
    epochs: list[dict[str, Any]]


class RuntimeBody(BaseModel):
    """How epochs went since the server began, and what it used."""

    model_config = ConfigDict(extra="allow")

    epoch: int
    epochs: list[dict[str, Any]]
    samples: list[dict[str, Any]]


class JobsBody(BaseModel):
    """Work that Spark was given, as it tells it: most epochs need none, fills and full recomputes do."""

    jobs: list[dict[str, Any]]


@router.get(
    "/v1/live",
    response_class=Response,
    responses={200: {"description": _EVENT, "content": {"text/event-stream": {"schema": {"type": "string"}}}}}
    | refusals(429, 503),
)
async def live(request: Request, service: OfService, access: OfAccess) -> Response:
    """Stream epochs as they are committed, for as long as one listens; not more than a few events a second."""
    stream = service.streams.enter()
    events = _events(service, request.app.state.history, stream, access)
    return EventStream(events, stream, service.settings.serve_patience.total_seconds())


async def _events(
    service: Service, history: History, stream: OpenStream, access: Access
) -> AsyncGenerator[bytes, None]:
    keep_alive = service.settings.serve_keep_alive.total_seconds()
    told = service.readings.epoch
    yield _event({"epoch": told, "epochs": []})
    while not service.streams.ending and not service.readings.following.ended:
        if not await stream.newer_than(told, keep_alive):
            yield b": alive\n\n"
            continue
        # An epoch is visible a moment before it is noted.
        for _ in range(_LOOKS):
            if newer := history.epochs(told):
                break
            await asyncio.sleep(_PACE_SECONDS / _LOOKS)
        else:
            newer = []
        told = newer[-1].epoch if newer else service.readings.epoch
        names = _names(counted_as(access, service.readings.catalog))
        yield _event({"epoch": told, "epochs": [_told(one, names) for one in newer]})
        await asyncio.sleep(_PACE_SECONDS)


def _names(counted: Mapping[str, str]) -> dict[str, list[str]]:
    """By each relation whose figures are told, the names that they are told for."""
    found: dict[str, list[str]] = {}
    for name, place in counted.items():
        found.setdefault(place, []).append(name)
    return found


def _told(one: PastEpoch, names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """An epoch, with the changes of those relations that its reader may know of, as that one sees them."""
    changes = {name: count for place, count in one.changes.items() for name in names.get(place, ())}
    return {**one.to_json(), "changes": changes}


def _event(content: dict[str, Any]) -> bytes:
    return f"event: epochs\ndata: {json.dumps(content)}\nid: {content['epoch']}\n\n".encode()


@router.get("/v1/runtime", response_model=RuntimeBody, responses=refusals(422, 503))
async def runtime(
    request: Request,
    service: OfService,
    since: Annotated[int, Query(ge=-1, le=2**62, description="Epochs after this one.")] = -1,
    limit: Annotated[int, Query(ge=1, le=2_000)] = 500,
) -> Response:
    """Epochs since the server began with their stages, and samples of memory, state and disk."""
    history: History = request.app.state.history
    return JSONResponse(await run_in_threadpool(_runtime, service, history, since, limit))


def _runtime(service: Service, history: History, since: int, limit: int) -> dict[str, Any]:
    status = service.home.status()
    failures = {name: text for name, text in status.items() if name.endswith("_failure") and text}
    return {
        "epoch": service.readings.epoch,
        "epochs": [one.to_json() for one in history.epochs(since)[-limit:]],
        "samples": history.samples(),
        "queries_under_way": service.statements.under_way,
        "pushes_under_way": service.pushes.under_way,
        "streams_open": service.streams.open,
        "ledger_bytes": service.engine.core.ledger.size,
        "failures": failures,
    }


@router.get("/v1/jobs", response_model=JobsBody, responses=refusals(503))
async def jobs(request: Request) -> Response:
    """The newest jobs of the home's own Spark, newest first; queries of the server run in others."""
    history: History = request.app.state.history
    return JSONResponse({"jobs": await run_in_threadpool(history.jobs)})


@router.get("/v1/epochs", response_model=EpochsBody, responses=refusals(422, 503))
async def epochs(
    service: OfService, limit: Annotated[int, Query(ge=1, le=10_000, description="The newest so many.")] = 500
) -> Response:
    """The epochs that can be read and when they were committed, newest last."""
    core = service.engine.core
    oldest, newest = core.ledger.oldest, core.epoch
    newer = reversed(core.ledger.heads()[-limit - 1 :])
    kept = [one for one in newer if oldest <= one.epoch <= newest][:limit][::-1]
    told = [{"epoch": one.epoch, "committed_at": one.committed_at.isoformat()} for one in kept]
    return JSONResponse({"oldest": oldest, "newest": newest, "epochs": told})
