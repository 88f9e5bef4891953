"""/v0/pipelines/{name}/ingress/{table}: pushes, each one atomic, and the tokens by which the client waits for them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from headrace.catalog.catalog import Table
from headrace.serving.access import OfAccess, refuse_changes, refuse_unwritten
from headrace.serving.bodies import read_body
from headrace.serving.completion import known
from headrace.serving.feldera.client_values import from_client
from headrace.serving.feldera.errors import ClientRoute, refused, unquoted
from headrace.serving.feldera.pipelines import OfPipeline, OfService, pipeline_of
from headrace.serving.ingress import bad_lines, with_lines
from headrace.serving.lines import BadLine, Lines, read_lines
from headrace.serving.problems import Refusal

# How long a question for a token is held back while its epoch is under way. The client sleeps between its questions,
# and longer each time: an answer that waits for the epoch spares it a sleep.
HELD_SECONDS = 0.25

router = APIRouter(prefix="/v0/pipelines", tags=["feldera"], route_class=ClientRoute)


@router.post("/{name}/ingress/{table}")
async def ingress(
    table: str,
    request: Request,
    service: OfService,
    pipeline: OfPipeline,
    access: OfAccess,
    format: Annotated[str, Query()] = "json",  # noqa: A002 - the name that the client sends
    update_format: Annotated[str, Query()] = "insert_delete",
    json_flavor: Annotated[str, Query()] = "default",
    force: Annotated[bool, Query()] = False,
    connector_metadata: Annotated[str | None, Query()] = None,
) -> Response:
    """Put changes in line for the next epoch; what breaks the table's contract is refused at once, all of it."""
    if connector_metadata is not None:
        raise _unsupported("connector_metadata is not offered", "push what you need of it as columns")
    form = _offered(format, update_format, json_flavor)
    pipeline.refuse_paused(force=force)
    refuse_unwritten(access, unquoted(table))
    target = service.readings.catalog.open_table(unquoted(table))
    with service.arrivals.receiving():
        slot = service.pushes.enter()
        try:
            body = await read_body(request, slot)
            read = await run_in_threadpool(_checked, body, form, target, json_flavor)
            refuse_changes(access, {target.name: read.changes})
        except BaseException:
            slot.release()
            raise
        submission = service.submissions.submit(
            {target.name: read.changes}, None, slot, lambda error: with_lines(error, read.lines)
        )
    pipeline.count(len(read.changes), submission)
    return JSONResponse({"token": service.completions.issue(submission)})


@router.get("/{name}/completion_status", dependencies=[Depends(pipeline_of)])
async def completion_status(token: Annotated[str, Query(max_length=200)], service: OfService) -> Response:
    """Whether the changes behind a token are durable with every view current, and as of which epoch."""
    await service.completions.over(token, HELD_SECONDS)
    found = known(service, token)
    if found.error is not None:
        return refused(found.error)
    step = None if found.receipt is None else found.receipt.epoch
    return JSONResponse({"status": "inprogress" if step is None else "complete", "step": step})


def _offered(form: str, update_format: str, json_flavor: str) -> Literal["insert_delete", "raw"]:
    if form != "json":
        raise _unsupported(f"format {form} is not offered", "push JSON: input_json, or push_to_pipeline with json")
    if update_format != "insert_delete" and update_format != "raw":
        raise _unsupported(f"update_format {update_format} is not offered", "push insert_delete or raw")
    if json_flavor not in ("default", "pandas"):
        raise _unsupported(f"json_flavor {json_flavor} is not offered", "push the default flavor, or pandas")
    return update_format


def _unsupported(message: str, hint: str) -> Refusal:
    return Refusal(400, "unsupported_format", message, hint=hint)


def _checked(body: bytes, form: Literal["insert_delete", "raw"], target: Table, json_flavor: str) -> Lines:
    """The changes of a body, every one of them as the table asks."""
    # The client writes an empty list as null.
    read = Lines() if body.strip() in (b"", b"null") else read_lines(body, form)
    read = Lines(from_client(read.changes, target, pandas=json_flavor == "pandas"), read.lines, read.bad)
    reasons = target.contract.decode_all(read.changes)[1]
    if read.bad or reasons:
        raise bad_lines([*read.bad, *(BadLine(read.lines[index], reason) for index, reason in reasons.items())])
    return read
