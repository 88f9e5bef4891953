"""/v1/changefeeds: the twins of CREATE CHANGEFEED, of what is done with one, of SHOW CHANGEFEEDS and parked events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.errors import RelationNameError
from headrace.feeds.define import replay_parked
from headrace.feeds.parked import discard, find_parked, page_parked
from headrace.feeds.running import shown
from headrace.feeds.sinks import SINKS
from headrace.json_forms import json_form, json_rows
from headrace.serving.definition_routes import (
    DEFINING,
    DOING,
    LOOKING,
    NewLocation,
    NewName,
    NewOptions,
    OfService,
    OptionValue,
    answered,
    dropped,
    one_of,
    option_pairs,
    ran,
    read_model,
    refuse_definitions,
    refuse_misnamed,
)
from headrace.serving.openapi import NAME_LENGTH, ReceiptBody, body, refusals
from headrace.serving.problems import invalid
from headrace.serving.rows import JSON
from headrace.serving.service import Service
from headrace.serving.source_limits import refuse_unlisted
from headrace.sql.statements import AlterFeed, CreateFeed, FeedAction
from headrace.statements.audited import noted_parked

router = APIRouter(tags=["changefeeds"])
FeedName = Annotated[str, Path(max_length=NAME_LENGTH, description="The name of a changefeed.")]


class FeedBody(BaseModel):
    """A changefeed, as SHOW CHANGEFEEDS tells it; what comes later is told too."""

    model_config = ConfigDict(extra="allow")

    name: str
    table: str
    state: Literal["Running", "Paused", "Error", "Done"]
    last_sequence: int
    events_delivered: int
    lag: int | None = Field(description="How many epochs it has not told yet.")
    error: str | None
    created: str


class NewFeed(BaseModel):
    """A changefeed that is to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "orders_out",
                    "table": "orders",
                    "sink": "kafka",
                    "location": "localhost:9092/orders",
                    "options": {"include_old_values": True},
                }
            ]
        },
    )

    name: NewName
    table: str = Field(min_length=1, max_length=NAME_LENGTH, description="The table or view whose changes go out.")
    sink: str = Field(max_length=NAME_LENGTH, description="Such as kafka, webhook, postgres or files.")
    location: NewLocation
    options: NewOptions = Field(default_factory=dict[str, OptionValue])
    if_not_exists: bool = False


class FeedOptionsBody(BaseModel):
    """Options that are to be others from now on, and those that are to be as if they had not been given."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"options": {"batch_size": 1000}}]})

    options: NewOptions = Field(default_factory=dict[str, OptionValue])
    unset: list[str] = Field(default_factory=list[str], max_length=1000)


class ParkedBody(BaseModel):
    """An event that its sink refused again and again."""

    model_config = ConfigDict(extra="allow")

    feed: str
    sequence: int
    key: str | None
    operation: str | None
    payload: str | None
    reason: str | None
    attempts: int | None
    parked_at: str | None


class ChosenParked(BaseModel):
    """Which parked events of the feed: by their sequences, or all."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"sequences": [17]}, {"all": True}]})

    sequences: list[int] | None = Field(default=None, max_length=10_000)
    all: bool = False


@router.get("/v1/changefeeds", response_model=list[FeedBody], responses=refusals(503))
async def changefeeds(service: OfService) -> Response:
    """All changefeeds, as SHOW CHANGEFEEDS tells them."""
    return JSONResponse(await run_in_threadpool(_shown, service))


@router.get("/v1/changefeeds/{name}", response_model=FeedBody, responses=LOOKING)
async def changefeed(name: FeedName, service: OfService) -> Response:
    """One changefeed."""
    return JSONResponse(await run_in_threadpool(_one, service, name))


@router.post(
    "/v1/changefeeds",
    status_code=201,
    response_model=FeedBody,
    responses=DEFINING,
    openapi_extra=body(NewFeed.model_json_schema(), JSON, description="The changefeed that is to be made."),
)
async def create(request: Request, service: OfService) -> Response:
    """Make a changefeed, as CREATE CHANGEFEED does; refused unless the setting serve_definitions allows definitions."""
    refuse_definitions(service)
    sent = await read_model(request, NewFeed)
    _refuse_unlisted(service, sent.sink.lower(), sent.location, sent.options)
    return await ran(request, service, _statement(sent), lambda: _one(service, sent.name), 201)


