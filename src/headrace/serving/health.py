"""/healthz, /readyz: whether the server lives, and whether it can take changes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from headrace.serving.auth import is_known
from headrace.serving.openapi import refusals
from headrace.serving.problems import Refusal
from headrace.serving.service import Service, service_of

router = APIRouter(tags=["operation"])


@router.get("/healthz", responses=refusals())
async def healthz() -> dict[str, str]:
    """Answers as long as the process does."""
    return {"status": "ok"}


@router.get("/readyz", responses=refusals(503))
async def readyz(request: Request, service: Annotated[Service, Depends(service_of)]) -> dict[str, object]:
    """Whether the home is open, still owned by this process, and Spark is there and warm to follow its views.

    Whoever may use the server is also told the newest epoch.
    """
    core = service.home.core
    # Answered from what is known, without a thread or a lock: neither Spark nor anyone who waits for it holds it up.
    if core.closed:
        raise _not_ready("The home is closed.")
    if service.is_lost:
        raise _not_ready("Another process took the home over.")
    if core.broken is not None:
        raise _not_ready("An epoch was committed that the home could not take in.")
    # Spark itself is not asked: it is watched, and one that does not answer is replaced.
    renewal = service.home.renewal
    if renewal.under_way:
        raise _not_ready(_renewing(renewal.failure, is_known(request)), hint="come back in a few seconds")
    if renewal.has_ended:
        raise _not_ready("Spark has stopped.")
    if service.rehearsal.under_way:
        raise _not_ready("The first epoch and the first query are rehearsed.", hint="come back in a few seconds")
    told: dict[str, object] = {"status": "ready"}
    if is_known(request):
        told["epoch"] = core.epoch
    return told


def _renewing(failure: str | None, known: bool) -> str:
    """What is told of a renewal; what went wrong may name paths, which are not for everyone."""
    told = "Spark has ended, and another is being started."
    if failure is None:
        return told
    return f"{told} The last attempt failed" + (f": {failure}" if known else " and is repeated.")


def _not_ready(detail: str, hint: str = "start it again") -> Refusal:
    return Refusal(503, "not_ready", "the server is not ready", detail=detail, hint=hint)
