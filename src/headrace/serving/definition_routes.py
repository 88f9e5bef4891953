"""What routes have in common that define something: bodies, names, options, who may, and how a change is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, ValidationError

from headrace.access.audit import acting
from headrace.errors import RelationNameError
from headrace.query_processes.pool import Stop
from headrace.serving.access import access_in
from headrace.serving.bodies import read_small_body
from headrace.serving.openapi import NAME_LENGTH, refusals
from headrace.serving.problems import Refusal, invalid
from headrace.serving.service import Service, service_of
from headrace.serving.statement_runner import ClientGone, PreparedStatement
from headrace.sql.names import relation_name_fault
from headrace.sql.statements import Statement
from headrace.statements.run import run_statements

OfService = Annotated[Service, Depends(service_of)]
OptionValue = StrictBool | StrictInt | StrictStr
NewName = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]
NewLocation = Annotated[str, Field(min_length=1, max_length=10_000, description="Where it is, as its kind wants it.")]
NewOptions = Annotated[dict[str, OptionValue], Field(max_length=1000)]
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

# How a definition, a deed and a look at one may be refused.
DEFINING = refusals(400, 404, 408, 409, 413, 422, 429, 503)
DOING = refusals(400, 404, 422, 429, 503)
LOOKING = refusals(404, 422, 503)


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


async def ran(
    request: Request, service: Service, statement: Statement, found: Callable[[], dict[str, Any]], status: int = 200
) -> Response:
    """What is found once a statement was run."""

    def run() -> dict[str, Any]:
        run_statements(service.engine, [statement])
        return found()

    return await answered(request, service, run, status)


async def dropped(request: Request, service: Service, statement: Statement) -> Response:
    """Nothing, once a statement was run that drops something."""
    refuse_definitions(service)
    await answered(request, service, lambda: run_statements(service.engine, [statement]))
    return Response(status_code=204)


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


def refuse_misnamed(name: str, kind: tuple[str, str, Sequence[str]], location: str, missing: str) -> None:
    """Refuse what the text of a statement could not say: a name, a kind that is none of those, no location."""
    fault = relation_name_fault(name)
    if fault:
        raise invalid([{"loc": ("name",), "msg": fault}])
    field, given, known = kind
    if given.upper() not in known:
        raise invalid([{"loc": (field,), "msg": f"there are {', '.join(known).lower()}"}])
    if not location.strip():
        raise invalid([{"loc": ("location",), "msg": missing}])


def option_pairs(given: Mapping[str, OptionValue]) -> tuple[tuple[str, OptionValue], ...]:
    """Options as a statement has them."""
    options = {name.lower(): value for name, value in given.items()}
    if len(options) < len(given):
        raise invalid([{"loc": ("options",), "msg": "names that differ by case alone are the same"}])
    return tuple(sorted(options.items()))


def one_of(rows: Sequence[dict[str, Any]], name: str, kind: str) -> dict[str, Any]:
    """The row of a name, or an error that says where all are listed."""
    found = [one for one in rows if one["name"] == name.lower()]
    if not found:
        raise RelationNameError(f"there is no {kind} {name}", hint=f"GET /v1/{kind}s lists what there is")
    return found[0]
