"""POST /v1/epochs: changes of several tables in one atomic epoch."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from headrace.capture.exact_json import read_json
from headrace.capture.messages import Undecodable
from headrace.epoch.digest import digest
from headrace.serving.access import OfAccess, refuse_changes
from headrace.serving.bodies import read_body
from headrace.serving.ingress import KEY_LENGTH, answered
from headrace.serving.openapi import NAME_LENGTH, ReceiptBody, TokenBody, body, refusals
from headrace.serving.problems import Refusal
from headrace.serving.service import Service, service_of

router = APIRouter(tags=["changes in"])

_FORM = '{"orders": [{"insert": {"id": 1}}, {"delete": {"id": 2}}], "items": []}'


@router.post(
    "/v1/epochs",
    response_model=ReceiptBody,
    responses={202: {"model": TokenBody, "description": "Taken; ask with the token."}}
    | refusals(400, 404, 408, 413, 422, 429, 503),
    openapi_extra=body(
        {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object"}}},
        "application/json",
        description=f"Changes by table: {_FORM}",
    ),
)
async def epochs(
    request: Request,
    service: Annotated[Service, Depends(service_of)],
    access: OfAccess,
    wait: Annotated[bool, Query(description="Answer when the epoch is durable; else at once, with a token.")] = True,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=KEY_LENGTH)] = None,
) -> Response:
    """Apply changes by table, all of them or none."""
    with service.arrivals.receiving():
        slot = service.pushes.enter()
        try:
            sent = await read_body(request, slot)
            changes = await run_in_threadpool(_read, sent)
            refuse_changes(access, changes)
        except BaseException:
            slot.release()
            raise
        what = digest(b"epochs", sent)
        submission = service.submissions.submit(changes, idempotency_key, slot, digest=what)
    return await answered(service, submission, wait)


def _read(sent: bytes) -> dict[str, list[object]]:
    try:
        content = read_json(sent.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _unreadable("The body is not UTF-8.") from None
    except Undecodable as error:
        raise _unreadable(f"{error}.") from None
    if not isinstance(content, dict):
        raise _unreadable("The body is no object of tables.")
    tables = cast("dict[str, Any]", content)
    for name, changes in tables.items():
        if len(name) > NAME_LENGTH:
            raise _unreadable(f"{name[:60]}... is no name of a table.")
        if not isinstance(changes, list):
            raise _unreadable(f"{name[:60]} has no list of changes.")
    return tables


def _unreadable(detail: str) -> Refusal:
    return Refusal(400, "unreadable", "the body cannot be read", detail=detail, hint=f"send {_FORM}")
