"""/v1/commands: commands of the modules that the operator named, each with a schema of what it takes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, cast

from fastapi import APIRouter, FastAPI, Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from headrace.capture.exact_json import as_text, read_json
from headrace.capture.messages import Undecodable
from headrace.errors import RelationNameError, SetupError
from headrace.events.commands import Command, load_commands, run_command
from headrace.face import Headrace
from headrace.serving.access import OfAccess, forbidden
from headrace.serving.bodies import read_body
from headrace.serving.definition_routes import OfService
from headrace.serving.event_access import may_append, store_to_append
from headrace.serving.ingress import KEY_LENGTH
from headrace.serving.openapi import body, refusals
from headrace.serving.problems import Refusal
from headrace.serving.rows import JSON


class CommandBody(BaseModel):
    """What became of a command: read at this epoch, and every view shows its events."""

    epoch: int
    version: int
    position: int
    events: int


def install(app: FastAPI, hr: Headrace, modules: Sequence[str]) -> None:
    """Serve the commands of these modules; one that has a function `setup` is given the open home first."""
    commands: dict[str, Command] = {}
    for one in modules:
        module, found = load_commands(one)
        taken = sorted(set(found) & set(commands))
        if taken:
            raise SetupError(f"two modules have a command {taken[0]}", hint="give one of them another by name=...")
        commands |= found
        setup = getattr(module, "setup", None)
        if callable(setup):
            setup(hr)
    router = APIRouter(tags=["commands"])
    for name, asked in commands.items():
        router.add_api_route(
            f"/v1/commands/{name}",
            _route(asked),
            methods=["POST"],
            name=f"command {name}",
            response_model=CommandBody,
            responses=refusals(400, 404, 408, 409, 413, 422, 429, 503),
            openapi_extra=body(asked.schema, JSON, description=asked.decide.__doc__ or f"The command {name}."),
        )

    async def listed(service: OfService, access: OfAccess) -> Response:
        """The commands that one may give, each with the schema of what it takes."""
        known = [
            {"name": one.name, "aggregate_type": one.aggregate_type, "schema": one.schema}
            for one in commands.values()
            if may_append(service, access, one.store)
        ]
        return JSONResponse(known)

    async def unknown(name: str, access: OfAccess) -> Response:
        if not access.is_unlimited:
            raise forbidden(f"give the command {name[:60]}")
        raise RelationNameError(
            f"there is no command {name[:60]}",
            hint=f"there are {', '.join(commands)}" if commands else "name a module of commands by serve --commands",
        )

    router.add_api_route("/v1/commands", listed, methods=["GET"], name="commands", responses=refusals(503))
    router.add_api_route("/v1/commands/{name}", unknown, methods=["POST"], include_in_schema=False)
    app.include_router(router)


def _route(asked: Command) -> Callable[..., Coroutine[Any, Any, Response]]:
    async def run(
        request: Request,
        service: OfService,
        access: OfAccess,
        idempotency_key: Annotated[str | None, Header(min_length=1, max_length=KEY_LENGTH)] = None,
    ) -> Response:
        if not may_append(service, access, asked.store):
            raise forbidden(f"give the command {asked.name[:60]}")
        store = store_to_append(service, access, asked.store)
        slot = service.pushes.enter()
        try:
            given = _read(await read_body(request, slot))
            carried_out = service.submissions.noting_loss(lambda: run_command(store, asked, given, idempotency_key))
            return JSONResponse((await run_in_threadpool(carried_out)).to_json())
        finally:
            slot.release()

    run.__doc__ = asked.decide.__doc__
    return run


def _read(sent: bytes) -> dict[str, Any]:
    try:
        content = read_json(as_text(sent) or "{}")
    except Undecodable as error:
        raise _unreadable(f"{error}.") from None
    if not isinstance(content, dict):
        raise _unreadable("The body is no object of arguments.")
    # Numbers with a point are decimals: whatever type an argument has is read from them exactly.
    return cast("dict[str, Any]", content)


def _unreadable(detail: str) -> Refusal:
    return Refusal(
        400, "unreadable", "the body cannot be read", detail=detail, hint="send an object; GET /v1/commands tells which"
    )
