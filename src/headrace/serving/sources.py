"""/v1/sources: the twins of CREATE, ALTER, PAUSE, RESUME, DROP SOURCE and SHOW SOURCES."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from headrace.json_forms import json_rows
from headrace.serving.definition_routes import (
    DEFINING,
    DOING,
    LOOKING,
    NewLocation,
    NewName,
    NewOptions,
    OfService,
    OptionValue,
    dropped,
    one_of,
    option_pairs,
    ran,
    read_model,
    refuse_definitions,
    refuse_misnamed,
)
from headrace.serving.openapi import NAME_LENGTH, body, refusals
from headrace.serving.problems import Refusal
from headrace.serving.rows import JSON
from headrace.serving.service import Service
from headrace.serving.source_limits import refuse_unlisted
from headrace.sources.running import shown
from headrace.sql.source_statements import CONNECTORS
from headrace.sql.statements import AlterSource, CreateSource, SourceAction

router = APIRouter(tags=["sources"])
SourceName = Annotated[str, Path(max_length=NAME_LENGTH, description="The name of a source.")]


class SourceBody(BaseModel):
    """A source, as SHOW SOURCES tells it; what comes later is told too."""

    model_config = ConfigDict(extra="allow")

    name: str
    table: str
    state: Literal["Running", "Paused", "Error", "Done"]
    received: int
    applied: int
    stale: int
    dead: int
    pending: int
    lag_records: int | None
    lag_seconds: float | None
    error: str | None


class NewSource(BaseModel):
    """A source that is to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "orders",
                    "table": "orders",
                    "connector": "kafka",
                    "location": "localhost:9092/shop.public.orders",
                    "options": {"format": "debezium"},
                }
            ]
        },
    )

    name: NewName
    table: str = Field(
        default="", max_length=NAME_LENGTH, description="The table that it is for; empty if its records tell."
    )
    connector: str = Field(max_length=NAME_LENGTH, description="Such as kafka, delta or files.")
    location: NewLocation
    options: NewOptions = Field(default_factory=dict[str, OptionValue])
    if_not_exists: bool = False


class OtherOptions(BaseModel):
    """Options that are to be others from now on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"options": {"max_records": 1000}}]})

    options: dict[str, OptionValue] = Field(min_length=1, max_length=1000)


@router.get("/v1/sources", response_model=list[SourceBody], responses=refusals(503))
async def sources(service: OfService) -> Response:
    """All sources, as SHOW SOURCES tells them."""
    return JSONResponse(await run_in_threadpool(_shown, service))


@router.get("/v1/sources/{name}", response_model=SourceBody, responses=LOOKING)
async def source(name: SourceName, service: OfService) -> Response:
    """One source."""
    return JSONResponse(await run_in_threadpool(_one, service, name))


@router.post(
    "/v1/sources",
    status_code=201,
    response_model=SourceBody,
    responses=DEFINING,
    openapi_extra=body(NewSource.model_json_schema(), JSON, description="The source that is to be made."),
)
async def create(request: Request, service: OfService) -> Response:
    """Make a source, as CREATE SOURCE does; refused unless the setting serve_definitions allows definitions."""
    refuse_definitions(service)
    sent = await read_model(request, NewSource)
    statement = _statement(sent)
    refuse_unlisted(
        service.settings.serve_source_locations, statement.connector, statement.location, dict(statement.options)
    )
    return await ran(request, service, statement, lambda: _one(service, statement.name), 201)


@router.patch(
    "/v1/sources/{name}",
    response_model=SourceBody,
    responses=DEFINING,
    openapi_extra=body(OtherOptions.model_json_schema(), JSON, description="The options that are to be others."),
)
async def alter(name: SourceName, request: Request, service: OfService) -> Response:
    """Give a source other options, as ALTER SOURCE does; it goes on where it was."""
    refuse_definitions(service)
    sent = await read_model(request, OtherOptions)
    options = option_pairs(sent.options)
    refuse_unlisted(service.settings.serve_source_locations, "", "", dict(options))
    statement = AlterSource(sql="", line=1, column=1, name=name.lower(), options=options)
    return await ran(request, service, statement, lambda: _one(service, name))


@router.post("/v1/sources/{name}/{verb}", response_model=SourceBody, responses=DOING)
async def change(name: SourceName, verb: Literal["pause", "resume"], request: Request, service: OfService) -> Response:
    """Pause a source, or have it go on."""
    return await ran(request, service, _action(name, verb), lambda: _one(service, name))


@router.delete(
    "/v1/sources/{name}",
    status_code=204,
    response_class=Response,
    responses=DOING,
)
async def drop(name: SourceName, request: Request, service: OfService) -> Response:
    """Drop a source, as DROP SOURCE does: what it brought stays."""
    return await dropped(request, service, _action(name, "drop"))


def refuse_functions(connector: str) -> None:
    """Whatever definitions a server takes, it imports no module that a client names."""
    if connector.lower() == "python":
        raise Refusal(
            403,
            "definitions_refused",
            "this server makes no source of a Python function",
            detail="To name a module is to have the server run what stands in it.",
            hint="run headrace source create or headrace run where the server runs",
        )


def _statement(sent: NewSource) -> CreateSource:
    """The statement that a body stands for, held to what the text of one is held to."""
    kind = ("connector", sent.connector, CONNECTORS)
    refuse_misnamed(sent.name, kind, sent.location, "it does not say where the source is")
    refuse_functions(sent.connector)
    return CreateSource(
        sql="",
        line=1,
        column=1,
        name=sent.name.lower(),
        table=sent.table.lower(),
        connector=sent.connector.lower(),
        location=sent.location,
        options=option_pairs(sent.options),
        if_not_exists=sent.if_not_exists,
    )


def _action(name: str, verb: Literal["pause", "resume", "drop"]) -> SourceAction:
    return SourceAction(sql="", line=1, column=1, verb=verb, name=name.lower(), if_exists=False)


def _shown(service: Service) -> list[dict[str, Any]]:
    return json_rows(shown(service.engine.core, service.engine.sources))


def _one(service: Service, name: str) -> dict[str, Any]:
    return one_of(_shown(service), name, "source")
