"""/v1/dead-letters: what sources could not apply, and what becomes of it."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.capture.exact_json import json_text, read_record
from headrace.capture.messages import Undecodable
from headrace.json_forms import json_form
from headrace.serving.bodies import read_small_body
from headrace.serving.definition_routes import OfService, answered, model_of, read_model
from headrace.serving.openapi import NAME_LENGTH, ReceiptBody, body, refusals
from headrace.serving.problems import invalid
from headrace.serving.rows import JSON
from headrace.serving.service import Service
from headrace.serving.text_paths import register_text_paths
from headrace.sources.dead_letters import Filter, discard, find_letters, refuse_unknown, replay
from headrace.statements.audited import noted_letters

register_text_paths()
router = APIRouter(tags=["sources"])

_ID_LENGTH = 10_000
_MOST_IDS = 10_000
LetterId = Annotated[str, Path(max_length=_ID_LENGTH, description="The id of a dead letter.")]


class LetterBody(BaseModel):
    """A dead letter; what comes later is told too."""

    model_config = ConfigDict(extra="allow")

    id: str
    source: str
    table: str | None
    position: str | None
    stage: str | None
    reason: str | None
    payload: str | None
    arrived_at: str | None


class LettersBody(BaseModel):
    """A page of dead letters, oldest first, and how the next one is asked for."""

    letters: list[LetterBody]
    next: str | None = Field(description="Send it as cursor for the letters that follow; null if these are the last.")


class Chosen(BaseModel):
    """Which dead letters: by their ids, by source, by stage; all that is given must hold, and something must be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"source": "orders"}]})

    ids: list[Annotated[str, Field(max_length=_ID_LENGTH)]] | None = Field(default=None, max_length=_MOST_IDS)
    source: str | None = Field(default=None, max_length=NAME_LENGTH)
    stage: str | None = Field(default=None, max_length=NAME_LENGTH)
    all: bool = Field(default=False, description="All dead letters, where nothing else is given.")


class Edited(BaseModel):
    """What a letter should have been; without a payload it is read as it came."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"payload": '{"insert": {"id": 1}}'}]})

    payload: str | dict[str, Any] | list[Any] | None = Field(
        default=None, description="The record as text, or as a document of JSON."
    )


@router.get("/v1/dead-letters", response_model=LettersBody, responses=refusals(400, 422, 503))
async def dead_letters(
    service: OfService,
    source: Annotated[str | None, Query(max_length=NAME_LENGTH, description="Only those of this source.")] = None,
    stage: Annotated[str | None, Query(max_length=NAME_LENGTH, description="Only those that ended here.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=2 * _ID_LENGTH, description="Where the last page ended.")] = None,
) -> Response:
    """Dead letters, oldest first."""
    after = None if cursor is None else _place(cursor)
    wanted = Filter(source=None if source is None else source.lower(), stage=stage)

    def page() -> dict[str, Any]:
        found = find_letters(service.engine.core, wanted, after, limit + 1)
        more = len(found) > limit
        return {"letters": json_form(found[:limit]), "next": _cursor(found[limit - 1]) if more else None}

    return JSONResponse(await run_in_threadpool(page))


@router.get("/v1/dead-letters/{id:text}", response_model=LetterBody, responses=refusals(404, 422, 503))
async def dead_letter(id: LetterId, service: OfService) -> Response:  # noqa: A002 - as the column is called
    """One dead letter."""
    (found,) = await run_in_threadpool(_letters, service, Chosen(ids=[id]))
    return JSONResponse(json_form(found))


@router.post(
    "/v1/dead-letters/{verb}",
    response_model=ReceiptBody,
    responses=refusals(400, 404, 408, 413, 422, 429, 503),
    openapi_extra=body(Chosen.model_json_schema(), JSON, description="Which dead letters."),
)
async def act(verb: Literal["replay", "discard"], request: Request, service: OfService) -> Response:
    """Have dead letters tried again, or let go; the receipt tells how many were applied, stale or dead again."""
    chosen = await read_model(request, Chosen)
    if chosen.ids is None and chosen.source is None and chosen.stage is None and not chosen.all:
        raise invalid([{"loc": ("ids",), "msg": "say which: ids, source, stage, or all = true"}])

    def run() -> dict[str, Any]:
        with noted_letters(service.engine.audit, verb):
            letters = _letters(service, chosen)
            return (replay if verb == "replay" else discard)(service.engine.loop, letters).to_json()

    return await answered(request, service, run)


@router.post(
    "/v1/dead-letters/{id:text}/replay",
    response_model=ReceiptBody,
    responses=refusals(400, 404, 408, 413, 422, 429, 503),
    openapi_extra=body(Edited.model_json_schema(), JSON, description="What the record should have been."),
)
async def replay_one(id: LetterId, request: Request, service: OfService) -> Response:  # noqa: A002 - as above
    """Have one dead letter tried again, edited or as it came; refused again it stays, with what was sent."""
    text = edited_text(await read_small_body(request))

    def run() -> dict[str, Any]:
        with noted_letters(service.engine.audit, "replay"):
            letters = _letters(service, Chosen(ids=[id]))
            if text is not None:
                letters = [{**one, "payload": text} for one in letters]
            return replay(service.engine.loop, letters).to_json()

    return await answered(request, service, run)


def edited_text(sent: bytes) -> str | None:
    """The payload that a body has, as text: numbers of a document have the digits that were sent."""
    payload = model_of(sent, Edited).payload
    if payload is None or isinstance(payload, str):
        return payload
    try:
        return json_text(read_record(sent)["payload"])
    except Undecodable as error:
        raise invalid([{"loc": ("payload",), "msg": error.reason}]) from None


def _letters(service: Service, chosen: Chosen) -> list[dict[str, Any]]:
    """The chosen letters; an id that there is none of is told."""
    ids = None if chosen.ids is None else tuple(chosen.ids)
    source = None if chosen.source is None else chosen.source.lower()
    found = find_letters(service.engine.core, Filter(ids, source, chosen.stage))
    refuse_unknown(ids or (), found)
    return found


def _order(letter: dict[str, Any]) -> tuple[datetime, str]:
    return letter["arrived_at"], letter["id"]


def _cursor(letter: dict[str, Any]) -> str:
    arrived_at, name = _order(letter)
    return base64.urlsafe_b64encode(json.dumps([arrived_at.isoformat(), name]).encode()).decode()


def _place(cursor: str) -> tuple[datetime, str]:
    try:
        arrived_at, name = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        moment = datetime.fromisoformat(arrived_at)
        if not isinstance(name, str) or moment.tzinfo is None:
            raise ValueError
        return moment, name
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise invalid([{"loc": ("cursor",), "msg": "it is none of those that a page ends with"}]) from None
