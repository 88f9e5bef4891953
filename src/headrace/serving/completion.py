"""GET /v1/completion: what became of changes that were taken without waiting."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse, Response

from headrace.serving.completions import Completion
from headrace.serving.openapi import CompletionBody, refusals
from headrace.serving.problems import Refusal, respond
from headrace.serving.service import Service, service_of

router = APIRouter(tags=["changes in"])


@router.get(
    "/v1/completion",
    response_model=CompletionBody,
    responses={202: {"model": CompletionBody, "description": "In progress."}} | refusals(404, 410, 422, 503),
)
async def completion(
    token: Annotated[str, Query(max_length=200)], service: Annotated[Service, Depends(service_of)]
) -> Response:
    """200 with the receipt once all views are current, 202 while in progress, 410 for an unknown token.

    Changes that were rejected are answered as they would have been with wait=true.
    """
    found = known(service, token)
    if found.error is not None:
        return respond(found.error)
    receipt = None if found.receipt is None else found.receipt.to_json()
    status = "complete" if found.state == "complete" else "inprogress"
    return JSONResponse({"status": status, "receipt": receipt}, 200 if receipt else 202)


def known(service: Service, token: str) -> Completion:
    """What became of the changes behind a token; an unknown token is refused."""
    found = service.completions.ask(token)
    if found.state == "unknown":
        raise Refusal(
            410,
            "unknown_token",
            "nothing is known of this token",
            detail="Tokens are kept while the server runs, the newest ones only.",
            hint="look whether the changes are there, or send them again with the same Idempotency-Key",
        )
    return found
