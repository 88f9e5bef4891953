"""/v1/sources and /v1/dead-letters: how sources fare, and what they could not apply."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from headrace.errors import RelationNameError
from headrace.json_forms import json_rows
from headrace.reading.held_rows import HeldRows
from headrace.serving.openapi import NAME_LENGTH, ReceiptBody, refusals
from headrace.serving.problems import Refusal
from headrace.serving.service import Service, service_of
from headrace.sources.dead_letters import discard, replay
from headrace.sources.running import shown
from headrace.sources.system_tables import DEAD_LETTERS
from headrace.sql.syntax import SourceAction
from headrace.state.state import BEGIN
from headrace.statements.run import run_statement

router = APIRouter(tags=["sources"])
OfService = Annotated[Service, Depends(service_of)]
SourceName = Annotated[str, Path(max_length=NAME_LENGTH, description="The name of a source.")]


class Chosen(BaseModel):
    """Which dead letters: by their ids, all of one source, or all."""

    model_config = ConfigDict(extra="forbid")

    ids: list[str] | None = Field(None, max_length=10_000)
    source: str | None = Field(None, max_length=NAME_LENGTH)


@router.get("/v1/sources", responses=refusals(503))
async def sources(service: OfService) -> list[dict[str, Any]]:
    """All sources, as SHOW SOURCES tells them."""
    return json_rows(await run_in_threadpool(shown, service.engine.core, service.engine.sources))


@router.get("/v1/sources/{name}", responses=refusals(404, 503))
async def source(name: SourceName, service: OfService) -> dict[str, Any]:
    """One source."""
    found = [one for one in await sources(service) if one["name"] == name.lower()]
    if not found:
        raise RelationNameError(f"there is no source {name}", hint="GET /v1/sources lists what there is")
    return found[0]


@router.post("/v1/sources/{name}/{verb}", responses=refusals(404, 503))
async def change(name: SourceName, verb: Literal["pause", "resume"], service: OfService) -> dict[str, Any]:
    """Pause a source, or have it go on."""
    statement = SourceAction(sql="", line=1, column=1, verb=verb, name=name.lower(), if_exists=False)
    await run_in_threadpool(run_statement, service.engine, statement)
    return await source(name, service)


@router.get("/v1/dead-letters", responses=refusals(503))
async def dead_letters(
    service: OfService,
    source: Annotated[str | None, Query(max_length=NAME_LENGTH, description="Only those of this source.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> list[dict[str, Any]]:
    """Dead letters, oldest first."""
    found = await run_in_threadpool(_letters, service, Chosen(ids=None, source=source))
    return found[:limit]


@router.post("/v1/dead-letters/{verb}", response_model=ReceiptBody, responses=refusals(404, 422, 503))
async def act(verb: Literal["replay", "discard"], chosen: Chosen, service: OfService) -> dict[str, Any]:
    """Have dead letters tried again, or let go; the receipt tells what became of them."""
    loop = service.engine.loop
    letters = await run_in_threadpool(_letters, service, chosen)
    if chosen.ids is not None and len(letters) < len(set(chosen.ids)):
        known = {one["id"] for one in letters}
        lacking = [one for one in chosen.ids if one not in known]
        raise Refusal(
            404, "unknown_letter", "there is no such dead letter", detail=f"It is {lacking[0][:200]!r}.",
            hint="GET /v1/dead-letters lists what there is",
        )  # fmt: skip
    done = await run_in_threadpool(replay if verb == "replay" else discard, loop, letters)
    return done.to_json()


def _letters(service: Service, chosen: Chosen) -> list[dict[str, Any]]:
    """The chosen letters, without work for Spark."""
    _, relations = service.readings.newest()
    if DEAD_LETTERS not in relations:
        return []
    snapshot, schema = relations[DEAD_LETTERS]
    rows = json_rows(HeldRows(snapshot, schema.names).piece(BEGIN, snapshot.size + 1).rows)
    wanted = None if chosen.ids is None else set(chosen.ids)
    kept = [
        one
        for one in rows
        if (wanted is None or one["id"] in wanted) and (chosen.source is None or one["source"] == chosen.source.lower())
    ]
    return sorted(kept, key=lambda one: (one["arrived_at"], one["id"]))
