"""/v1/sources: the twins of CREATE, ALTER, PAUSE, RESUME, DROP SOURCE and SHOW SOURCES."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError

from headrace.access.audit import acting
from headrace.errors import RelationNameError
from headrace.json_forms import json_rows
from headrace.query_processes.pool import Stop
from headrace.serving.access import access_in
from headrace.serving.bodies import read_small_body
from headrace.serving.openapi import NAME_LENGTH, body, refusals
from headrace.serving.problems import Refusal, invalid
from headrace.serving.rows import JSON
from headrace.serving.service import Service, service_of
from headrace.serving.source_limits import refuse_unlisted
from headrace.serving.statement_runner import ClientGone, PreparedStatement
from headrace.sources.running import shown
from headrace.sql.names import relation_name_fault
from headrace.sql.source_statements import CONNECTORS
from headrace.sql.statements import AlterSource, CreateSource, SourceAction
from headrace.statements.run import run_statements

router = APIRouter(tags=["sources"])
OfService = Annotated[Service, Depends(service_of)]
SourceName = Annotated[str, Path(max_length=NAME_LENGTH, description="The name of a source.")]
OptionValue = StrictBool | StrictInt | StrictStr
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")


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

    name: str = Field(min_length=1, max_length=NAME_LENGTH)
    table: str = Field(
        default="", max_length=NAME_LENGTH, description="The table that it is for; empty if its records tell."
    )
    connector: str = Field(max_length=NAME_LENGTH, description="Such as kafka, delta or files.")
    location: str = Field(min_length=1, max_length=10_000, description="Where it is, as the connector wants it.")
    options: dict[str, OptionValue] = Field(default_factory=dict[str, OptionValue], max_length=1000)
    if_not_exists: bool = False


class NewOptions(BaseModel):
    """Options that are to be others from now on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"options": {"max_records": 1000}}]})

    options: dict[str, OptionValue] = Field(min_length=1, max_length=1000)


@router.get("/v1/sources", response_model=list[SourceBody], responses=refusals(503))
async def sources(service: OfService) -> Response:
    """All sources, as SHOW SOURCES tells them."""
    return JSONResponse(await run_in_threadpool(_shown, service))


@router.get("/v1/sources/{name}", response_model=SourceBody, responses=refusals(404, 422, 503))
async def source(name: SourceName, service: OfService) -> Response:
    """One source."""
    return JSONResponse(await run_in_threadpool(_one, service, name))


@router.post(
    "/v1/sources",
    status_code=201,
    response_model=SourceBody,
    responses=refusals(400, 404, 408, 413, 422, 429, 503),
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

    def run() -> dict[str, Any]:
        run_statements(service.engine, [statement])
        return _one(service, statement.name)

    return await answered(request, service, run, 201)


@router.patch(
    "/v1/sources/{name}",
    response_model=SourceBody,
    responses=refusals(400, 404, 408, 413, 422, 429, 503),
    openapi_extra=body(NewOptions.model_json_schema(), JSON, description="The options that are to be others."),
)
async def alter(name: SourceName, request: Request, service: OfService) -> Response:
    """Give a source other options, as ALTER SOURCE does; it goes on where it was."""
    refuse_definitions(service)
    sent = await read_model(request, NewOptions)
    options = tuple(sorted(_options(sent.options).items()))
    refuse_unlisted(service.settings.serve_source_locations, "", "", dict(options))
    statement = AlterSource(sql="", line=1, column=1, name=name.lower(), options=options)

    def run() -> dict[str, Any]:
        run_statements(service.engine, [statement])
        return _one(service, name)

    return await answered(request, service, run)


@router.post("/v1/sources/{name}/{verb}", response_model=SourceBody, responses=refusals(400, 404, 422, 429, 503))
async def change(name: SourceName, verb: Literal["pause", "resume"], request: Request, service: OfService) -> Response:
    """Pause a source, or have it go on."""

    def run() -> dict[str, Any]:
        _act(service, name, verb)
        return _one(service, name)

    return await answered(request, service, run)


@router.delete(
    "/v1/sources/{name}",
    status_code=204,
    response_class=Response,
    responses=refusals(400, 404, 422, 429, 503),
)
async def drop(name: SourceName, request: Request, service: OfService) -> Response:
    """Drop a source, as DROP SOURCE does: what it brought stays."""
    refuse_definitions(service)
    await answered(request, service, lambda: _act(service, name, "drop"))
    return Response(status_code=204)


async def read_model(request: Request, kind: type[M]) -> M:
    """What a small body holds, as declared."""
    return model_of(await read_small_body(request), kind)


def model_of(sent: bytes, kind: type[M]) -> M:
    """What bytes hold, as declared."""
    try:
        return kind.model_validate_json(sent)
    except ValidationError as error:
        raise invalid(error.errors(include_url=False, include_input=False, include_context=False)) from None


async def answered(request: Request, service: Service, run: Callable[[], T], status: int = 200) -> Response:
    """What an administrator's change comes to, which is carried through whoever hangs up."""
    seconds = service.settings.serve_query_time.total_seconds()
    who = access_in(request.scope).who

    def acted() -> T:
        with acting(who):
            return run()

    try:
        content = await service.statements.answer(
            request, seconds, Stop(), lambda: PreparedStatement(acted, changes=True)
        )
    except ClientGone:
        return Response(status_code=499)
    return JSONResponse(content, status)


def refuse_definitions(service: Service) -> None:
    """What is refused of statements over HTTP is refused of their twins."""
    if not service.settings.serve_definitions:
        raise Refusal(
            403,
            "definitions_refused",
            "this server takes no definitions",
            detail="To create, alter or drop a source changes what the home is, not what it holds.",
            hint="run headrace source or headrace run, or start the server with HEADRACE_SERVE_DEFINITIONS=true",
        )


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
    fault = relation_name_fault(sent.name)
    if fault:
        raise invalid([{"loc": ("name",), "msg": fault}])
    if sent.connector.upper() not in CONNECTORS:
        raise invalid([{"loc": ("connector",), "msg": f"there are {', '.join(CONNECTORS).lower()}"}])
    refuse_functions(sent.connector)
    if not sent.location.strip():
        raise invalid([{"loc": ("location",), "msg": "it does not say where the source is"}])
    return CreateSource(
        sql="",
        line=1,
        column=1,
        name=sent.name.lower(),
        table=sent.table.lower(),
        connector=sent.connector.lower(),
        location=sent.location,
        options=tuple(sorted(_options(sent.options).items())),
        if_not_exists=sent.if_not_exists,
    )


def _options(given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    options = {name.lower(): value for name, value in given.items()}
    if len(options) < len(given):
        raise invalid([{"loc": ("options",), "msg": "names that differ by case alone are the same"}])
    return options


def _act(service: Service, name: str, verb: Literal["pause", "resume", "drop"]) -> None:
    statement = SourceAction(sql="", line=1, column=1, verb=verb, name=name.lower(), if_exists=False)
    run_statements(service.engine, [statement])


def _shown(service: Service) -> list[dict[str, Any]]:
    return json_rows(shown(service.engine.core, service.engine.sources))


def _one(service: Service, name: str) -> dict[str, Any]:
    found = [one for one in _shown(service) if one["name"] == name.lower()]
    if not found:
        raise RelationNameError(f"there is no source {name}", hint="GET /v1/sources lists what there is")
    return found[0]