@router.patch(
    "/v1/changefeeds/{name}",
    response_model=FeedBody,
    responses=DEFINING,
    openapi_extra=body(FeedOptionsBody.model_json_schema(), JSON, description="The options that are to be others."),
)
async def alter(name: FeedName, request: Request, service: OfService) -> Response:
    """Give a changefeed other options, as ALTER CHANGEFEED does; it goes on where it was."""
    refuse_definitions(service)
    sent = await read_model(request, FeedOptionsBody)
    if not sent.options and not sent.unset:
        raise invalid([{"loc": ("options",), "msg": "say what is to be another: options or unset"}])
    _refuse_unlisted(service, "", "", sent.options)
    options = option_pairs(sent.options)
    unset = tuple(one.lower() for one in sent.unset)
    statement = AlterFeed(sql="", line=1, column=1, name=name.lower(), options=options, unset=unset)
    return await ran(request, service, statement, lambda: _one(service, name))


@router.post("/v1/changefeeds/{name}/{verb}", response_model=FeedBody, responses=DOING)
async def change(
    name: FeedName, verb: Literal["pause", "resume", "resync"], request: Request, service: OfService
) -> Response:
    """Pause a changefeed, have it go on, or tell all rows anew."""
    statement = _action(name, verb)
    return await ran(request, service, statement, lambda: _one(service, name))


@router.delete(
    "/v1/changefeeds/{name}",
    status_code=204,
    response_class=Response,
    responses=DOING,
)
async def drop(name: FeedName, request: Request, service: OfService) -> Response:
    """Drop a changefeed, as DROP CHANGEFEED does: what it told stays."""
    return await dropped(request, service, _action(name, "drop"))


@router.get("/v1/changefeeds/{name}/parked", response_model=list[ParkedBody], responses=LOOKING)
async def parked(
    name: FeedName,
    service: OfService,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    after: Annotated[int, Query(ge=0, description="Those of later sequences.")] = 0,
) -> Response:
    """The parked events of a changefeed, in order."""

    def page() -> list[dict[str, Any]]:
        feed = _one(service, name)
        return json_form(page_parked(service.engine.core, feed["name"], feed["id"], after, limit))

    return JSONResponse(await run_in_threadpool(page))


@router.post(
    "/v1/changefeeds/{name}/parked/{verb}",
    response_model=ReceiptBody,
    responses=DEFINING,
    openapi_extra=body(ChosenParked.model_json_schema(), JSON, description="Which parked events."),
)
async def act(name: FeedName, verb: Literal["replay", "discard"], request: Request, service: OfService) -> Response:
    """Have the sink take parked events after all, or let them go."""
    chosen = await read_model(request, ChosenParked)
    if chosen.sequences is None and not chosen.all:
        raise invalid([{"loc": ("sequences",), "msg": "say which: sequences, or all = true"}])

    def run() -> dict[str, Any]:
        engine = service.engine
        with noted_parked(engine.audit, verb):
            rows = find_parked(engine.core, _one(service, name)["id"], chosen.sequences)
            lacking = set(chosen.sequences or ()) - {one["sequence"] for one in rows}
            if lacking:
                raise RelationNameError(f"there is no parked event {min(lacking)} of changefeed {name}")
            again = verb == "replay"
            receipt = replay_parked(engine.loop, engine.feeds, rows) if again else discard(engine.loop, rows)
            return receipt.to_json()

    return await answered(request, service, run)


def _refuse_unlisted(service: Service, sink: str, location: str, options: Mapping[str, OptionValue]) -> None:
    """What clients may have sources name, they may have feeds name."""
    refuse_unlisted(service.settings.serve_source_locations, sink, location, options)


def _action(name: str, verb: Literal["pause", "resume", "resync", "drop"]) -> FeedAction:
    return FeedAction(sql="", line=1, column=1, verb=verb, name=name.lower(), if_exists=False)


def _statement(sent: NewFeed) -> CreateFeed:
    """The statement that a body stands for, held to what the text of one is held to."""
    sinks = [one.keyword for one in SINKS.values()]
    refuse_misnamed(sent.name, ("sink", sent.sink, sinks), sent.location, "it does not say where the events go")
    return CreateFeed(
        sql="",
        line=1,
        column=1,
        name=sent.name.lower(),
        table=sent.table.lower(),
        sink=sent.sink.lower(),
        location=sent.location,
        options=option_pairs(sent.options),
        if_not_exists=sent.if_not_exists,
    )


def _shown(service: Service) -> list[dict[str, Any]]:
    return json_rows(shown(service.engine.core, service.engine.feeds))


def _one(service: Service, name: str) -> dict[str, Any]:
    return one_of(_shown(service), name, "changefeed")
